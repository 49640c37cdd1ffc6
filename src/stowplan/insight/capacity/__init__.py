"""Capacity: how many more pods fit, the fewest nodes for a workload, and which can be emptied."""
