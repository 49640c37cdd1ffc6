"""Metadata of objects inside custom objects (`x-kubernetes-embedded-resource`).

Source: kube-apiserver v1.36, apiextensions-apiserver/pkg/apiserver/schema/objectmeta.
"""

from __future__ import annotations

import json
from typing import Any

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apis.schema.scalar_decoders import TypeMismatch
from stowplan.apis.schema.struct_types import UnknownFields
from stowplan.apiserver.crd.structural_schema import EMBEDDED, sub_schema
from stowplan.objects.encoding.tree import Tree


class MalformedMetadata(ValueError):
    """The metadata of an embedded object is not of its type."""


def has_embedded(structure: Tree) -> bool:
    """True if objects of a schema may contain objects."""
    return f'"{EMBEDDED}":true' in json.dumps(structure, separators=(",", ":"))


def clean_embedded(value: Any, node: Tree | None, sink: UnknownFields, path: str = "") -> None:
    """Leave known fields only in the metadata of embedded objects; `sink` gets the others.

    Raises MalformedMetadata.
    """
    if node is None:
        return
    if isinstance(value, list):
        for at, one in enumerate(value):
            clean_embedded(one, node.get("items"), sink, f"{path}[{at}]")
    elif isinstance(value, dict):
        if node.get(EMBEDDED) and value.get("metadata") is not None:
            value["metadata"] = _known_metadata(value["metadata"], sink, f"{path}.metadata")
        for key, one in value.items():
            known, below = sub_schema(node, key)
            if known:
                clean_embedded(one, below, sink, f"{path}.{key}" if path else key)


def _known_metadata(meta: Any, sink: UnknownFields, path: str) -> Tree:
    struct = type_tables.struct("meta/v1.ObjectMeta")
    try:
        made: Tree = struct.decode(meta, None, UnknownFields())
    except TypeMismatch as error:
        text = json.dumps(meta, separators=(",", ":"), sort_keys=True)
        raise MalformedMetadata(f"{path}: Invalid value: {text}: {error}") from None
    struct.decode(meta, (None, path, ""), sink)
    return made
