"""Nodes and namespaces: what a write may change and what is valid.

Source: kubernetes v1.36, pkg/registry/core/{node,namespace}/strategy.go, pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.core.pod_lifecycle import node_annotation_problems
from stowplan.apis.kind.strategy import restore_field
from stowplan.apis.machinery.errors import Cause, duplicate, forbidden_field, invalid
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.validation import field_checks, resource_requirements

Tree = dict[str, Any]

_FEATURE = re.compile(r"([A-Z][A-Za-z0-9]*)(/[A-Za-z0-9]+)*")
_CIDR_ONCE = 'node updates may not change podCIDR except from "" to valid'


class NodeStrategy(ResourceStrategy):
    """Nodes themselves."""

    storage_path = "minions"

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["spec"].pop("configSource", None)
        obj["status"].pop("config", None)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        if "configSource" not in old["spec"]:
            new["spec"].pop("configSource", None)

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        spec = obj["spec"]
        yield from pod_scheduling.taints(spec.get("taints", []), "metadata.taints")
        yield from _amounts(obj)
        yield from _features(obj["status"].get("declaredFeatures", []))
        cidrs = spec.get("podCIDRs", [])
        for at, value in enumerate(cidrs):
            yield from field_checks.network(value, f"spec.podCIDRs[{at}]")
        if len(cidrs) > 1 and (len(cidrs) > 2 or len({":" in one for one in cidrs}) != 2):
            text = "may specify no more than one CIDR for each IP family"
            yield invalid("spec.podCIDRs", cidrs, text)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from self.validate(new, call)
        yield from node_update(new, old)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        if "configSource" in obj["spec"]:
            yield "spec.configSource: the feature is removed"
        if obj["spec"].get("externalID"):
            yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
        for text in node_annotation_problems(obj["metadata"].get("annotations") or {}):
            yield f"metadata.annotations: {text}"


class NodeStatusStrategy(ResourceStrategy):
    """`nodes/status`."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        if "config" not in old["status"]:
            new["status"].pop("config", None)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return node_update(new, old)


def node_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """What may not change in a node."""
    spec, before = new["spec"], old["spec"]
    yield from _amounts(new)
    yield from _features(new["status"].get("declaredFeatures", []))
    seen: set[tuple[str, str]] = set()
    for at, one in enumerate(new["status"].get("addresses", ())):
        pair = (one["type"], one["address"])
        if pair in seen:
            shown = {"Type": one["type"], "Address": one["address"]}
            yield duplicate(f"status.addresses[{at}]", shown)
        seen.add(pair)
    cidrs, were = spec.get("podCIDRs", []), before.get("podCIDRs", [])
    if were and len(cidrs) != len(were):
        yield forbidden_field("spec.podCIDRs", _CIDR_ONCE)
    elif were:
        for value, was in zip(cidrs, were, strict=True):
            if value != was:
                yield forbidden_field("spec.podCIDRs", _CIDR_ONCE)
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden_field("spec.providerID", text)
    yield from pod_scheduling.taints(spec.get("taints", []), "metadata.taints")
    if spec.get("externalID", "") != before.get("externalID", ""):
        yield forbidden_field("spec.externalID", "may not be updated")


def _amounts(node: Tree) -> Iterator[Cause]:
    for which in ("capacity", "allocatable"):
        for name, value in sorted(node["status"].get(which, {}).items()):
            yield from resource_requirements.validate_resource_quantity(
                name, value, f"status.{which}.{name}"
            )


def _features(given: list[str]) -> Iterator[Cause]:
    for at, name in enumerate(given):
        if not _FEATURE.fullmatch(name):
            text = (
                f"invalid feature name {field_checks.quoted(name)}: must start "
                "with an UpperCamelCase segment, with subsequent segments separated by '/' "
                "(e.g., MyFeature or MyFeature/mySubFeature), and contain only "
                "alphanumeric characters and slashes"
            )
            yield invalid(f"status.declaredFeatures[{at}]", name, text)
        if at + 1 < len(given):
            here = f"status.declaredFeatures[{at + 1}]"
            if name == given[at + 1]:
                yield duplicate(here, name)
            elif name > given[at + 1]:
                yield invalid(here, given[at + 1], "list must be sorted alphabetically")


class NamespaceStrategy(ResourceStrategy):
    """Namespaces: they keep a finalizer of their own until they are empty."""

    returns_deleted = True
    lingers = True

    def name_problems(self, name: str, prefix: bool) -> list[str]:
        return label_problems(name, prefix)

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        new["spec"] = dict(old["spec"])
        restore_field(new, old, "status")

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        for name in obj["spec"].get("finalizers", ()):
            yield from _finalizer(name)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return ()

    def canonicalize(self, obj: Tree) -> None:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def begin_delete(self, obj: Tree, call: ApiCall) -> None:
        obj["status"]["phase"] = "Terminating"

    def held(self, obj: Tree) -> bool:
        return bool(obj["spec"].get("finalizers"))


class NamespaceStatusStrategy(ResourceStrategy):
    """`namespaces/status`."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        phase = new["status"].get("phase", "")
        if old["metadata"].get("deletionTimestamp"):
            if phase != "Terminating":
                text = "may only be 'Terminating' if `deletionTimestamp` is not empty"
                yield invalid("status.Phase", phase, text)
        elif phase != "Active":
            text = "may only be 'Active' if `deletionTimestamp` is empty"
            yield invalid("status.Phase", phase, text)


def _finalizer(name: str, path: str = "spec.finalizers") -> Iterator[Cause]:
    wrong = list(field_checks.qualified_name(name, path))
    yield from wrong
    if not wrong and "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        yield invalid(
            path, name, "name is neither a standard finalizer name nor is it fully qualified"
        )
