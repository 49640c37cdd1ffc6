"""Deployments, replica sets, stateful sets, daemon sets and their older kin: what is valid.

Source: kubernetes v1.36, pkg/apis/apps/validation/validation.go, pkg/registry/apps,
pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stowplan.apis.core.pod_spec import pod_annotations, pod_spec, trimmed_images
from stowplan.apis.core.pod_warnings import pod_warnings
from stowplan.apis.core.volume_claim_spec import volume_claim_spec
from stowplan.apis.kind import group_tables
from stowplan.apis.kind.strategy import BuiltinStrategy, UpdateCheck
from stowplan.apis.machinery.errors import (
    INVALID,
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
    value_text,
)
from stowplan.apis.machinery.resource import ApiCall, Table
from stowplan.apis.machinery.strconv import NumError, parse_int, saturated_int
from stowplan.apis.validation import field_checks

Tree = dict[str, Any]

_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_TEMPLATE = "spec.template"
_GENERATION = "deprecated.daemonset.template.generation"


class OrphaningStrategy(BuiltinStrategy):
    """A kind whose pods stay when it is deleted without a word about them."""

    orphans_by_default = True


class PodTemplateStrategy(BuiltinStrategy):
    """A workload with a pod template at `spec.template`, which may deserve warnings."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        template = obj["spec"].get("template")
        if template is None or (old is not None and old["spec"].get("template") == template):
            return ()
        return pod_warnings(template["spec"], template["metadata"], f"{_TEMPLATE}.")


class DaemonSetStrategy(PodTemplateStrategy):
    """Daemon sets count the changes of their template in an annotation."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        obj["metadata"].setdefault("annotations", {})[_GENERATION] = "1"

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        annotations = old["metadata"].get("annotations", {})
        try:
            number = parse_int(annotations.get(_GENERATION, "0"))
        except NumError:
            number = 0
        if new["spec"]["template"] != old["spec"]["template"]:
            number += 1
        if number:
            new["metadata"].setdefault("annotations", {})[_GENERATION] = str(number)


def template_spec(template: Tree, path: str) -> Iterator[Cause]:
    """A pod template."""
    meta = template["metadata"]
    yield from field_checks.labels(meta.get("labels", {}), f"{path}.labels")
    for key in meta.get("annotations", {}):
        yield from field_checks.qualified_name(key.lower(), f"{path}.annotations")
    yield from pod_annotations(meta, f"{path}.annotations")
    yield from pod_spec(template["spec"], None, f"{path}.spec", is_pod=False)
    yield from trimmed_images(template["spec"], f"{path}.spec")
    if template["spec"].get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden_field(f"{path}.spec.ephemeralContainers", text)


def _matching_template(spec: Tree, path: str = _TEMPLATE) -> Iterator[Cause]:
    """The template, whose labels the selector must select, and which runs for ever."""
    template = spec["template"]
    found = template["metadata"].get("labels", {})
    # One that is not there selects nothing, an empty one everything.
    said = spec["selector"] is None or not field_checks.is_empty_selector(spec["selector"])
    if said and not field_checks.matches(spec["selector"], found):
        text = "`selector` does not match template `labels`"
        yield invalid(f"{path}.metadata.labels", found or None, text)
    yield from template_spec(template, path)
    if template["spec"]["restartPolicy"] != "Always":
        yield not_supported(
            f"{path}.spec.restartPolicy", template["spec"]["restartPolicy"], ["Always"]
        )
    if "activeDeadlineSeconds" in template["spec"]:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield forbidden_field(f"{path}.spec.activeDeadlineSeconds", text)


def _selected_template(spec: Tree, text: str) -> Iterator[Cause]:
    """The template, if the selector can be read at all. text: what is said of one that cannot."""
    if any(field_checks.selector(spec["selector"], "spec.selector")):
        told = f"Invalid value: {value_text(spec['selector'])}"
        yield Cause("spec.selector", INVALID, f"{told}: {text}" if text else told)
    else:
        yield from _matching_template(spec)


def _selector(selector: Tree | None, kind: str) -> Iterator[Cause]:
    if selector is None:
        yield required("spec.selector")
        return
    yield from field_checks.selector(selector, "spec.selector")
    if field_checks.is_empty_selector(selector):
        text = f"empty selector is invalid for {kind}"
        yield invalid("spec.selector", selector, text)


def int_or_percent(value: int | str, path: str) -> Iterator[Cause]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield invalid(path, value, _PERCENT_TEXT)
    else:
        yield from field_checks.not_negative(value, path)


def percent_at_most_100(value: int | str, path: str) -> Iterator[Cause]:
    """A percentage of at most a hundred."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and saturated_int(value[:-1]) > 100:
        yield invalid(path, value, "must not be greater than 100%")


def _is_nothing(value: int | str | None) -> bool:
    if isinstance(value, str):
        return bool(_PERCENT.fullmatch(value)) and saturated_int(value[:-1]) == 0
    return not value


def _deployment(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    yield from _selector(spec["selector"], "deployment")
    yield from _selected_template(spec, "invalid label selector")
    yield from _deployment_strategy(spec["strategy"])
    ready = spec.get("minReadySeconds", 0)
    yield from field_checks.not_negative(ready, "spec.minReadySeconds")
    if "revisionHistoryLimit" in spec:
        yield from field_checks.not_negative(
            spec["revisionHistoryLimit"], "spec.revisionHistoryLimit"
        )
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        yield from field_checks.not_negative(deadline, "spec.progressDeadlineSeconds")
        if deadline <= ready:
            text = "must be greater than minReadySeconds"
            yield invalid("spec.progressDeadlineSeconds", deadline, text)


def _deployment_strategy(strategy: Tree) -> Iterator[Cause]:
    path = "spec.strategy"
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field(f"{path}.rollingUpdate", text)
    elif strategy["type"] == "RollingUpdate":
        yield from _rolling(rolling or {}, f"{path}.rollingUpdate", "maxSurge")
    else:
        yield not_supported(path, _internal_strategy(strategy), ["Recreate", "RollingUpdate"])


def _internal_strategy(strategy: Tree) -> Tree:
    """A strategy of no known type, as the original prints it: by the names of its Go fields."""
    return {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}


def _rolling(rolling: Tree, path: str, other: str) -> Iterator[Cause]:
    missing, more = rolling.get("maxUnavailable", 0), rolling.get(other, 0)
    yield from int_or_percent(missing, f"{path}.maxUnavailable")
    yield from int_or_percent(more, f"{path}.{other}")
    if _is_nothing(missing) and _is_nothing(more):
        text = f"may not be 0 when `{other}` is 0"
        yield invalid(f"{path}.maxUnavailable", missing, text)
    yield from percent_at_most_100(missing, f"{path}.maxUnavailable")


def _deployment_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _deployment(new)
    yield from field_checks.immutable(
        new["spec"]["selector"], old["spec"]["selector"], "spec.selector"
    )


def _replica_set(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    yield from field_checks.not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds")
    yield from _selector(spec["selector"], "deployment")
    yield from _selected_template(spec, "invalid label selector")


def _replica_set_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _replica_set(new)
    yield from field_checks.immutable(
        new["spec"]["selector"], old["spec"]["selector"], "spec.selector"
    )


def _stateful_set(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    policy = spec["podManagementPolicy"]
    if policy not in ("OrderedReady", "Parallel"):
        text = "must be 'OrderedReady' or 'Parallel'"
        yield invalid("spec.podManagementPolicy", policy, text)
    yield from _stateful_strategy(spec["updateStrategy"])
    for name in ("whenDeleted", "whenScaled"):
        kept = spec["persistentVolumeClaimRetentionPolicy"][name]
        if kept not in ("Delete", "Retain"):
            here = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            yield not_supported(here, kept, ["Delete", "Retain"])
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    yield from field_checks.not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds")
    start = spec.get("ordinals", {}).get("start", 0)
    yield from field_checks.not_negative(start, "spec.ordinals.start")
    for at, one in enumerate(spec.get("volumeClaimTemplates", ())):
        yield from volume_claim_spec(one["spec"], f"spec.volumeClaimTemplates[{at}].spec")
    if spec["serviceName"]:
        yield from field_checks.dns_label(spec["serviceName"], "spec.serviceName")
    yield from _selector(spec["selector"], "statefulset")
    yield from _selected_template(spec, "")


def _stateful_strategy(strategy: Tree) -> Iterator[Cause]:
    path = "spec.updateStrategy"
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{path}.rollingUpdate", rolling, text)
    elif strategy["type"] == "RollingUpdate":
        if rolling is not None:
            partition = rolling.get("partition", 0)
            yield from field_checks.not_negative(partition, f"{path}.rollingUpdate.partition")
            missing = rolling.get("maxUnavailable")
            if missing is not None:
                here = f"{path}.rollingUpdate.maxUnavailable"
                yield from int_or_percent(missing, here)
                if _is_nothing(missing):
                    yield invalid(here, missing, "cannot be 0")
                yield from percent_at_most_100(missing, here)
    else:
        text = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid(path, _internal_strategy(strategy), text)


_STATEFUL_CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
)


def _stateful_set_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _stateful_set(new)
    rest, before = (
        {name: value for name, value in one["spec"].items() if name not in _STATEFUL_CHANGEABLE}
        for one in (new, old)
    )
    if rest != before:
        text = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
            "'minReadySeconds' are forbidden"
        )
        yield forbidden_field("spec", text)


def _daemon_set(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.selector(spec["selector"], "spec.selector")
    found = spec["template"]["metadata"].get("labels", {})
    readable = not any(field_checks.selector(spec["selector"], "spec.selector"))
    if readable and not field_checks.matches(spec["selector"], found):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", found or None, text)
    if spec["selector"] is not None and field_checks.is_empty_selector(spec["selector"]):
        yield invalid("spec.selector", spec["selector"], "empty selector is invalid for daemonset")
    yield from template_spec(spec["template"], _TEMPLATE)
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy != "Always":
        yield not_supported("spec.template.spec.restartPolicy", policy, ["Always"])
    yield from field_checks.not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds")
    strategy = spec["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        yield from _daemon_rolling(strategy.get("rollingUpdate"))
    elif strategy["type"] != "OnDelete":
        wanted = ["RollingUpdate", "OnDelete"]
        yield not_supported("spec.updateStrategy", _internal_strategy(strategy), wanted)
    if "revisionHistoryLimit" in spec:
        yield from field_checks.not_negative(
            spec["revisionHistoryLimit"], "spec.revisionHistoryLimit"
        )


def _daemon_rolling(rolling: Tree | None) -> Iterator[Cause]:
    path = "spec.updateStrategy.rollingUpdate"
    if rolling is None:
        yield required(path)
        return
    missing, more = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    for name, value in (("maxUnavailable", missing), ("maxSurge", more)):
        yield from int_or_percent(value, f"{path}.{name}")
        yield from percent_at_most_100(value, f"{path}.{name}")
    if _is_nothing(missing) and _is_nothing(more):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
    elif not _is_nothing(missing) and not _is_nothing(more):
        text = "may not be set when maxUnavailable is non-zero"
        yield invalid(f"{path}.maxSurge", more, text)


def _daemon_set_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _daemon_set(new)
    yield from field_checks.immutable(
        new["spec"]["selector"], old["spec"]["selector"], "spec.selector"
    )


def replication_controller(obj: Tree) -> Iterator[Cause]:
    """The older kind: a map of labels selects, and the template may be missing."""
    spec = obj["spec"]
    yield from field_checks.not_negative(spec.get("minReadySeconds", 0), "spec.minReadySeconds")
    selector = spec.get("selector", {})
    if not selector:
        yield required("spec.selector")
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    template = spec.get("template")
    if template is None:
        yield required(_TEMPLATE)
        return
    found = template["metadata"].get("labels", {})
    if any(found.get(key) != value for key, value in selector.items()):
        text = "`selector` does not match template `labels`"
        yield invalid(f"{_TEMPLATE}.metadata.labels", found or None, text)
    yield from template_spec(template, _TEMPLATE)
    if template["spec"]["restartPolicy"] != "Always":
        yield not_supported(
            f"{_TEMPLATE}.spec.restartPolicy", template["spec"]["restartPolicy"], ["Always"]
        )


def pod_template(obj: Tree) -> Iterator[Cause]:
    """A template by itself."""
    return template_spec(obj["template"], "template")


def controller_revision(obj: Tree) -> Iterator[Cause]:
    """A past state."""
    if obj["data"] is None:
        yield required("data", "data is mandatory")
    yield from field_checks.not_negative(obj["revision"], "revision")


def controller_revision_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """A past state does not change."""
    yield from controller_revision(new)
    yield from field_checks.immutable(new["data"], old["data"], "data")


_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def replica_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """The numbers of a status agree."""
    status = new["status"]
    for name in (*_COUNTS, "observedGeneration"):
        yield from field_checks.not_negative(status.get(name, 0), f"status.{name}")
    text = "cannot be greater than status.replicas"
    for name in _COUNTS[1:]:
        if status.get(name, 0) > status.get("replicas", 0):
            yield invalid(f"status.{name}", status.get(name, 0), text)
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = "cannot be greater than readyReplicas"
        yield invalid("status.availableReplicas", status.get("availableReplicas", 0), text)


def _deployment_status(new: Tree, old: Tree) -> Iterator[Cause]:
    status, before = new["status"], old["status"]
    names = (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    )
    for name in names:
        yield from field_checks.not_negative(status.get(name, 0), f"status.{name}")
    text = "cannot be greater than status.replicas"
    for name in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > status.get("replicas", 0):
            yield invalid(f"status.{name}", status.get(name, 0), text)
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = "cannot be greater than readyReplicas"
        yield invalid("status.availableReplicas", status.get("availableReplicas", 0), text)
    count, was = status.get("collisionCount"), before.get("collisionCount")
    if was is not None and count is None:
        yield invalid("status.collisionCount", None, "cannot be unset")
    elif was is not None and count is not None and count < was:
        yield invalid("status.collisionCount", count, "cannot be decremented")


def _stateful_status(new: Tree, old: Tree) -> Iterator[Cause]:
    status = new["status"]
    names = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas")
    for name in (*names, "availableReplicas"):
        yield from field_checks.not_negative(status.get(name, 0), f"status.{name}")
    text = "cannot be greater than status.replicas"
    for name in (*names[1:], "availableReplicas"):
        if status.get(name, 0) > status.get("replicas", 0):
            yield invalid(f"status.{name}", status.get(name, 0), text)
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = "cannot be greater than status.readyReplicas"
        yield invalid("status.availableReplicas", status.get("availableReplicas", 0), text)


def _daemon_status(new: Tree, old: Tree) -> Iterator[Cause]:
    for name, value in new["status"].items():
        if isinstance(value, int):
            yield from field_checks.not_negative(value, f"status.{name}")


DEPLOYMENT = PodTemplateStrategy(_deployment, _deployment_update, status={}, counted=("spec",))
REPLICA_SET = PodTemplateStrategy(
    _replica_set, _replica_set_update, status={"replicas": 0}, counted=("spec",)
)
STATEFUL_SET = PodTemplateStrategy(
    _stateful_set,
    _stateful_set_update,
    status={"replicas": 0, "availableReplicas": 0},
    counted=("spec",),
)
DAEMON_SET = DaemonSetStrategy(
    _daemon_set,
    _daemon_set_update,
    status={
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    counted=("spec",),
)
STATUS_CHECKS: Mapping[str, UpdateCheck] = {
    "Deployment": _deployment_status,
    "ReplicaSet": replica_status,
    "StatefulSet": _stateful_status,
    "DaemonSet": _daemon_status,
}
TABLES: Mapping[str, Table] = {
    "Deployment": group_tables.DEPLOYMENTS,
    "ReplicaSet": group_tables.REPLICA_SETS,
    "StatefulSet": group_tables.STATEFUL_SETS,
    "DaemonSet": group_tables.DAEMON_SETS,
}
