"""Columns about pods: pod facts, counts by label, affinity terms of existing pods."""
