"""Cluster state of the scheduler: watch events in, snapshots out; pods assumed until confirmed."""

from stowplan.cache.cache import Cache, CacheError

__all__ = ["Cache", "CacheError"]
