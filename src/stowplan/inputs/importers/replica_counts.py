"""Replica counts of imported jobs."""

from __future__ import annotations

from stowplan.inputs.importers.imported_objects import REPLICAS_MAX, Tree
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.manifests import untyped_title
from stowplan.objects.encoding.json_codec import DecodeError


def checked(number: int | None, tree: Tree, path: str, default: int = 1) -> int:
    """A replica count or `default`; raises DecodeError for a negative or too large one."""
    if number is None:
        return default
    if not 0 <= number <= REPLICAS_MAX:
        what = mismatch(str(number), f"a whole number from 0 to {REPLICAS_MAX}")
        raise DecodeError(what, f"{untyped_title(tree, '')}: {path}")
    return number
