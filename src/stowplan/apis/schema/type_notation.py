"""The notation of the API's types (`TYPES` of the kinds), and its parser.

    Container -- runs one image.
      name string! -- unique in the pod.
      ports [ContainerPort] ~merge:containerPort
      imagePullPolicy PullPolicy
      terminationMessagePath string =/dev/termination-log
      livenessProbe Probe?
      +Embedded
    PullPolicy DNSPolicy = string
    ResourceList = {roundedQuantity}

A line at the margin begins a type; `A B = type` gives other names to a type. A field has a name, a
type and marks: `[T]` a list, `{T}` a map; `?` Go holds a pointer, so that an empty value that was
given is kept; `!` Go writes it always, and OpenAPI marks it as required (a request without it has
Go's zero value, for validation to judge); `z` Go leaves out an empty struct (omitzero); `~` how
strategic merge treats it, with the key after a colon; `=` the default, as JSON or bare text. `+T`
takes over the fields of T; a later line of the same name changes one of them. `--` begins what
`kubectl explain` prints. Scalar types are the keys of `_SCALARS`. Other names are looked up in the
package first, then in meta/v1, and `core.Pod` names a type of core/v1; `T|bool` also takes true and
false.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stowplan.apis.schema import canonical_time, scalar_decoders
from stowplan.apis.schema.scalar_decoders import Decoder
from stowplan.apis.schema.struct_types import (
    CachedStructType,
    StructField,
    StructType,
    ValueType,
    list_type,
    map_type,
)
from stowplan.objects.encoding.tree import Tree


def _scalar(
    decode: Decoder, go: str, zero: Any, openapi: Tree | str, *, plain: bool = True
) -> ValueType:
    """A scalar type. zero: what Go writes for a missing one. openapi: `type` or `type format`."""
    if isinstance(openapi, str):
        openapi = dict(zip(("type", "format"), openapi.split(), strict=False))
    return ValueType(decode, go, lambda: zero, plain, openapi=openapi)


def _text(go: str) -> ValueType:
    return _scalar(scalar_decoders.string_decoder(go), go, "", "string")


_any, _raw = scalar_decoders.decode_any, "runtime.RawExtension"
_quantity, _exact_quantity = map(scalar_decoders.quantity_decoder, (True, False))
_time = scalar_decoders.time_decoder(canonical_time.canonical_time)
_micro_time = scalar_decoders.time_decoder(canonical_time.canonical_micro_time)
_QUANTITY = {"oneOf": [{"type": "string"}, {"type": "number"}]}
_INT_OR_STRING = {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
_SCALARS: dict[str, ValueType] = {
    "string": _text("string"),
    "bool": _scalar(scalar_decoders.decode_bool, "bool", False, "boolean"),
    "int32": _scalar(scalar_decoders.integer_decoder(32), "int32", 0, "integer int32"),
    "int64": _scalar(scalar_decoders.integer_decoder(64), "int64", 0, "integer int64"),
    "float64": _scalar(scalar_decoders.decode_float64, "float64", 0, "number double"),
    "bytes": _scalar(scalar_decoders.decode_bytes, "[]uint8", None, "string byte"),
    # Structs that Go omits or writes as null are marked in the notation.
    "Quantity": _scalar(_exact_quantity, "resource.Quantity", "0", _QUANTITY, plain=False),
    "roundedQuantity": _scalar(_quantity, "resource.Quantity", "0", _QUANTITY, plain=False),
    "Time": _scalar(_time, "v1.Time", None, "string date-time", plain=False),
    "MicroTime": _scalar(_micro_time, "v1.MicroTime", None, "string date-time", plain=False),
    "IntOrString": _scalar(
        scalar_decoders.decode_int_or_string, "intstr.IntOrString", 0, _INT_OR_STRING, plain=False
    ),
    "JSON": _scalar(_any, _raw, None, {}, plain=False),
    "Object": _scalar(_any, _raw, None, "object", plain=False),
}
CACHED_STRUCTS = {"core/v1.PodSpec"}


class TypeTables:
    """All types, by package and name."""

    def __init__(self) -> None:
        self._lines: dict[str, tuple[str, list[str]]] = {}
        self._aliases: dict[str, tuple[str, str]] = {}
        self._structs: dict[str, StructType] = {}
        self._hooks: dict[str, Any] = {}

    def read(self, package: str, text: str) -> None:
        """Parse the types of a package; raises ValueError for an invalid line."""
        body: list[str] | None = None
        for line in text.splitlines():
            if not line.strip():
                continue
            if line.startswith(" "):
                if body is None:
                    raise ValueError(f"types of {package}: field {line!r} outside a type")
                body.append(line.strip())
            elif " = " in line:
                names, _, target = line.partition(" = ")
                for name in names.split():
                    self._aliases[f"{package}.{name}"] = (package, target.strip())
                body = None
            else:
                name, _, about = line.partition(" -- ")
                body = []
                self._lines[f"{package}.{name.strip()}"] = (about.strip(), body)

    def extended(self) -> TypeTables:
        """A copy, to which types can be added without changing this one."""
        made = TypeTables()
        made._lines, made._aliases = dict(self._lines), dict(self._aliases)
        made._structs, made._hooks = dict(self._structs), dict(self._hooks)
        return made

    def hook(self, full_name: str, hook: Any) -> None:
        """Set the function for those defaults of a type that depend on other fields."""
        if full_name not in self._lines:
            raise ValueError(f"defaults for {full_name}: unknown type")
        self._hooks[full_name] = hook

    def names(self) -> Iterable[str]:
        """Every struct, as `package.Name`."""
        return self._lines

    def struct(self, full_name: str) -> StructType:
        """The compiled type of a full name (`core/v1.Pod`); raises KeyError for an unknown one."""
        made = self._structs.get(full_name)
        if made is not None:
            return made
        about, lines = self._lines[full_name]
        package, _, name = full_name.rpartition(".")
        kind = CachedStructType if full_name in CACHED_STRUCTS else StructType
        made = self._structs[full_name] = kind(package, name)
        made.about = about
        made.hook = self._hooks.get(full_name)
        for line in lines:
            for one in self._fields(package, line):
                made.fields[one.name] = one
        made.compile()
        return made

    def _fields(self, package: str, line: str) -> list[StructField]:
        if line.startswith("+"):
            within = self.struct(self._find(package, line[1:]))
            return list(within.fields.values())
        text, _, about = line.partition(" -- ")
        name, written, *marks = text.split()
        pointer, always = "?" in written, "!" in written
        value = self._value(package, written.rstrip("?!z"))
        one = StructField(name, value, pointer, always, always, about=about.strip())
        # Structs that Go holds by value are always written, unless marked z (omitzero).
        if not value.plain and not pointer and "z" not in written[-2:]:
            one.always = True
        for mark in marks:
            if mark.startswith("~"):
                strategies, _, one.key = mark[1:].partition(":")
                one.strategies = tuple(strategies.split(","))
            elif mark.startswith("="):
                one.default = _default(mark[1:])
            else:
                raise ValueError(
                    f"types of {package}: {line!r}: invalid mark {mark!r}: expected ~... or =..."
                )
        return [one]

    def _find(self, package: str, name: str) -> str:
        if "." in name:
            home, _, name = name.partition(".")
            return f"{home}/v1.{name}"
        for home in (package, "meta/v1"):
            full = f"{home}.{name}"
            if full in self._lines or full in self._aliases:
                return full
        raise ValueError(f"types of {package}: unknown type {name!r}")

    def _value(self, package: str, written: str) -> ValueType:
        if written.startswith("["):
            return list_type(self._value(package, written[1:-1]))
        if written.startswith("{"):
            return map_type(self._value(package, written[1:-1]))
        if written in _SCALARS:
            return _SCALARS[written]
        if written.endswith("|bool"):
            return _struct_or_bool(self._value(package, written.removesuffix("|bool")))
        full = self._find(package, written)
        if full in self._aliases:
            return self._alias(full)
        made = self._structs.get(full) or self.struct(full)
        # A recursive type is not compiled yet; its method `decode` is bound.
        schema = {"$ref": f"#/components/schemas/{openapi_name(full)}"}
        return ValueType(made.decode, made.go, made.zero, False, made, openapi=schema)

    def _alias(self, full: str) -> ValueType:
        package, target = self._aliases[full]
        home, _, name = full.rpartition(".")
        go = f"{home.rpartition('/')[2]}.{name}"
        if target == "string":
            return _text(go)
        item = self._value(package, target[1:-1])
        return list_type(item, go) if target.startswith("[") else map_type(item, go)


def _struct_or_bool(within: ValueType) -> ValueType:

    def decode(value: Any, at: scalar_decoders.FieldLocation, sink: Any) -> Any:
        return value if value is True or value is False else within.decode(value, at, sink)

    return ValueType(decode, within.go, lambda: None, False, within.shape, openapi={})


def _default(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def openapi_name(full_name: str) -> str:
    """`io.k8s.api.core.v1.Pod` of `core/v1.Pod`."""
    package, _, name = full_name.rpartition(".")
    group, _, version = package.partition("/")
    if group == "meta":
        return f"io.k8s.apimachinery.pkg.apis.meta.{version}.{name}"
    if group == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}"
    return f"io.k8s.api.{group}.{version}.{name}"
