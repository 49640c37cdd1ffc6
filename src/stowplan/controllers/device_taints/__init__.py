"""Eviction of pods from devices with NoExecute taints."""
