"""Matching of volumes to claims: the smallest volume that is large enough.

Source: kube-controller-manager v1.36, component-helpers storage/volume (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.controller_runtime.object_fields import is_deleting, selector_tree_matches
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import QuantityError, nanos


def is_reserved_for(volume: Tree, claim: Tree) -> bool:
    """True when the volume is reserved for this claim; a reservation without uid is by name."""
    held = volume["spec"].get("claimRef") or {}
    meta = claim["metadata"]
    return bool(
        held.get("name") == meta["name"]
        and held.get("namespace") == meta["namespace"]
        and held.get("uid", meta["uid"]) in ("", meta["uid"])
    )


def find_best_match(volumes: Iterable[Tree], claim: Tree) -> Tree | None:
    """A volume reserved for the claim, else the smallest free one that fits; None if there is
    none."""
    best: Tree | None = None
    for volume in volumes:
        if is_reserved_for(volume, claim):
            return volume
        if _fits(volume, claim) and (best is None or _size(volume) < _size(best)):
            best = volume
    return best


def _fits(volume: Tree, claim: Tree) -> bool:
    spec, asked = volume["spec"], claim["spec"]
    phase = (volume.get("status") or {}).get("phase")
    if spec.get("claimRef") or phase != "Available" or is_deleting(volume):
        return False
    if (spec.get("storageClassName") or "") != (asked.get("storageClassName") or ""):
        return False
    if spec.get("volumeMode", "Filesystem") != asked.get("volumeMode", "Filesystem"):
        return False
    if not set(asked.get("accessModes") or ()) <= set(spec.get("accessModes") or ()):
        return False
    labels = volume["metadata"].get("labels") or {}
    if asked.get("selector") is not None and not selector_tree_matches(asked["selector"], labels):
        return False
    wanted = ((asked.get("resources") or {}).get("requests") or {}).get("storage", "0")
    return _size(volume) >= _read(wanted)


def _size(volume: Tree) -> int:
    return _read((volume["spec"].get("capacity") or {}).get("storage", "0"))


def _read(quantity: str | int) -> int:
    try:
        return nanos(quantity)
    except (QuantityError, ArithmeticError):
        return 0
