"""Demonstrations that run a local cluster and a scheduler in one process."""
