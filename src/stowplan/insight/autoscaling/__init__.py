"""Node autoscaling: which nodes an autoscaler would add or remove, from one moment's state."""
