"""Quota of queues and nested cohorts, and shares of it."""
