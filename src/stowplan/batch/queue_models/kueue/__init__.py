"""Kueue: which workloads have quota, in which flavor, and whom they preempt."""
