"""The shapes of built-in kinds: decoding, defaults, merge keys, OpenAPI from one set of tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from stowplan.cluster.errors import DecodeError
from stowplan.cluster.resource import Shape
from stowplan.cluster.schema import defaults
from stowplan.cluster.schema.notation import Tables, openapi_name
from stowplan.cluster.schema.parse import NotJson, parse
from stowplan.cluster.schema.scalars import WrongType
from stowplan.cluster.schema.shapes import Sink, Struct
from stowplan.cluster.schema.types import cluster, core_v1, devices, meta, pods, volumes, workloads

Tree = dict[str, Any]

__all__ = ["KindSchema", "NotJson", "Struct", "kind_schema", "openapi_name", "parse", "tables"]


def _read_tables() -> Tables:
    made = Tables()
    made.read("meta/v1", meta.META)
    for text in (core_v1.CORE, pods.PODS, volumes.VOLUMES, cluster.CORE_TOPOLOGY):
        made.read("core/v1", text)
    made.read("apps/v1", workloads.APPS)
    made.read("batch/v1", workloads.BATCH)
    made.read("policy/v1", workloads.POLICY)
    made.read("autoscaling/v1", workloads.AUTOSCALING)
    made.read("storage/v1", cluster.STORAGE)
    made.read("scheduling/v1", cluster.SCHEDULING)
    made.read("coordination/v1", cluster.COORDINATION)
    made.read("events/v1", cluster.EVENTS)
    made.read("node/v1", cluster.NODE)
    made.read("rbac/v1", cluster.RBAC)
    made.read("authorization/v1", cluster.AUTHORIZATION)
    made.read("authentication/v1", cluster.AUTHENTICATION)
    made.read("apiextensions/v1", cluster.APIEXTENSIONS)
    made.read("resource/v1", devices.RESOURCE)
    defaults.install(made)
    return made


tables = _read_tables()


class KindSchema:
    """The shape of one built-in kind (`resource.Schema`)."""

    def __init__(self, full_name: str, group: str) -> None:
        self.full_name = full_name
        self.kind = full_name.rpartition(".")[2]
        self.version = full_name.partition("/")[2].partition(".")[0]
        self.group = group
        self._struct: Struct | None = None

    @property
    def struct(self) -> Struct:
        """The type itself."""
        if self._struct is None:
            self._struct = tables.struct(self.full_name)
        return self._struct

    @property
    def shape(self) -> Shape | None:
        """The type, as strategic merge walks it."""
        return self.struct

    def decode(self, tree: Tree, duplicates: Sequence[str], mode: str) -> tuple[Tree, list[str]]:
        """See `resource.Schema`; the defaults of the version are set as well."""
        sink = Sink(duplicates)
        try:
            made = self.struct.decode(tree, None, sink)
        except WrongType as error:
            raise DecodeError(str(error)) from None
        return made, list(sink.texts) if mode != "Ignore" else []

    def blank(self) -> Tree:
        """The object with nothing set and no defaults, as Go writes it."""
        return _blank(self.struct)

    def default(self, tree: Tree) -> None:
        """Nothing is left to do: decoding has set the defaults."""


def _blank(struct: Struct) -> Tree:
    made: Tree = {}
    for one in struct.fields.values():
        value = one.value
        inner = value.shape is not None and not (value.is_list or value.is_map or one.pointer)
        if inner and not value.plain and value.shape is not None and one.always:
            made[one.name] = _blank(value.shape)
        elif one.name == "replicas":
            # A plain number inside the original, though its clients may leave it out.
            made[one.name] = 0
        elif one.always:
            made[one.name] = None if one.pointer else value.zero()
    return made


@cache
def kind_schema(full_name: str, group: str = "") -> KindSchema:
    """The one schema of `apps/v1.Deployment`; group: as in apiVersion (`storage.k8s.io`)."""
    return KindSchema(full_name, group)
