"""Registration of a built-in kind: its types, path, strategies and table.

Source: kubernetes v1.36, pkg/registry; discovery as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stowplan.apis.machinery.resource import (
    ALL_VERBS,
    PostAction,
    ResourceAlias,
    ResourceStrategy,
    Subresource,
    Table,
)
from stowplan.apis.schema import type_tables
from stowplan.apis.schema.struct_types import DefaultingHook
from stowplan.objects.encoding.tree import Tree

NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


@dataclass(frozen=True, kw_only=True)
class KindRegistration:
    """A built-in kind, as it is served in one version.

    types: the kind's types in the notation of `schema.type_notation`. defaults: by full name of a
    type, the defaults that depend on other fields. status: strategy of the status subresource, if
    it has one. The other fields are those of `machinery.resource.Resource`.
    """

    group: str = ""
    version: str = "v1"
    kind: str
    types: str = ""
    defaults: Mapping[str, DefaultingHook] = field(default_factory=dict)
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

    @property
    def package(self) -> str:
        """The package of its types, such as `core/v1`."""
        return f"{self.group.partition('.')[0] or 'core'}/{self.version}"

    @property
    def plural(self) -> str:
        """The kind in URLs, such as `pods`."""
        name = self.kind.lower()
        if name == "endpoints":
            return name
        if name.endswith("y"):
            return f"{name.removesuffix('y')}ies"
        return f"{name}es" if name.endswith("s") else f"{name}s"


def register(*kinds: KindRegistration) -> tuple[KindRegistration, ...]:
    """Add the types and defaults of kinds to `type_tables`; returns the kinds."""
    for kind in kinds:
        type_tables.read(kind.package, kind.types)
    for kind in kinds:
        for name, hook in kind.defaults.items():
            type_tables.hook(name, hook)
    return kinds
