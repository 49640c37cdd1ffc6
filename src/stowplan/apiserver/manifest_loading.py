"""Loads the objects of manifests into a cluster, dependencies first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from stowplan.apis.machinery.errors import ApiError, BodyDecodeError
from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.tree import Tree

_KINDS_FIRST = (
    "CustomResourceDefinition",
    "Namespace",
    "ServiceAccount",
    "PriorityClass",
    "StorageClass",
    "Node",
)
"""Kinds that others depend on, in order of creation; the others follow in file order."""
_SERVER_FIELDS = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
)  # fmt: skip


class LoadResult(NamedTuple):
    """The outcome. problems: location and text of each error."""

    created: int
    kept: int
    problems: tuple[tuple[str, str], ...]


def load_manifests(
    server: ApiServer,
    documents: Iterable[tuple[str, Any]],
    now: float,
    *,
    makes_accounts: bool = False,
) -> LoadResult:
    """Create the objects of documents, status included.

    documents: location and tree; lists count as their items. Existing objects are kept; missing
    namespaces are created. makes_accounts: so are missing service accounts that pods name. Unknown
    fields are refused, but in objects that an API server has stored, perhaps a newer one.
    """
    created = kept = 0
    problems: list[tuple[str, str]] = []
    for place, tree in sorted(_items(documents), key=lambda item: _load_order(item[1])):
        try:
            if makes_accounts:
                _ensure_account(server, tree, now)
            if _create(server, tree, now):
                created += 1
            else:
                kept += 1
        except ApiError as refused:
            problems.append((place, refused.message))
        except BodyDecodeError as wrong:
            problems.append((place, f"{_title(tree)}: {wrong}"))
    return LoadResult(created, kept, tuple(problems))


def _title(tree: Tree) -> str:
    """An object that cannot be decoded, as far as it says what it is."""
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return f'{tree.get("kind")} "{name}"' if isinstance(name, str) else str(tree.get("kind"))


def _items(documents: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tree]]:
    for place, tree in documents:
        if not isinstance(tree, dict):
            yield place, {}
        elif isinstance(tree.get("items"), list) and str(tree.get("kind", "")).endswith("List"):
            kind = str(tree["kind"]).removesuffix("List")
            for number, item in enumerate(tree["items"]):
                own = {"apiVersion": tree.get("apiVersion"), "kind": kind} if kind else {}
                items = own | item if isinstance(item, dict) else {}
                yield f"{place}.items[{number}]", items
        else:
            yield place, tree


def _load_order(tree: Tree) -> int:
    kind = tree.get("kind")
    return _KINDS_FIRST.index(kind) if kind in _KINDS_FIRST else len(_KINDS_FIRST)


def _create(server: ApiServer, tree: Tree, now: float) -> bool:
    """True if it was created, False if it exists. Raises ApiError."""
    resource = _resource(server, tree)
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        raise ApiError(400, "BadRequest", "metadata: Required value")
    fresh = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    namespace = str(metadata.get("namespace") or "default") if resource.namespaced else ""
    if namespace:
        _ensure_namespace(server, namespace, now)
        fresh["namespace"] = namespace
    name = fresh.get("name")
    if name and server.get(resource, namespace, str(name)) is not None:
        return False
    is_stored = bool(metadata.get("uid") or metadata.get("resourceVersion"))
    made = server.create(
        resource, {**tree, "metadata": fresh}, now, namespace, strict=not is_stored
    )
    if tree.get("status") and "status" in resource.subresources:
        server.update_status(resource, made | {"status": tree["status"]}, now)
    return True


def _resource(server: ApiServer, tree: Tree) -> Resource:
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise ApiError(400, "BadRequest", "apiVersion and kind: Required value")
    group, _, version = version.rpartition("/")
    resource = server.registry.by_kind(group, version, kind)
    if resource is None:
        printed = f"{group}/{version}" if group else version
        raise ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{printed}"')
    return resource


def _ensure_account(server: ApiServer, tree: Tree, now: float) -> None:
    """Create the service account of a pod, or of a template's pods: dumps rarely have them."""
    accounts = server.registry.by_kind("", "v1", "ServiceAccount")
    spec = _pod_spec(tree)
    metadata = tree.get("metadata")
    if spec is None or accounts is None or not isinstance(metadata, dict):
        return
    namespace = str(metadata.get("namespace") or "default")
    name = str(spec.get("serviceAccountName") or "default")
    _ensure_namespace(server, namespace, now)
    if server.get(accounts, namespace, name) is None:
        server.create(accounts, {"metadata": {"name": name}}, now, namespace)


_TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "CronJob": ("jobTemplate", "spec", "template", "spec"),
}
"""Where kinds have the spec of a pod, below `spec`; others have it in `template`."""


def _pod_spec(tree: Tree) -> Tree | None:
    """The spec of a pod or of the pods of a template."""
    found = tree
    for field in ("spec", *_TEMPLATES.get(str(tree.get("kind")), ("template", "spec"))):
        inner: Any = found.get(field)
        if not isinstance(inner, dict):
            return None
        found = inner
    return found


def _ensure_namespace(server: ApiServer, name: str, now: float) -> None:
    namespaces = server.registry.by_kind("", "v1", "Namespace")
    if namespaces is not None and server.get(namespaces, "", name) is None:
        server.create(namespaces, {"metadata": {"name": name}}, now)
