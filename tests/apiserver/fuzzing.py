"""Bodies made from the tables of types: one list or map of a kind filled with many items, or one
value replaced by something that nobody means.

What is around the chosen place is as little as decoding asks for, so most of it is refused by
validation: which is where the time of a request goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stowplan.apis.machinery.resource import Resource
from stowplan.apis.schema.struct_types import StructField, StructType, ValueType

Tree = dict[str, Any]

DEPTH_MAX = 10
WORDS = {
    "operator": ("In", "Exists", "Equal", "NotIn"),
    "effect": ("NoSchedule", "NoExecute"),
    "protocol": ("TCP", "UDP"),
    "whenUnsatisfiable": ("DoNotSchedule",),
    "restartPolicy": ("Always",),
    "dnsPolicy": ("ClusterFirst",),
    "type": ("Pod", "Container", "NodePort", "Ready"),
    "scopeName": ("Terminating", "BestEffort"),
    "scopes": ("Terminating", "BestEffort", "wrong"),
    "ip": ("10.1.2.3", "fe80::1"),
    "kind": ("ServiceAccount", "User", "Node"),
    "apiVersion": ("v1", "apps/v1"),
    "apiGroup": ("rbac.authorization.k8s.io",),
    "action": ("FailJob", "Count"),
    "accessModes": ("ReadWriteOnce", "ReadWriteOncePod"),
    "ipFamilies": ("IPv4", "IPv6"),
    "fieldPath": ("metadata.name",),
    "schedule": ("* * * * *",),
    "jsonPath": (".spec.a",),
}
SCALARS: dict[str, Any] = {
    "bool": True,
    "resource.Quantity": "1",
    "v1.Time": "2001-01-01T00:00:00Z",
    "v1.MicroTime": "2001-01-01T00:00:00.000000Z",
    "[]uint8": "eA==",
    "runtime.RawExtension": {"a": 1},
}


class Target(NamedTuple):
    """A list or map of a kind. steps: fields on the way, the last one is it."""

    resource: Resource
    steps: tuple[StructField, ...]

    @property
    def path(self) -> str:
        """`pods: spec.containers.ports`."""
        return f"{self.resource.path}: {'.'.join(step.name for step in self.steps)}"

    def body(self, count: int, alike: bool) -> Tree:
        """An object with `count` items there. alike: all the same."""
        return self._around(many(self.steps[-1], count, alike))

    def with_value(self, value: Any) -> Tree:
        """An object with `value` there."""
        return self._around(value)

    def _around(self, value: Any) -> Tree:
        for at in range(len(self.steps) - 1, -1, -1):
            step = self.steps[at]
            if at < len(self.steps) - 1:
                value = (
                    [value] if step.value.is_list else {"x": value} if step.value.is_map else value
                )
            owner = self.steps[at - 1].value.shape if at else struct_of(self.resource)
            assert owner is not None
            value = {**filled(owner, 0), step.name: value}
        meta = {"name": "x", **value.get("metadata", {})}
        kind, version = self.resource.kind, self.resource.api_version
        return {**value, "kind": kind, "apiVersion": version, "metadata": meta}


def struct_of(resource: Resource) -> StructType:
    """The type of a built-in kind."""
    struct = getattr(resource.schema, "struct", None)
    assert isinstance(struct, StructType), resource.path
    return struct


def targets(resource: Resource, scalars: bool = False) -> list[Target]:
    """Every list and map of a kind, each type entered once on a way. scalars: the rest instead."""
    wanted = (one for one in _walk(struct_of(resource), (), ()))
    return [
        Target(resource, steps)
        for steps in wanted
        if scalars != (steps[-1].value.is_list or steps[-1].value.is_map)
        and not (scalars and steps[-1].value.shape is not None)
    ]


def _walk(
    struct: StructType, steps: tuple[StructField, ...], within: tuple[StructType, ...]
) -> Iterator[tuple[StructField, ...]]:
    if struct in within or len(steps) >= DEPTH_MAX:
        return
    for one in struct.fields.values():
        if one.name == "managedFields":
            continue
        yield (*steps, one)
        if one.value.shape is not None:
            yield from _walk(one.value.shape, (*steps, one), (*within, struct))


def many(field: StructField, count: int, alike: bool) -> Any:
    """A list or map of so many items."""
    value = field.value
    item = value.item or value
    numbers = [0] * count if alike else range(count)
    if value.is_list:
        return [_item(field.name, item, n) for n in numbers]
    return {f"x{n}": _item(field.name, item, n) for n in range(count)}


def _item(name: str, value: ValueType, number: int) -> Any:
    if value.shape is not None and not (value.is_list or value.is_map):
        return filled(value.shape, number, whole=True)
    return scalar(name, value, number)


def filled(struct: StructType, number: int, whole: bool = False, depth: int = 0) -> Tree:
    """A value of a type. whole: every plain field; else what is required."""
    made: Tree = {}
    for one in struct.fields.values():
        value = one.value
        if one.name == "managedFields" or not (whole or one.required):
            continue
        if value.is_list or value.is_map:
            if one.required and depth < 3:
                made[one.name] = many(one, 1, alike=True)
        elif value.shape is None:
            made[one.name] = scalar(one.name, value, number)
        elif one.required and depth < 6:
            made[one.name] = filled(value.shape, number, depth=depth + 1)
    return made


def scalar(name: str, value: ValueType, number: int) -> Any:
    """A plain value."""
    if value.go in SCALARS:
        return SCALARS[value.go]
    if value.go.startswith(("int", "float")) and value.go != "intstr.IntOrString":
        return number % 1000 + 1
    if name in WORDS:
        return WORDS[name][number % len(WORDS[name])]
    return f"x{number}"
