"""Unit of time of messages and of the scheduler: whole nanoseconds of a monotonic clock."""

SECOND = 1_000_000_000
"""Nanoseconds of one second."""
