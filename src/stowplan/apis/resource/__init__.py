"""Kinds of resource.k8s.io/v1: validation, strategies."""
