"""Which objects a list or a watch is about: a label selector and a field selector together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stowplan.cluster.fields import Term
from stowplan.cluster.labels import Requirement
from stowplan.cluster.resource import Resource, Tree


class _Meta(msgspec.Struct):
    labels: dict[str, str] = {}
    name: str = ""
    namespace: str = ""


class _Labelled(msgspec.Struct):
    metadata: _Meta


_labelled = msgspec.json.Decoder(_Labelled)
_tree: msgspec.json.Decoder[Tree] = msgspec.json.Decoder(dict[str, Any])


class Selection:
    """The terms, all of which must hold. It reads no more of an object than they need."""

    __slots__ = ("_fields", "labels", "name", "namespace", "terms")

    def __init__(
        self,
        labels: tuple[Requirement, ...] = (),
        terms: tuple[Term, ...] = (),
        fields: Resource | None = None,
    ) -> None:
        self.labels = labels
        self.terms = terms
        self.name = next((t.value for t in terms if t.equal and t.field == "metadata.name"), None)
        self.namespace = next(
            (t.value for t in terms if t.equal and t.field == "metadata.namespace"), None
        )
        self._fields: dict[str, Callable[[Tree], str]] = dict(fields.fields) if fields else {}

    def __bool__(self) -> bool:
        return bool(self.labels or self.terms)

    def matches(self, value: bytes) -> bool:
        """True when the object of these canonical bytes is selected."""
        if not self.labels and not self.terms:
            return True
        meta = _labelled.decode(value).metadata
        if not all(requirement.matches(meta.labels) for requirement in self.labels):
            return False
        tree: Tree | None = None
        for term in self.terms:
            if term.field == "metadata.name":
                got = meta.name
            elif term.field == "metadata.namespace":
                got = meta.namespace
            else:
                tree = tree if tree is not None else _tree.decode(value)
                got = self._fields[term.field](tree)
            if not term.matches(got):
                return False
        return True


EVERYTHING = Selection()
