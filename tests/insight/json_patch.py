"""RFC 6902 as far as changes use it, written for the tests: add, replace, remove and test."""

from __future__ import annotations

import copy
from typing import Any

Tree = dict[str, Any]


class PatchError(ValueError):
    """An operation that does not apply."""


def patched(document: Tree, operations: list[Tree]) -> Tree:
    """A copy of the document after the operations, in order."""
    result = copy.deepcopy(document)
    for operation in operations:
        _apply(result, operation)
    return result


def _apply(document: Tree, operation: Tree) -> None:
    *parts, last = [
        part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
    ]
    target: Any = document
    for part in parts:
        target = target[int(part)] if isinstance(target, list) else target[part]
    kind = operation["op"]
    if isinstance(target, list):
        at = len(target) if last == "-" else int(last)
        if kind == "add" and 0 <= at <= len(target):
            target.insert(at, operation["value"])
            return
        target[at]
        key: Any = at
    else:
        key = last
        if kind == "add":
            target[key] = operation["value"]
            return
    if kind == "replace":
        target[key]
        target[key] = operation["value"]
    elif kind == "remove":
        del target[key]
    elif kind != "test":
        raise PatchError(f"operation {kind!r}")
    elif target[key] != operation["value"]:
        raise PatchError(f"{operation['path']} is {target[key]!r}, not {operation['value']!r}")


def applied(manifests: list[Tree], objects: list[Tree]) -> list[Tree]:
    """The manifests after the `objects` of one change."""
    result = list(manifests)
    for entry in objects:
        if "manifest" in entry:
            result.append(entry["manifest"])
            continue
        wanted = (entry["apiVersion"], entry["kind"], entry.get("namespace", ""), entry["name"])
        (at,) = [i for i, one in enumerate(result) if _identity(one) == wanted]
        if entry.get("delete"):
            del result[at]
        else:
            result[at] = patched(result[at], entry["patch"])
    return result


def _identity(manifest: Tree) -> tuple[str, str, str, str]:
    meta = manifest["metadata"]
    is_namespaced = manifest["kind"] not in ("Node", "Queue", "ResourceSlice")
    namespace = meta.get("namespace", "default") if is_namespaced else ""
    return manifest["apiVersion"], manifest["kind"], namespace, meta["name"]
