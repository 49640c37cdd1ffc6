"""Preemptors that come together, decided by one call of a kernel."""
