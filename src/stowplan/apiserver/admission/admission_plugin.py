"""What admission plugins share: a base class, lookups, and the error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stowplan.apis.machinery.errors import ApiError, forbidden
from stowplan.apis.machinery.resource import AdmissionPlugin, ApiCall, ObjectClient
from stowplan.objects.encoding.tree import Tree


class AdmissionPluginBase:
    """An admission plugin that admits everything unchanged."""

    repeatable: bool = False
    """What it does follows from the write and from what it reads through `call.objects`."""
    paths: tuple[str, ...] = ()
    """The resource paths at whose writes it looks; () for all."""
    only_objects: bool = False
    """It does not look at writes of subresources."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Change nothing."""

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Reject nothing."""


AdmissionHook = Callable[[ApiCall, Tree | None, Tree | None], None]


def hooks_of(
    plugins: Sequence[AdmissionPlugin], path: str, subresource: str
) -> tuple[list[AdmissionHook], list[AdmissionHook]]:
    """`admit` and `validate` of the plugins that do something at writes of a resource."""
    found: tuple[list[AdmissionHook], list[AdmissionHook]] = [], []
    for plugin in plugins:
        looked_at = getattr(plugin, "paths", ())
        only_objects = subresource and getattr(plugin, "only_objects", False)
        if only_objects or (looked_at and path not in looked_at):
            continue
        for at, name in enumerate(("admit", "validate")):
            if getattr(type(plugin), name, None) is not getattr(AdmissionPluginBase, name):
                found[at].append(getattr(plugin, name))
    return found


def targets(call: ApiCall, path: str) -> bool:
    """True for an operation on the objects of this resource path themselves."""
    return not call.subresource and call.resource.path == path


def typed(obj: Tree, call: ApiCall) -> Tree:
    """The object in the version of the request."""
    return {**obj, "apiVersion": call.resource.api_version, "kind": call.resource.kind}


def admission_forbidden(call: ApiCall, obj: Tree | None, why: str) -> ApiError:
    """403 that names the object, or its generateName while it has no name."""
    meta = (obj or {}).get("metadata") or {}
    name = meta.get("name") or meta.get("generateName") or call.name
    return forbidden(call.resource.group, call.resource.plural, name, why)


def stored_object(call: ApiCall, path: str, namespace: str, name: str) -> Tree | None:
    """An object of another kind, or None. It must not be changed."""
    resource = call.objects.registry.by_path(path)
    return None if resource is None else call.objects.peek(resource, namespace, name)


def stored_objects(call: ApiCall, path: str) -> Iterator[Tree]:
    """All objects of another kind. They must not be changed."""
    resource = call.objects.registry.by_path(path)
    if resource is not None:
        yield from call.objects.peek_all(resource)


class ObjectsByNamespace:
    """Objects of one kind by namespace, read again after a write of the kind.

    A lookup without a write since the last costs one call of `n_writes`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[str, list[Tree]] = {}
        self._objects: ObjectClient | None = None
        self._n_writes = 0

    def of(self, call: ApiCall, namespace: str) -> list[Tree]:
        """The objects of a namespace, by name. They must not be changed."""
        n_writes = call.objects.n_writes(self._path)
        if self._objects is not call.objects or self._n_writes != n_writes:
            self._found = {}
            for each in stored_objects(call, self._path):
                self._found.setdefault(each["metadata"].get("namespace", ""), []).append(each)
            self._objects, self._n_writes = call.objects, n_writes
        return self._found.get(namespace, [])
