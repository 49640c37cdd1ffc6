"""Objects of Kueue in manifests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.batch.queue_models.kueue.manifests.kueue_versions import (
    KUEUE_TYPES,
    WorkloadPriorityClass,
    current_version,
    value_problem,
)
from stowplan.inputs.input_error import InputError
from stowplan.inputs.manifests import decode_object
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object

KUEUE_KINDS = frozenset(f"{kind}.kueue.x-k8s.io" for kind in KUEUE_TYPES)
"""Kinds that are read where Kueue decides, as `Cluster.ignored` names them."""


class KueueManifests:
    """Objects by kind."""

    def __init__(self, trees: Iterable[Tree]) -> None:
        """Raises InputError for an object that cannot be read, or is there twice."""
        self._found: dict[type[Object], dict[str, Any]] = {
            kind: {} for kind in KUEUE_TYPES.values()
        }
        for tree in trees:
            kind = KUEUE_TYPES.get(str(tree.get("kind")))
            if kind is None:
                continue
            try:
                one = decode_object(current_version(tree), kind, "")
            except DecodeError as problem:
                raise InputError.at("", problem.path, problem.what) from None
            problem_text = value_problem(one)
            if problem_text:
                raise InputError.at("", f"{tree['kind']} {one.name}", problem_text)
            key = f"{one.metadata.namespace}/{one.name}"
            if self._found[kind].setdefault(key, one) is not one:
                raise InputError.at("", f"{tree['kind']} {one.name}", "Duplicate value")

    def all(self, kind: type[Object]) -> list[Any]:
        """All objects of a kind, in order."""
        return list(self._found[kind].values())

    def priority_of(self, name: str) -> int | None:
        """The value of a WorkloadPriorityClass; None if it is not there."""
        found = (one for one in self.all(WorkloadPriorityClass) if one.name == name)
        return next((one.value for one in found), None)
