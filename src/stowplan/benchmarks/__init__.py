"""Benchmarks of the scheduler (stowplan bench)."""
