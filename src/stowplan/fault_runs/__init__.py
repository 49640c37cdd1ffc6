"""Fault schedules and seeded runs with injected faults."""
