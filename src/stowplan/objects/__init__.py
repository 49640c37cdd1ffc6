"""Kubernetes values: frozen, typed, only the fields that scheduling reads."""
