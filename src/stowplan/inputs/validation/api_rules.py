"""The embedded API server's creation rules, applied to single objects."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np

from stowplan.apis.custom.custom_kinds import custom_struct, custom_type
from stowplan.apis.custom.kai_pod_checks import card_causes
from stowplan.apis.custom.null_items import null_items
from stowplan.apis.custom.open_schema import object_schema
from stowplan.apis.machinery import object_meta as metadata
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.errors import REQUIRED, ApiError, Cause
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.machinery.resource import ApiCall, ObjectClient, Resource
from stowplan.apis.schema.canonical_quantity import ERR_FORMAT_WRONG, ERR_NUMERIC, ERR_SUFFIX
from stowplan.apis.schema.scalar_decoders import FieldLocation, TypeMismatch, format_path
from stowplan.apis.schema.struct_types import StructType, UnknownFields
from stowplan.apiserver.crd.structural_schema import drop_nulls
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.manifests import quantity_error

Tree = dict[str, Any]


class FieldMistake(NamedTuple):
    """A mistake in an object. path: "" where the text names the field. is_warning: an API server
    takes the object and warns. is_unreadable: the value has a wrong type."""

    path: str
    text: str
    is_warning: bool = False
    is_unreadable: bool = False


UNREADABLE_MAX = 100
"""Values of an object that cannot be read, after which it is not looked at further."""
_DEPTH = 3
"""Search depth for misplaced fields."""
_PREFIX = 'unknown field "'


class ApiServerRules:
    """Validates objects by the API server's rules."""

    def __init__(self) -> None:
        self._resources = built_in_registry(workloads=True, device_taint_rules=True)
        # For addresses and ports that are given out.
        self._rng = np.random.default_rng(0)

    def mistakes(self, tree: Tree) -> Iterator[FieldMistake]:
        """Mistakes of an object; none for unknown kinds and versions."""
        version, kind = str(tree.get("apiVersion", "")), str(tree.get("kind", ""))
        group, _, name = version.rpartition("/")
        resource = self._resources.by_kind(group, name, kind)
        struct = custom_struct(version, kind)
        if resource is not None:
            yield from self._of_resource(resource, tree)
        elif struct is not None:
            yield from _of_custom(struct, tree)

    def unreadable(self, tree: Tree) -> list[FieldMistake]:
        """Values of wrong types of an object of another project."""
        struct = custom_struct(str(tree.get("apiVersion", "")), str(tree.get("kind", "")))
        found = [] if struct is None else _custom_decoded(struct, tree).mistakes
        return [one for one in found if one.is_unreadable]

    def without_nulls(self, tree: Tree) -> Tree:
        """An object of another project as a server takes it: without the fields that are null. A
        copy if there is one."""
        struct = custom_struct(str(tree.get("apiVersion", "")), str(tree.get("kind", "")))
        if struct is None or not _has_null(tree):
            return tree
        made = copy.deepcopy(tree)
        drop_nulls(made, object_schema(struct))
        return made

    def _of_resource(self, resource: Resource, tree: Tree) -> Iterator[FieldMistake]:
        struct = resource.schema.shape
        if not isinstance(struct, StructType):
            return
        found = _decoded(struct, tree)
        yield from found.mistakes
        if found.tree is not None:
            causes = (*self._causes(resource, found.tree), *card_causes(found.tree))
            yield from _beside(found, causes)

    def _causes(self, resource: Resource, obj: Tree) -> list[Cause]:
        meta = obj.setdefault("metadata", {})
        namespace = meta.get("namespace") or "default"
        metadata.wipe_system_fields(meta)
        meta.pop("resourceVersion", None)
        metadata.set_namespace(meta, namespace if resource.namespaced else "")
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = f"{meta['generateName']}x"
        call = ApiCall(
            cast(ObjectClient, _EmptyClient()),
            _NO_USER,
            "create",
            resource,
            meta.get("namespace", ""),
            rng=self._rng,
            access=AlwaysAllow(),
        )
        strategy = resource.strategy
        found = list(metadata.metadata_problems(meta, resource.namespaced, strategy.name_problems))
        try:
            strategy.prepare_create(obj, call)
            found += strategy.validate(obj, call)
        except ApiError as refused:
            found.append(Cause("", refused.reason, refused.message))
        return found


def _of_custom(struct: StructType, tree: Tree) -> Iterator[FieldMistake]:
    found = _custom_decoded(struct, tree)
    yield from found.mistakes
    kind = custom_type(str(tree.get("apiVersion")), str(tree.get("kind")))
    if found.tree is not None and kind is not None:
        yield from _beside(found, _of_metadata(found.tree.get("metadata") or {}))
        yield from _beside(found, kind.check(found.tree))
        for text in kind.warn(found.tree):
            yield FieldMistake("", text, is_warning=True)


def _of_metadata(meta: Tree) -> Iterator[Cause]:
    """Causes of the name, labels and annotations of an object of another project. Its namespace is
    not judged: kubectl leaves out one that the kind does not have."""
    given = {key: meta[key] for key in _CHECKED if meta.get(key) is not None}
    yield from metadata.metadata_problems(
        {**given, "namespace": "default"}, True, subdomain_problems
    )


def _beside(found: _DecodedObject, causes: Iterable[Cause]) -> Iterator[FieldMistake]:
    """Causes of an object beside what its decoding has found: what cannot be read, or is there
    under another name, is not missing."""
    for cause in causes:
        is_misspelt = cause.reason == REQUIRED and cause.field in found.meant
        if not is_misspelt and not f"{cause.field}.".startswith(found.unreadable):
            yield FieldMistake(cause.field, cause.message)


_CHECKED = ("name", "generateName", "labels", "annotations")
_NO_USER = User("")


class _NoKinds:
    """A registry in which no kind is found: what depends on other objects is not judged."""

    def find(self, group: str, version: str, plural: str) -> None:
        """No kind."""


class _EmptyClient:
    """As much of `ObjectClient` as validation uses: no objects are stored."""

    registry = _NoKinds()

    def list(self, resource: Resource) -> list[Tree]:
        """No objects."""
        return []


class _DecodedObject(NamedTuple):
    """An object as decoded by the server, None if it cannot be read. unreadable: how paths begin
    that lie in values that it is decoded without. meant: paths of fields that unknown ones
    resemble."""

    tree: Tree | None
    mistakes: list[FieldMistake]
    unreadable: tuple[str, ...]
    meant: frozenset[str]


def _custom_decoded(struct: StructType, tree: Tree) -> _DecodedObject:
    """As `_decoded`, of an object of another project: a null in a list is unreadable."""
    nulls = islice(null_items(struct, tree), UNREADABLE_MAX)
    return _decoded(struct, tree, nulls)


def _has_null(value: Any) -> bool:
    """True for a value with a null somewhere."""
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def _decoded(struct: StructType, tree: Tree, nulls: Iterable[TypeMismatch] = ()) -> _DecodedObject:
    """The object without its unreadable values, each of which is a mistake. nulls: those that are
    unreadable."""
    unreadable = [FieldMistake(format_path(one.at), str(one), is_unreadable=True) for one in nulls]
    made: Tree | None = None
    while True:
        sink = _Fields(struct)
        try:
            made = struct.decode(tree, None, sink)
        except TypeMismatch as problem:
            steps = _steps(problem.at)
            text = _unreadable_text(problem, tree, steps)
            unreadable.append(FieldMistake(_place(steps), text, is_unreadable=True))
            if steps and len(unreadable) < UNREADABLE_MAX:
                tree = _without(tree, steps)
                continue
        except RecursionError:
            pass
        mistakes = [*(FieldMistake("", text) for text in sink.texts), *unreadable]
        starts = (one.path + mark for one in unreadable for mark in ".[")
        return _DecodedObject(made, mistakes, tuple(starts), frozenset(sink.meant))


def _unreadable_text(problem: TypeMismatch, tree: Tree, steps: list[Any]) -> str:
    """The server's text; for a quantity, of which that has no value, the one of typed objects."""
    value: Any = tree
    for step in steps:
        value = value[step if isinstance(step, (int, str)) else step[0]]
    is_text = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    is_quantity = str(problem) in (ERR_FORMAT_WRONG, ERR_NUMERIC, ERR_SUFFIX)
    return (quantity_error(value) if is_quantity and is_text else "") or str(problem)


def _place(steps: list[Any]) -> str:
    """The path in which errors of the reader name a value: keys that are no words in brackets."""
    parts = []
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            key = step if isinstance(step, str) else step[0]
            parts.append(f".{key}" if re.fullmatch(r"[\w-]+", key) else f"[{key!r}]")
    return "".join(parts).removeprefix(".")


def _without(tree: Any, steps: list[Any]) -> Any:
    """A copy of a tree without the value at `steps`; an item of a list becomes null."""
    step, *rest = steps
    key: Any = step if isinstance(step, (int, str)) else step[0]
    made: Any = list(tree) if isinstance(key, int) else dict(tree)
    if rest:
        made[key] = _without(tree[key], rest)
    elif isinstance(key, int):
        made[key] = None
    else:
        del made[key]
    return made


class _Fields(UnknownFields):
    """Collects unknown fields with suggestions. meant: paths of those."""

    __slots__ = ("meant", "struct")

    def __init__(self, struct: StructType) -> None:
        super().__init__()
        self.struct = struct
        self.meant: set[str] = set()

    def unknown(self, at: FieldLocation) -> None:
        """Record an unknown field."""
        text = f'{_PREFIX}{format_path(at)}"'
        hint = self._hint(at)
        self.texts[f'{text} (did you mean "{hint}"?)' if hint else text] = None

    def _hint(self, at: FieldLocation) -> str:
        """A similar field at this level, or the path of the field above or below."""
        steps = _steps(at)
        types = _types_along(self.struct, steps[:-1])
        name = str(steps[-1])
        here = types[-1]
        if here is None:
            return ""
        near = _near(name, here)
        if near:
            self.meant.add(format_path(_chain([*steps[:-1], near])))
            return near
        for depth in range(len(types) - 2, -1, -1):
            above = types[depth]
            if above is not None and name in above.fields:
                return format_path(_chain([*steps[:depth], name]))
        below = _below(here, name, _DEPTH)
        return format_path(_chain([*steps[:-1], *below])) if below else ""


def _steps(at: FieldLocation) -> list[Any]:
    """The steps of a location, from the object down."""
    steps: list[Any] = []
    while at is not None:
        outer, step, _ = at
        steps.append(step)
        at = outer
    return steps[::-1]


def _near(name: str, struct: StructType) -> str:
    text = did_you_mean(name, struct.fields)
    return text.removeprefix("did you mean '").removesuffix("'?")


def _types_along(struct: StructType, steps: list[Any]) -> list[StructType | None]:
    """Types along a path, from the object down; None where there is no struct."""
    types: list[StructType | None] = [struct]
    for step in steps:
        here = types[-1]
        if isinstance(step, str):
            one = here.fields.get(step) if here is not None else None
            types.append(one.value.shape if one is not None else None)
        else:
            types.append(here)
    return types


def _below(struct: StructType, name: str, depth: int) -> list[str]:
    """Path to the shallowest field of a name, through structs only."""
    level: list[tuple[list[str], StructType]] = [([], struct)]
    for _ in range(depth):
        following: list[tuple[list[str], StructType]] = []
        for path, here in level:
            for one in here.fields.values():
                value = one.value
                if value.shape is not None and not value.is_list and not value.is_map:
                    if name in value.shape.fields:
                        return [*path, one.name, name]
                    following.append(([*path, one.name], value.shape))
        level = following
    return []


def _chain(steps: list[Any]) -> FieldLocation:
    at: FieldLocation = None
    for step in steps:
        at = (at, step, "")
    return at
