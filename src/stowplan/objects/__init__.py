"""Kubernetes objects as immutable typed values, with the fields that scheduling reads."""
