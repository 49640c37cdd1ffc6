"""Which workloads give up their quota for another."""
