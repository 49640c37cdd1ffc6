"""PriorityClass, Lease and RuntimeClass: validation, strategies."""
