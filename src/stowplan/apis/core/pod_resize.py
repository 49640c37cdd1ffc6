"""The subresources `resize` and `ephemeralcontainers` of pods.

Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go, pkg/apis/core/validation
(ValidatePodResize, ValidatePodEphemeralContainersUpdate).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.core.pod_deletion_cost import deletion_cost
from stowplan.apis.core.pod_qos import qos_class
from stowplan.apis.core.pod_spec import pod_annotations, pod_spec, trimmed_images
from stowplan.apis.kind.strategy import METADATA_RESET_FIELDS, restore_field, update_generation
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy, Subresource
from stowplan.apis.schema.internal_form import internal_diff
from stowplan.objects.encoding.tree import Tree

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_CONTAINER_FIELDS = ("containers", "initContainers")
_RESIZABLE = ("cpu", "memory")
_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"


def _restore(new: Tree, old: Tree) -> None:
    """What neither subresource changes: status and metadata."""
    restore_field(new, old, "status")
    for name in (*METADATA_RESET_FIELDS, "deletionTimestamp", "generation"):
        restore_field(new["metadata"], old["metadata"], name)


def _whole_pod(new: Tree, old: Tree) -> Iterator[Cause]:
    """Annotations and spec, as of a new pod."""
    if deletion_cost(old["metadata"].get("annotations", {})) is not None:
        yield from pod_annotations(new["metadata"], "metadata.annotations")
    yield from pod_spec(new["spec"], new["metadata"], "spec", is_pod=True)
    yield from trimmed_images(new["spec"], "spec")


class PodResizeStrategy(ResourceStrategy):
    """`pods/resize`: changes resources and resizePolicy of containers, and those of the pod."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        spec, before = new["spec"], old["spec"]
        counts = [
            [len(one.get(name) or ()) for name in _CONTAINER_FIELDS] for one in (spec, before)
        ]
        if counts[0] == counts[1]:
            merged = {name: _merged(spec, before, name) for name in _CONTAINER_FIELDS}
            resources = spec.get("resources")
            new["spec"] = {**before, **{key: one for key, one in merged.items() if one}}
            new["spec"].pop("resources", None)
            if resources is not None:
                new["spec"]["resources"] = resources
            _restore(new, old)
        update_generation(new, old, ("spec",))

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        if MIRROR_ANNOTATION in old["metadata"].get("annotations", {}):
            return [forbidden_field("", "static pods cannot be resized")]
        if old["spec"].get("os", {}).get("name") == "windows":
            return [forbidden_field("", "windows pods cannot be resized")]
        found = [*_whole_pod(new, old), *_resize_causes(new, old)]
        if not found and _undone(new["spec"], old["spec"]) != old["spec"]:
            return [forbidden_field("spec", _ONLY_CPU_AND_MEMORY)]
        return found


def _merged(spec: Tree, before: Tree, name: str) -> list[Tree]:
    """The stored containers with new resources; the new ones if their names are not the same."""
    given, stored = spec.get(name) or [], before.get(name) or []
    if [one["name"] for one in given] != [one["name"] for one in stored]:
        return given
    made = []
    for one, was in zip(given, stored, strict=True):
        merged = dict(was)
        for field in ("resources", "resizePolicy"):
            restore_field(merged, one, field)
        made.append(merged)
    return made


def _resize_causes(new: Tree, old: Tree) -> Iterator[Cause]:
    spec, before = new["spec"], old["spec"]
    qos = old["status"].get("qosClass") or qos_class(before)
    if qos != qos_class(spec):
        text = "Pod QOS Class may not change as a result of resizing"
        yield invalid("spec", new["status"].get("qosClass", ""), text)
    running = [one for one in old["status"].get("containerStatuses") or () if _is_running(one)]
    if running and "resources" not in running[0]:
        yield forbidden_field("spec", "Pod running on node without support for resize")
    yield from _pod_level_causes(spec, before)
    if old["status"].get("nodeAllocatableResourceClaimStatuses"):
        yield forbidden_field(
            "spec", "pods with node allocatable resource claims cannot be resized"
        )
    order = list(_order_causes(spec, before))
    yield from order
    if not order:
        yield from _container_causes(spec, before)


def _is_running(status: Tree) -> bool:
    return "running" in (status.get("state") or {})


def _pod_level_causes(spec: Tree, before: Tree) -> Iterator[Cause]:
    resources, was = spec.get("resources"), before.get("resources")
    if not any(one and (one.get("requests") or one.get("limits")) for one in (resources, was)):
        return
    if was is not None and resources is None:
        yield forbidden_field("spec.resources", "pod-level resources cannot be removed")
        return
    for name in ("requests", "limits") if was is not None else ():
        if _removed(resources or {}, was or {}, name):
            text = f"pod-level resource {name} cannot be removed"
            yield forbidden_field(f"spec.resources.{name}", text)
    if _with_cpu_and_memory(resources or {}, was or {}) != (was or {}):
        yield forbidden_field("spec", f"{_ONLY_CPU_AND_MEMORY} at pod-level")


def _order_causes(spec: Tree, before: Tree) -> Iterator[Cause]:
    for field in _CONTAINER_FIELDS:
        names, were = ([one["name"] for one in each.get(field) or ()] for each in (spec, before))
        if len(names) != len(were):
            text = f"{field} may not be added or removed on resize"
            yield forbidden_field(f"spec.{field}", text)
            continue
        for at, (name, was) in enumerate(zip(names, were, strict=True)):
            if name != was:
                text = f"{field} may not be renamed or reordered on resize"
                yield forbidden_field(f"spec.{field}[{at}].name", text)


def _container_causes(spec: Tree, before: Tree) -> Iterator[Cause]:
    pairs = {
        field: list(zip(spec.get(field) or (), before.get(field) or (), strict=True))
        for field in _CONTAINER_FIELDS
    }
    for field in reversed(_CONTAINER_FIELDS):
        for at, (one, was) in enumerate(pairs[field]):
            if field == "initContainers" and not _is_sidecar(was):
                continue
            for name in ("requests", "limits"):
                if _removed(one["resources"], was["resources"], name):
                    here = f"spec.{field}[{at}].resources.{name}"
                    yield forbidden_field(here, f"resource {name} cannot be removed")
    for one, was in pairs["containers"]:
        if _container_undone(one, was) != was:
            yield forbidden_field("spec", _ONLY_CPU_AND_MEMORY)
    for at, (one, was) in enumerate(pairs["initContainers"]):
        if _is_sidecar(one) and _container_undone(one, was) != was:
            text = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden_field(f"spec.initContainers[{at}]", text)
        elif not _is_sidecar(one) and one != was:
            text = "resources for non-sidecar init containers are immutable"
            yield forbidden_field("spec", text)


def _is_sidecar(container: Tree) -> bool:
    return container.get("restartPolicy") == "Always"


def _removed(resources: Tree, before: Tree, name: str) -> bool:
    return not (before.get(name) or {}).keys() <= (resources.get(name) or {}).keys()


def _container_undone(container: Tree, before: Tree) -> Tree:
    """A container with the stored amounts of CPU and memory."""
    return {
        **container,
        "resources": _with_cpu_and_memory(container["resources"], before["resources"]),
    }


def _with_cpu_and_memory(resources: Tree, before: Tree) -> Tree:
    made: Tree = {}
    for name in ("limits", "requests"):
        was = before.get(name) or {}
        kept = {
            key: value
            for key, value in (resources.get(name) or {}).items()
            if key not in _RESIZABLE
        }
        kept |= {key: was[key] for key in _RESIZABLE if key in was}
        if kept:
            made[name] = kept
    return made


def _undone(spec: Tree, before: Tree) -> Tree:
    """The new spec with what a resize may change set back."""
    made = dict(spec)
    for field in _CONTAINER_FIELDS:
        if spec.get(field):
            pairs = zip(spec[field], before.get(field) or (), strict=True)
            made[field] = [
                _container_undone(one, was) if field == "containers" or _is_sidecar(one) else one
                for one, was in pairs
            ]
    restore_field(made, before, "resources")
    return made


class EphemeralContainersStrategy(ResourceStrategy):
    """`pods/ephemeralcontainers`: adds containers for debugging, and changes none."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        added = new["spec"].get("ephemeralContainers")
        new["spec"] = dict(old["spec"])
        new["spec"].pop("ephemeralContainers", None)
        if added:
            new["spec"]["ephemeralContainers"] = added
        _restore(new, old)
        update_generation(new, old, ("spec",))

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        if MIRROR_ANNOTATION in old["metadata"].get("annotations", {}):
            return [forbidden_field("", "static pods do not support ephemeral containers")]
        return [*_whole_pod(new, old), *_ephemeral_causes(new["spec"], old["spec"])]


def _ephemeral_causes(spec: Tree, before: Tree) -> Iterator[Cause]:
    path = "spec.ephemeralContainers"
    given = {one["name"]: one for one in spec.get("ephemeralContainers") or ()}
    for was in before.get("ephemeralContainers") or ():
        now = given.get(was["name"])
        about = f'existing ephemeral containers "{was["name"]}" may not be'
        if now is None:
            yield forbidden_field(path, f"{about} removed\n")
        elif now != was:
            diff = internal_diff("core/v1.EphemeralContainer", was, now)
            yield forbidden_field(path, f"{about} changed\n{diff}")


_VERBS = ("get", "patch", "update")
RESIZE_SUBRESOURCE = Subresource("resize", _VERBS, PodResizeStrategy())
EPHEMERAL_CONTAINERS_SUBRESOURCE = Subresource(
    "ephemeralcontainers", _VERBS, EphemeralContainersStrategy()
)
