"""Persistent volumes, claims and the kinds of storage.k8s.io/v1: validation, strategies."""
