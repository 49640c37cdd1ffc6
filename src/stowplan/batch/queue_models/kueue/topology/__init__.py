"""Topology-aware placement: which domains of a topology the pods of a workload get."""
