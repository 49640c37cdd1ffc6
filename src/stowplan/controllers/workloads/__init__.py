"""Workload controllers: Deployment, ReplicaSet, Job."""
