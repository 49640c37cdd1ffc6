"""Kueue's admission on a cluster: the controller that reserves quota for Workloads."""
