"""The embedded API server's rules for objects to be created, applied to single objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from stowplan.cluster import meta as metadata
from stowplan.cluster.errors import ApiError, Cause
from stowplan.cluster.registry import built_in
from stowplan.cluster.resource import Call, Resource
from stowplan.cluster.schema.scalars import At, WrongType, path_of
from stowplan.cluster.schema.shapes import Sink, Struct
from stowplan.cluster.wire import User
from stowplan.framework.problems import did_you_mean
from stowplan.sim.importers.schema import structs

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer

Tree = dict[str, Any]
Said = tuple[str, str]
"""Path, text; a path of "" where the text names it."""

_DEPTH = 3
"""How deep a misplaced field is looked for."""
_PREFIX = 'unknown field "'


class Rules:
    """What the API server says of objects."""

    def __init__(self) -> None:
        self._resources = built_in()
        self._imported = structs()
        self._empty = _EmptyServer()

    def mistakes(self, tree: Tree) -> Iterator[Said]:
        """What is wrong with an object; nothing for kinds and versions that are not known."""
        version, kind = str(tree.get("apiVersion", "")), str(tree.get("kind", ""))
        group, _, name = version.rpartition("/")
        resource = self._resources.by_kind(group, name, kind)
        imported = self._imported.get((version, kind))
        if resource is not None:
            yield from self._of_resource(resource, tree)
        elif imported is not None:
            yield from _decoded(imported, tree)[1]

    def _of_resource(self, resource: Resource, tree: Tree) -> Iterator[Said]:
        struct = resource.schema.shape
        if not isinstance(struct, Struct):
            return
        made, said = _decoded(struct, tree)
        yield from said
        if made is not None:
            for cause in self._causes(resource, made):
                yield cause.field, cause.message

    def _causes(self, resource: Resource, obj: Tree) -> list[Cause]:
        meta = obj.setdefault("metadata", {})
        namespace = meta.get("namespace") or "default"
        metadata.wipe(meta)
        meta.pop("resourceVersion", None)
        metadata.place(meta, namespace if resource.namespaced else "")
        if meta.get("generateName") and not meta.get("name"):
            meta["name"] = f"{meta['generateName']}x"
        call = Call(
            cast("ApiServer", self._empty), _NOBODY, "create", resource, meta.get("namespace", "")
        )
        strategy = resource.strategy
        found = list(metadata.problems(meta, resource.namespaced, strategy.name_problems))
        try:
            strategy.prepare_create(obj, call)
            found += strategy.validate(obj, call)
        except ApiError as refused:
            found.append(Cause("", refused.reason, refused.message))
        return found


_NOBODY = User("")


@dataclass
class _EmptyServer:
    """As much of a server as the rules ask for: one that stores nothing."""

    # For addresses and ports that are given out.
    dice: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def list(self, resource: Resource) -> list[Tree]:
        """No objects."""
        return []


def _decoded(struct: Struct, tree: Tree) -> tuple[Tree | None, list[Said]]:
    """The object as the server decodes it, None where it cannot, and what there is to say."""
    sink = _Fields(struct)
    try:
        made: Tree = struct.decode(tree, None, sink)
    except WrongType as problem:
        return None, [("", text) for text in (*sink.texts, str(problem))]
    except RecursionError:
        return None, []
    return made, [("", text) for text in sink.texts]


class _Fields(Sink):
    """Collects unknown fields with a guess of what was meant."""

    __slots__ = ("struct",)

    def __init__(self, struct: Struct) -> None:
        super().__init__()
        self.struct = struct

    def unknown(self, at: At) -> None:
        """Note a field that its type does not have."""
        text = f'{_PREFIX}{path_of(at)}"'
        hint = self._hint(at)
        self.texts[f'{text} (did you mean "{hint}"?)' if hint else text] = None

    def _hint(self, at: At) -> str:
        """A field of that name's like beside it, or the path of one above or below."""
        steps: list[Any] = []
        while at is not None:
            outer, step, _ = at
            steps.append(step)
            at = outer
        steps.reverse()
        types = _types_along(self.struct, steps[:-1])
        name = str(steps[-1])
        here = types[-1]
        if here is None:
            return ""
        near = _near(name, here)
        if near:
            return near
        for depth in range(len(types) - 2, -1, -1):
            above = types[depth]
            if above is not None and name in above.fields:
                return path_of(_chain([*steps[:depth], name]))
        below = _below(here, name, _DEPTH)
        return path_of(_chain([*steps[:-1], *below])) if below else ""


def _near(name: str, struct: Struct) -> str:
    text = did_you_mean(name, struct.fields)
    return text.removeprefix("did you mean '").removesuffix("'?")


def _types_along(struct: Struct, steps: list[Any]) -> list[Struct | None]:
    """The types from the object down to where the steps lead; None where there is no struct."""
    types: list[Struct | None] = [struct]
    for step in steps:
        here = types[-1]
        if isinstance(step, str):
            one = here.fields.get(step) if here is not None else None
            types.append(one.value.shape if one is not None else None)
        else:
            types.append(here)
    return types


def _below(struct: Struct, name: str, depth: int) -> list[str]:
    """The names down to a field, through structs only; the shallowest."""
    level: list[tuple[list[str], Struct]] = [([], struct)]
    for _ in range(depth):
        following: list[tuple[list[str], Struct]] = []
        for path, here in level:
            for one in here.fields.values():
                value = one.value
                if value.shape is not None and not value.is_list and not value.is_map:
                    if name in value.shape.fields:
                        return [*path, one.name, name]
                    following.append(([*path, one.name], value.shape))
        level = following
    return []


def _chain(steps: list[Any]) -> At:
    at: At = None
    for step in steps:
        at = (at, step, "")
    return at
