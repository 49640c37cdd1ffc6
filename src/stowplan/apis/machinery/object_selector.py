"""Selection of a list or watch: a label selector and a field selector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from stowplan.apis.machinery.field_selector import FieldRequirement
from stowplan.apis.machinery.label_selector import LabelRequirement
from stowplan.apis.machinery.resource import Resource
from stowplan.objects.encoding.tree import Tree


class _SelectorMeta(msgspec.Struct):
    labels: dict[str, str] = {}
    name: str = ""
    namespace: str = ""


class _LabeledObject(msgspec.Struct):
    metadata: _SelectorMeta


_labeled_decoder = msgspec.json.Decoder(_LabeledObject)
_tree_decoder: msgspec.json.Decoder[Tree] = msgspec.json.Decoder(dict[str, Any])


class ObjectSelector:
    """Requirements, all of which must match. It decodes only what they need."""

    __slots__ = ("_fields", "labels", "name", "namespace", "terms")

    def __init__(
        self,
        labels: tuple[LabelRequirement, ...] = (),
        terms: tuple[FieldRequirement, ...] = (),
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
        """True if the object of these canonical bytes is selected."""
        if not self.labels and not self.terms:
            return True
        meta = _labeled_decoder.decode(value).metadata
        if not all(requirement.matches(meta.labels) for requirement in self.labels):
            return False
        tree: Tree | None = None
        for term in self.terms:
            if term.field == "metadata.name":
                got = meta.name
            elif term.field == "metadata.namespace":
                got = meta.namespace
            else:
                tree = tree if tree is not None else _tree_decoder.decode(value)
                got = self._fields[term.field](tree)
            if not term.matches(got):
                return False
        return True
