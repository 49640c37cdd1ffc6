"""Row: where a built-in kind is served, its rules, its table.

Source: kubernetes v1.36, pkg/registry; discovery as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stowplan.apis.machinery.resource import (
    PostAction,
    ResourceAlias,
    ResourceStrategy,
    Subresource,
    Table,
)

Tree = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


@dataclass(frozen=True, kw_only=True)
class KindRegistration:
    """A built-in kind. type: its name in the tables of types. status: rules of `status`, if any."""

    group: str = ""
    plural: str
    kind: str
    type: str
    strategy: ResourceStrategy = field(default_factory=ResourceStrategy)
    namespaced: bool = True
    status: ResourceStrategy | None = None
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    table: Table | None = None
    fields: Mapping[str, Callable[[Tree], str]] = field(default_factory=dict)
    subresources: tuple[Subresource, ...] = ()
    act: PostAction | None = None
    ttl_s: float | None = None
    alias: ResourceAlias | None = None
    deprecation: str = ""
    stored_as: str = ""
