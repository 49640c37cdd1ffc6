"""Subresources of kinds: binding, scale, finalize."""
