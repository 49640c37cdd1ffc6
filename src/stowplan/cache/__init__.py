"""Cluster state: deltas in, snapshot out; pods assumed on a node before the API says so."""

from stowplan.cache.cache import Cache, CacheError

__all__ = ["Cache", "CacheError"]
