"""Paths that are no resources: discovery, OpenAPI, version, health, metrics."""
