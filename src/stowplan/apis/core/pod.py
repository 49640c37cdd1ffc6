"""Pod. Its spec is validated in `pod_spec`, its types are in `pod_types` and `volume_types`.

Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go, pkg/apis/core/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from stowplan.apis.core import pod_scheduling
from stowplan.apis.core.binding import BINDING_SUBRESOURCE
from stowplan.apis.core.pod_defaults import POD_DEFAULTS, set_stored_pod_defaults
from stowplan.apis.core.pod_deletion_cost import deletion_cost
from stowplan.apis.core.pod_qos import cached_qos_class
from stowplan.apis.core.pod_resize import EPHEMERAL_CONTAINERS_SUBRESOURCE, RESIZE_SUBRESOURCE
from stowplan.apis.core.pod_spec import pod_annotations, pod_spec, trimmed_images
from stowplan.apis.core.pod_spec_key import spec_key
from stowplan.apis.core.pod_status import status_update
from stowplan.apis.core.pod_table import PrintedPodTable
from stowplan.apis.core.pod_types import POD_TYPES
from stowplan.apis.core.pod_warnings import pod_warnings
from stowplan.apis.core.volume_types import VOLUME_TYPES
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import (
    restore_field,
    selectable_fields,
    selectable_flag,
    update_generation,
)
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, required
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.policy.eviction import EVICTION_SUBRESOURCE
from stowplan.apis.schema.internal_form import internal_diff
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

T = TypeVar("T")

_CACHED_MAX, _CACHED_BYTES_MAX = 2_000, 16 << 10
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodStrategy(ResourceStrategy):
    """Pod."""

    returns_deleted = True
    repeats = True

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["metadata"]["generation"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": cached_qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            since = {"lastTransitionTime": timestamps.format_time(call.now)}
            obj["status"]["conditions"] = [{**_GATED, **since}]
        _apply_match_label_keys(obj["spec"], obj["metadata"].get("labels", {}))
        _clamp_grace_period(obj["spec"])

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        _clamp_grace_period(new["spec"])
        update_generation(new, old, ("spec",))

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        spec = obj["spec"]
        yield from pod_annotations(obj["metadata"], "metadata.annotations")
        yield from _spec(obj)
        if spec.get("ephemeralContainers"):
            yield forbidden_field("spec.ephemeralContainers", "cannot be set on create")
        if spec.get("nodeName") and spec.get("schedulingGates"):
            text = "cannot be set until all schedulingGates have been cleared"
            yield forbidden_field("spec.nodeName", text)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        # An invalid value that is stored already is accepted.
        if deletion_cost(old["metadata"].get("annotations", {})) is not None:
            yield from pod_annotations(new["metadata"], "metadata.annotations")
        yield from _spec(new)
        yield from _update(new["spec"], old["spec"])

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        if old is not None:
            return
        problems = label_problems(obj["metadata"].get("name", ""))
        if problems:
            yield (
                "metadata.name: this is used in the Pod's hostname, which can result in surprising "
                f"behavior; a DNS label is recommended: [{' '.join(problems)}]"
            )
        if obj["metadata"].get("annotations"):
            yield from pod_warnings(obj["spec"], obj["metadata"])
        else:
            yield from _SPECS_WITHOUT_WARNINGS.seen(
                obj["spec"], pod_warnings(obj["spec"], obj["metadata"])
            )

    def canonicalize(self, obj: Tree) -> None:
        # The original answers with what it reads back, which has defaults for what admission added.
        set_stored_pod_defaults(obj["spec"])

    def grace(self, obj: Tree, delete_options: DeleteOptions, call: ApiCall) -> int | None:
        seconds = delete_options.grace_s
        if seconds is None:
            seconds = obj["spec"].get("terminationGracePeriodSeconds") or 0
        ended = obj["status"].get("phase") in ("Failed", "Succeeded")
        if ended or not obj["spec"].get("nodeName"):
            return 0
        return 1 if seconds < 0 else seconds


class PodStatusStrategy(ResourceStrategy):
    """`pods/status`: written by kubelets and schedulers."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        new["spec"] = old["spec"]
        for name in ("deletionTimestamp", "ownerReferences", "generation"):
            restore_field(new["metadata"], old["metadata"], name)
        status, before = new["status"], old["status"]
        if "qosClass" not in status:
            restore_field(status, before, "qosClass")
        if "observedGeneration" not in status:
            restore_field(status, before, "observedGeneration")
        _keep_generations(status, before)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return status_update(new, old)


def _keep_generations(status: Tree, before: Tree) -> None:
    """A condition without observedGeneration keeps the stored one."""
    known: dict[str, list[int]] = {}
    for one in before.get("conditions", ()):
        known.setdefault(one["type"], []).append(one.get("observedGeneration", 0))
    for one in status.get("conditions", ()):
        generations = known.get(one["type"])
        generation = generations.pop(0) if generations else 0
        if generation and not one.get("observedGeneration"):
            one["observedGeneration"] = generation


class _ValidSpecCache:
    """Cache of valid specs: pods of one template have the same spec."""

    def __init__(self) -> None:
        self._good: set[bytes] = set()

    def seen(self, spec: Tree, faults: Iterator[T]) -> Iterator[T]:
        """The causes of a spec, which depend on it alone; valid specs are not validated again."""
        key = spec_key(spec)
        if len(key) > _CACHED_BYTES_MAX:
            yield from faults
            return
        if key in self._good:
            return
        good = True
        for fault in faults:
            good = False
            yield fault
        if good:
            if len(self._good) >= _CACHED_MAX:
                self._good.clear()
            self._good.add(key)


_VALID_SPECS, _SPECS_WITHOUT_WARNINGS = _ValidSpecCache(), _ValidSpecCache()


def _spec(obj: Tree) -> Iterator[Cause]:
    # With claims of its own the result depends on the pod's name and annotations too.
    spec = obj["spec"]
    if "resourceClaims" in spec or any("ephemeral" in one for one in spec.get("volumes") or ()):
        return _spec_causes(obj)
    return _VALID_SPECS.seen(spec, _spec_causes(obj))


def _spec_causes(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from pod_spec(spec, obj["metadata"], "spec", is_pod=True)
    yield from trimmed_images(spec, "spec")


def _update(new: Tree, old: Tree) -> Iterator[Cause]:
    for kind in ("containers", "initContainers"):
        wrong, stop = _container_update(new.get(kind) or [], old.get(kind) or [], f"spec.{kind}")
        yield from wrong
        if stop:
            return
    wrong, stop = _deadline(new, old)
    yield from wrong
    if stop:
        return
    yield from pod_scheduling.only_added_tolerations(
        new.get("tolerations", []), old.get("tolerations", []), "spec.tolerations"
    )
    yield from pod_scheduling.only_removed_scheduling_gates(
        new.get("schedulingGates", []), old.get("schedulingGates", []), "spec.schedulingGates"
    )
    if new == old:
        return
    munged = _with_allowed_changes_undone(new, old)
    if old.get("schedulingGates"):
        yield from _gated(munged, old)
    if munged != old:
        diff = internal_diff("core/v1.PodSpec", old, munged)
        text = f"pod updates may not change fields other than {_UPDATABLE}\n{diff}"
        yield forbidden_field("spec", text)


def _container_update(new: list[Tree], old: list[Tree], path: str) -> tuple[list[Cause], bool]:
    if len(new) != len(old):
        return [forbidden_field(path, "pod updates may not add or remove containers")], True
    found: list[Cause] = []
    for at, one in enumerate(new):
        image, here = one.get("image", ""), f"{path}[{at}].image"
        if not image:
            found.append(required(here))
        if image != image.strip():
            found.append(invalid(here, image, "must not have leading or trailing whitespace"))
    return found, False


def _deadline(new: Tree, old: Tree) -> tuple[list[Cause], bool]:
    path = "spec.activeDeadlineSeconds"
    given, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if given is None:
        if before is None:
            return [], False
        return [invalid(path, None, "must not update from a positive integer to nil value")], False
    if not 0 <= given <= field_checks.INT32_MAX:
        return [invalid(path, given, field_checks.inclusive(0, field_checks.INT32_MAX))], True
    if before is not None and before < given:
        return [invalid(path, given, "must be less than or equal to previous value")], True
    return [], False


def _with_allowed_changes_undone(new: Tree, old: Tree) -> Tree:
    munged = dict(new)
    for kind in ("containers", "initContainers"):
        if new.get(kind):
            munged[kind] = [
                {**one, "image": before.get("image", "")}
                for one, before in zip(new[kind], old[kind], strict=True)
            ]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        restore_field(munged, old, name)
    grace = "terminationGracePeriodSeconds"
    if old.get(grace, 0) < 0 and munged.get(grace) == 1:
        restore_field(munged, old, grace)
    return munged


def _gated(munged: Tree, old: Tree) -> Iterator[Cause]:
    """Scheduling fields of a gated pod may be narrowed; allowed changes are undone in `munged`."""
    if munged.get("nodeSelector") != old.get("nodeSelector"):
        yield from pod_scheduling.narrowed_node_selector(
            munged.get("nodeSelector", {}), old.get("nodeSelector", {}), "spec.nodeSelector"
        )
        restore_field(munged, old, "nodeSelector")
    before = old.get("affinity", {}).get("nodeAffinity")
    after = munged.get("affinity", {}).get("nodeAffinity")
    if before == after:
        return
    yield from pod_scheduling.narrowed_node_affinity(after, before, "spec.affinity.nodeAffinity")
    affinity = dict(munged.get("affinity", {}))
    affinity.pop("nodeAffinity", None)
    if before is not None:
        affinity["nodeAffinity"] = before
    if affinity or "affinity" in old:
        munged["affinity"] = affinity
    else:
        munged.pop("affinity", None)


def _clamp_grace_period(spec: Tree) -> None:
    """A negative grace period of a pod is set to 1 second; templates keep it."""
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1


def _apply_match_label_keys(spec: Tree, labels: dict[str, str]) -> None:
    """Add matchLabelKeys and mismatchLabelKeys to the label selector beside them."""
    terms: list[Tree] = []
    affinity = spec.get("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind, {})
        weighted = given.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        terms += [one["podAffinityTerm"] for one in weighted]
        terms += given.get("requiredDuringSchedulingIgnoredDuringExecution", ())
    terms += spec.get("topologySpreadConstraints", ())
    for term in terms:
        selector = term.get("labelSelector")
        if selector is None:
            continue
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(name, ()):
                if key in labels:
                    selector.setdefault("matchExpressions", []).append(
                        {"key": key, "operator": operator, "values": [labels[key]]}
                    )


def _pod_ip(pod: Tree) -> str:
    addresses = pod["status"].get("podIPs") or [{}]
    ip: str = addresses[0].get("ip", "")
    return ip


KIND = KindRegistration(
    kind="Pod",
    types=POD_TYPES + VOLUME_TYPES,
    defaults=POD_DEFAULTS,
    strategy=PodStrategy(),
    status=PodStatusStrategy(),
    short_names=("po",),
    categories=("all",),
    table=PrintedPodTable(),
    fields={
        **selectable_fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName"),
        **selectable_fields("spec.serviceAccountName", "status.phase", "status.nominatedNodeName"),
        "spec.hostNetwork": selectable_flag("spec.hostNetwork"),
        "status.podIP": _pod_ip,
        # The original offers it and reads it as empty for every pod.
        "status.podIPs": lambda pod: "",
    },
    subresources=(
        BINDING_SUBRESOURCE,
        EPHEMERAL_CONTAINERS_SUBRESOURCE,
        EVICTION_SUBRESOURCE,
        RESIZE_SUBRESOURCE,
    ),
)
