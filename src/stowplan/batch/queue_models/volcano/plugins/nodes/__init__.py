"""Plugins about nodes: filters, scores, topology, devices."""
