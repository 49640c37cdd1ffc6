"""Subresources that act: binding, eviction, scale, finalize."""
