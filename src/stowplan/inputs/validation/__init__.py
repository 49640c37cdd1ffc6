"""Validation of manifests by the API server's rules."""
