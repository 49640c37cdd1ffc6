"""Message types: the types of the kinds with the field numbers of protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from stowplan.apis.machinery.strconv import atoi
from stowplan.apis.protobuf import field_numbers
from stowplan.apis.schema.struct_types import StructField, StructType, ValueType
from stowplan.apis.schema.type_notation import TypeTables

_OWN_KIND = ["kind", "apiVersion"]


class MessageField:
    """A field of a message. number: on the wire. field: of the type; None for those in a message of
    their own, `within`. repeats: it is a list or map, and each of its items a field of its own,
    which lists with a type of their own are not (the verbs of discovery)."""

    __slots__ = ("field", "number", "repeats", "within")

    def __init__(
        self, number: int, field: StructField | None, within: MessageType | None = None
    ) -> None:
        self.number = number
        self.field = field
        self.within = within
        self.repeats = field is not None and _repeats(field.value)


def _repeats(value: ValueType) -> bool:
    return value.is_map or (value.is_list and value.go.startswith("[]"))


class MessageType:
    """A type as a message. fields: in the order of their numbers. always: those of them that JSON
    has whatever their value is. nullable: names of the others that JSON has with every value but
    null. plain: of those that it has with a value that is not empty."""

    __slots__ = ("always", "by_number", "fields", "nullable", "plain", "shape")

    def __init__(self, shape: StructType, fields: Iterable[MessageField]) -> None:
        self.shape = shape
        self.fields = tuple(fields)
        self.by_number = {one.number: one for one in self.fields}
        own = [one.field for one in self.fields if one.field is not None]
        self.always = tuple(field for field in own if field.always)
        left = [field for field in own if not field.always]
        self.plain = {one.name for one in left if one.value.plain and not one.pointer}
        self.nullable = {one.name for one in left} - self.plain


class MessageTypes:
    """Messages of the types in tables, made when they are asked for."""

    def __init__(self, tables: TypeTables) -> None:
        self.tables = tables
        self._made: dict[tuple[str, str], MessageType] = {}

    def of(self, shape: StructType) -> MessageType:
        """The message of a type."""
        key = shape.package, shape.name
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._message(shape, dict(shape.fields))
        return found

    def _message(self, shape: StructType, fields: dict[str, StructField]) -> MessageType:
        line = _numbers().get((shape.package, shape.name))
        if list(fields)[:2] == _OWN_KIND and (line is None or "kind" not in line):
            # Those of an object are in its envelope.
            fields = {name: one for name, one in fields.items() if name not in _OWN_KIND}
        made, number, left = [], 0, dict(fields)
        for text in line or fields:
            at, _, name = text.rpartition(":")
            number = atoi(at) if at else number + 1
            if name.startswith("+"):
                inner = self._inline(shape, name[1:], fields)
                made.append(MessageField(number, None, inner))
                for one in inner.shape.fields:
                    left.pop(one, None)
            else:
                made.append(MessageField(number, left.pop(name)))
        if left:
            raise ValueError(f"field numbers of {shape.package}.{shape.name}: missing {list(left)}")
        return MessageType(shape, made)

    def _inline(self, shape: StructType, name: str, fields: dict[str, StructField]) -> MessageType:
        """The message of embedded fields: those of a type, or of a line of numbers alone."""
        full = f"{shape.package}.{name}"
        if full in self.tables.names():
            return self.of(self.tables.struct(full))
        made = StructType(shape.package, name)
        names = [one.lstrip("+").rpartition(":")[2] for one in _numbers()[shape.package, name]]
        for one in names:
            if one in fields:
                made.fields[one] = fields[one]
            else:
                made.fields |= self._inline(shape, one, fields).shape.fields
        return self._message(made, dict(made.fields))


@cache
def _numbers() -> dict[tuple[str, str], list[str]]:
    """(package, type) -> fields with their numbers."""
    found = {}
    for packages, text in field_numbers.TABLES:
        for line in text.strip().replace("\n ", " ").split("\n"):
            name, _, fields = line.partition(":")
            home, _, kind = name.rpartition(".")
            for package in (home,) if home else packages:
                found[package, kind] = fields.split()
    return found


def element_of(value: ValueType) -> ValueType:
    """The type of an item of a list or map."""
    if value.item is None:
        raise ValueError(f"{value.go} has no items")
    return value.item
