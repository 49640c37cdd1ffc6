"""Counts of replicas that importers read."""

from __future__ import annotations

from stowplan.inputs.importers.imported_objects import REPLICAS_MAX, Tree
from stowplan.inputs.manifests import untyped_title
from stowplan.objects.encoding.json_codec import DecodeError


def checked(number: int | None, tree: Tree, path: str, default: int = 1) -> int:
    """A count, `default` where it is absent; raises DecodeError for one below 0 or too large."""
    if number is None:
        return default
    if not 0 <= number <= REPLICAS_MAX:
        what = f"got {number}, wanted a whole number from 0 to {REPLICAS_MAX}"
        raise DecodeError(what, f"{untyped_title(tree, '')}: {path}")
    return number
