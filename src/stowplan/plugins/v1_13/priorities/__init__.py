"""Priorities of Kubernetes 1.13, as Score plugins with scores from 0 to 10."""
