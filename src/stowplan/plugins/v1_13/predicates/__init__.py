"""Predicates of Kubernetes 1.13, as Filter plugins."""
