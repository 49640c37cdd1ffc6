"""Types of the built-in kinds: decoding, defaults, merge keys, OpenAPI from one set of tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from stowplan.apis.machinery.errors import BodyDecodeError
from stowplan.apis.machinery.resource import MergeShape
from stowplan.apis.schema.json_parser import InvalidJson, parse_json
from stowplan.apis.schema.meta_types import META_TYPES
from stowplan.apis.schema.scalar_decoders import TypeMismatch
from stowplan.apis.schema.struct_types import StructType, UnknownFields
from stowplan.apis.schema.type_notation import TypeTables, openapi_name
from stowplan.objects.encoding.tree import Tree

__all__ = [
    "InvalidJson", "KindSchema", "StructType", "kind_schema", "openapi_name", "parse_json",
    "type_tables",
]  # fmt: skip


type_tables = TypeTables()
"""The types of meta/v1, and of all kinds once they are registered (`kind.registration`)."""
type_tables.read("meta/v1", META_TYPES)


class KindSchema:
    """The schema of one built-in kind (`resource.ResourceSchema`)."""

    def __init__(self, full_name: str, group: str) -> None:
        self.full_name = full_name
        self.kind = full_name.rpartition(".")[2]
        self.version = full_name.partition("/")[2].partition(".")[0]
        self.group = group
        self._struct: StructType | None = None

    @property
    def struct(self) -> StructType:
        """The type itself."""
        if self._struct is None:
            self._struct = type_tables.struct(self.full_name)
        return self._struct

    @property
    def shape(self) -> MergeShape | None:
        return self.struct

    def decode(self, tree: Tree, duplicates: Sequence[str], mode: str) -> tuple[Tree, list[str]]:
        """See `resource.ResourceSchema`; the defaults of the version are set as well."""
        sink = UnknownFields(duplicates)
        try:
            made = self.struct.decode(tree, None, sink)
        except TypeMismatch as error:
            raise BodyDecodeError(str(error)) from None
        return made, list(sink.texts) if mode != "Ignore" else []

    def blank(self) -> Tree:
        return _blank(self.struct)

    def default(self, tree: Tree) -> None:
        """Does nothing: decoding has set the defaults."""


def _blank(struct: StructType) -> Tree:
    made: Tree = {}
    for one in struct.fields.values():
        value = one.value
        inner = value.shape is not None and not (value.is_list or value.is_map or one.pointer)
        if inner and not value.plain and value.shape is not None and one.always:
            made[one.name] = _blank(value.shape)
        elif one.name == "replicas":
            # Not a pointer in the internal types of the original.
            made[one.name] = 0
        elif one.always:
            made[one.name] = None if one.pointer else value.zero()
    return made


@cache
def kind_schema(full_name: str, group: str = "") -> KindSchema:
    """The schema of `apps/v1.Deployment` or its like. group: of apiVersion (`storage.k8s.io`)."""
    return KindSchema(full_name, group)
