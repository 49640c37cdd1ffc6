"""Controllers that make pods: Deployment, ReplicaSet, Job."""
