"""Seeded generators of nodes, pods, clusters and table changes."""
