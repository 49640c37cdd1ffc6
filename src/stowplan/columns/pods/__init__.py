"""Columns about pods: pod data, counts by label, affinity terms of existing pods."""
