"""Objects of resource.k8s.io/v1beta1 and v1beta2 as objects of v1.

kube-apiserver 1.36 serves these versions only with `--runtime-config`, so they
are read from files and not served. v1beta2 has the fields of v1. In v1beta1 a request has the
fields of `exactly` itself, and a device has its own below `basic`.

Source: kubernetes v1.36, pkg/apis/resource/v1beta1/conversion.go.
"""

from __future__ import annotations

from typing import Any

from stowplan.objects.encoding.tree import Tree

V1 = "resource.k8s.io/v1"
_V1BETA1, _V1BETA2 = f"{V1}beta1", f"{V1}beta2"
_KINDS = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
_EXACTLY = (
    "deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations",
    "capacity",
)  # fmt: skip


def as_v1(tree: Tree) -> Tree:
    """An object as one of v1; any other object is returned as it is. Parts of another form than
    the version has are left to validation."""
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if version not in (_V1BETA1, _V1BETA2) or kind not in _KINDS:
        return tree
    found = {**tree, "apiVersion": V1}
    if version == _V1BETA1:
        if kind == "ResourceClaim":
            _change(found, ("spec", "devices"), "requests", _request)
        elif kind == "ResourceClaimTemplate":
            _change(found, ("spec", "spec", "devices"), "requests", _request)
        elif kind == "ResourceSlice":
            _change(found, ("spec",), "devices", _device)
    return found


def _change(tree: Tree, path: tuple[str, ...], name: str, change: Any) -> None:
    """Change each entry of a list; the objects on the way to it are copied."""
    for step in path:
        inner = tree.get(step)
        if not isinstance(inner, dict):
            return
        tree[step] = tree = dict(inner)
    entries = tree.get(name)
    if isinstance(entries, list):
        tree[name] = [change(one) if isinstance(one, dict) else one for one in entries]


def _request(before: Tree) -> Tree:
    exactly = {name: before[name] for name in _EXACTLY if name in before}
    if not exactly or "exactly" in before:
        return before
    rest = {name: value for name, value in before.items() if name not in exactly}
    return {**rest, "exactly": exactly}


def _device(before: Tree) -> Tree:
    basic = before.get("basic")
    if not isinstance(basic, dict):
        return before
    rest = {name: value for name, value in before.items() if name != "basic"}
    return {**rest, **basic}
