"""Counts of replicas that importers read."""

from __future__ import annotations

from stowplan.objects.codec import DecodeError
from stowplan.objects.manifests import untyped_title
from stowplan.sim.importers.importing import REPLICAS_MAX, Tree


def checked(number: int | None, tree: Tree, path: str, default: int = 1) -> int:
    """A count, `default` where it is absent; raises DecodeError for one below 0 or too large."""
    if number is None:
        return default
    if not 0 <= number <= REPLICAS_MAX:
        what = f"got {number}, wanted a whole number from 0 to {REPLICAS_MAX}"
        raise DecodeError(what, f"{untyped_title(tree, '')}: {path}")
    return number
