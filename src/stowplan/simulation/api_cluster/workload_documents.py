"""Documents of a replay with controllers: when each object is created, and how replicas change.

An object that an API server has stored (it has a uid) exists from the start, as it is. Others are
created at `stowplan.dev/arrival-seconds`, or by their creationTimestamp, as pods of a trace are;
without either at the start. `stowplan.dev/replica-changes: "60=5, 120=0"` scales a workload to 5
replicas after 60 seconds, and to none after 120. `stowplan.dev/kubelet-changes: "60=off, 900=on"`
stops the kubelet of a node after 60 seconds, and starts it again after 900.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from stowplan.apis.batch.job import generate_selector
from stowplan.apis.core.pod_lifecycle import KUBELET, KUBELET_CHANGES, has_kubelet_annotation
from stowplan.apis.machinery.timestamps import parse_time
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.tree import Tree

ARRIVAL = "stowplan.dev/arrival-seconds"
REPLICA_CHANGES = "stowplan.dev/replica-changes"
WORKLOAD_KINDS = frozenset(
    {
        "Deployment",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "CronJob",
    }
)
"""Kinds whose controllers create pods: with one of them a replay runs controllers."""
SCALED_KINDS = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds whose number of replicas an annotation may change."""
_SELECTING_KINDS = WORKLOAD_KINDS - {"Job", "CronJob"}
WORKLOAD_LABEL = "stowplan.dev/workload"
"""Label of the pods of a workload that has neither labels nor a selector."""
DEFAULT_START_S = 1_767_225_600.0
"""Virtual time 0 of objects without times: 2026-01-01T00:00:00Z."""
SECONDS_MAX = 1e10
REPLICAS_MAX = 100_000
"""More pods than a workload of any cluster that kube-scheduler is tested with has."""
DIGITS_MAX = 9


class ReplicaChange(NamedTuple):
    """Scale an object after some seconds. number: of replicas."""

    at_s: float
    number: int

    def apply(self, tree: Tree) -> None:
        """Set the number of replicas."""
        tree["spec"]["replicas"] = self.number


class KubeletChange(NamedTuple):
    """Stop or start the kubelet of a node after some seconds. state: "on" or "off"."""

    at_s: float
    state: str

    def apply(self, tree: Tree) -> None:
        """Set the annotation that the hollow kubelet reads."""
        tree["metadata"].setdefault("annotations", {})[KUBELET] = self.state


TimedChange = ReplicaChange | KubeletChange


class Arrival(NamedTuple):
    """An object and when it is created, in virtual seconds; `is_stored`: restored as it is."""

    at_s: float
    tree: Tree
    changes: Sequence[TimedChange]
    is_stored: bool


class WorkloadDocuments:
    """The arrivals of a replay, in order. start_s: Unix seconds of virtual time 0."""

    def __init__(
        self,
        documents: Iterable[Tree],
        speedup: float,
        profile: str = "",
        start_s: float | None = None,
    ) -> None:
        """speedup: factor by which arrivals are closer together. profile: schedulerName of all
        pods that are not bound; "" keeps theirs. start_s: None: as the objects show; what was
        created before it is there at the start. Raises InputError."""
        trees = [with_selector(with_restart_policy(tree)) for tree in documents]
        if profile:
            trees = [with_profile(tree, profile) for tree in trees]
        times = [_created(tree) for tree in trees if not _is_stored(tree)]
        known = [at for at in times if at is not None]
        # A dump begins when it was taken, as far as it shows.
        stored = (at for tree in trees if _is_stored(tree) for at in _moments(tree))
        self.start_s = min(known, default=max(stored, default=DEFAULT_START_S))
        if start_s is not None:
            self.start_s = start_s
        self.arrivals = sorted(
            (self._arrival(tree, speedup) for tree in trees), key=lambda arrival: arrival.at_s
        )

    def _arrival(self, tree: Tree, speedup: float) -> Arrival:
        changes: list[TimedChange] = [*_replica_changes(tree), *_kubelet_changes(tree)]
        if _is_stored(tree):
            return Arrival(0.0, tree, changes, True)
        text = _annotations(tree).get(ARRIVAL)
        if text is not None:
            return Arrival(_seconds(tree, ARRIVAL, text) / speedup, tree, changes, False)
        created = _created(tree)
        at_s = 0.0 if created is None else max(0.0, created - self.start_s) / speedup
        return Arrival(at_s, tree, changes, False)


CLAIM_TEMPLATE = "ResourceClaimTemplate"


def has_workloads(documents: Iterable[Tree]) -> bool:
    """True when a controller would create pods for one of the objects, or claims for pods, or an
    annotation of a node says something about its kubelet."""
    return any(
        tree.get("kind") in WORKLOAD_KINDS
        or tree.get("kind") == CLAIM_TEMPLATE
        or (tree.get("kind") == "Node" and has_kubelet_annotation(tree))
        for tree in documents
    )


def with_restart_policy(tree: Tree) -> Tree:
    """An object whose pods end, with the restartPolicy `Never` where it has none.

    The API server requires one for Jobs and CronJobs; a pod with a run time is one of a trace.
    """
    is_timed_pod = tree.get("kind") == "Pod" and RUN_ANNOTATION in _annotations(tree)
    if tree.get("kind") not in ("Job", "CronJob") and not is_timed_pod:
        return tree
    found = copy.deepcopy(tree)
    spec = found.setdefault("spec", {})
    if spec.get("tasks"):
        # A Job of Volcano, whose pods are those of tasks; without a run time they run on.
        for template in _task_templates(spec):
            if RUN_ANNOTATION in _annotations(template):
                template.setdefault("spec", {}).setdefault("restartPolicy", "Never")
        return found
    if is_timed_pod:
        spec.setdefault("restartPolicy", "Never")
        return found
    if tree["kind"] == "CronJob":
        spec = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    template = spec.setdefault("template", {}).setdefault("spec", {})
    template.setdefault("restartPolicy", "Never")
    return found


def with_selector(tree: Tree) -> Tree:
    """A workload without a selector with one for its template; a template without labels gets one.

    The API server requires selectors and nothing else of `simulate` reads them. Without one a
    controller does not know its pods and creates more for ever. Stored objects are restored as
    they are: there a Job gets the selector that the API server would have given it.
    """
    kind = tree.get("kind")
    spec = tree.get("spec") or {}
    is_stored_job = kind == "Job" and _is_stored(tree) and not spec.get("tasks")
    if spec.get("selector") or not (kind in _SELECTING_KINDS or is_stored_job):
        return tree
    found = copy.deepcopy(tree)
    spec = found["spec"] = found.get("spec") or {}
    template = spec["template"] = spec.get("template") or {}
    template["spec"] = template.get("spec") or {}
    meta = template["metadata"] = template.get("metadata") or {}
    if is_stored_job:
        meta["labels"] = meta.get("labels") or {}
        spec.pop("selector", None)
        generate_selector(found)
        return found
    if not meta.get("labels"):
        digest = sha256(f"{kind}/{found['metadata']['name']}".encode()).hexdigest()
        meta["labels"] = {WORKLOAD_LABEL: digest[:16]}
    labels = dict(meta["labels"])
    spec["selector"] = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return found


def with_profile(tree: Tree, profile: str) -> Tree:
    """The object with this schedulerName in its pod template, or in its own spec."""
    found = copy.deepcopy(tree)
    spec = found.get("spec") or {}
    if found.get("kind") == "CronJob":
        spec = ((spec.get("jobTemplate") or {}).get("spec")) or {}
    if found.get("kind") == "Pod":
        if not spec.get("nodeName"):
            spec["schedulerName"] = profile
    elif isinstance(spec.get("template"), dict) and not tree["kind"].endswith("TrainingRuntime"):
        spec["template"].setdefault("spec", {})["schedulerName"] = profile
    for template in (*_task_templates(spec), *_replicated_templates(found)):
        template.setdefault("spec", {})["schedulerName"] = profile
    return found


def _task_templates(spec: Tree) -> Iterator[Tree]:
    """The pod templates of a Job of Volcano."""
    for task in spec.get("tasks") or ():
        if isinstance(task.get("template"), dict):
            yield task["template"]


def _replicated_templates(tree: Tree) -> Iterator[Tree]:
    """The pod templates of a JobSet, of a runtime of TrainJobs, which has that of a JobSet, or of a
    job of Kubeflow."""
    spec = tree.get("spec") or {}
    if str(tree.get("kind")).endswith("TrainingRuntime"):
        spec = (spec.get("template") or {}).get("spec") or {}
    for one in spec.get("replicatedJobs") or ():
        if isinstance(one.get("template"), dict):
            inner = one["template"].setdefault("spec", {})
            yield inner.setdefault("template", {})
    for field in spec if str(tree.get("apiVersion")).startswith("kubeflow.org/") else ():
        for one in spec[field].values() if field.endswith("ReplicaSpecs") else ():
            yield one.setdefault("template", {})


def _annotations(tree: Tree) -> dict[str, str]:
    return (tree.get("metadata") or {}).get("annotations") or {}


def _is_stored(tree: Tree) -> bool:
    return bool((tree.get("metadata") or {}).get("uid"))


def _created(tree: Tree) -> float | None:
    text = (tree.get("metadata") or {}).get("creationTimestamp")
    return parse_time(text) if isinstance(text, str) and text else None


def _moments(tree: Tree) -> Iterator[float]:
    """When a stored object was created, and when its pod started."""
    created, started = _created(tree), (tree.get("status") or {}).get("startTime")
    if created is not None:
        yield created
    if isinstance(started, str) and started:
        yield parse_time(started)


def _title(tree: Tree) -> str:
    meta = tree.get("metadata") or {}
    return f"{tree.get('kind', '')} {meta.get('namespace') or 'default'}/{meta.get('name', '')}"


def _seconds(tree: Tree, annotation: str, text: str) -> float:
    """Seconds in an annotation; raises InputError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise _invalid(tree, annotation, text, f"seconds from 0 to {SECONDS_MAX:.0f}")
    return seconds


def _replica_changes(tree: Tree) -> tuple[ReplicaChange, ...]:
    found = []
    wanted = "SECONDS=REPLICAS, as in 60=5, 120=0"
    for part, at_s, number in _changes(tree, REPLICA_CHANGES, SCALED_KINDS, wanted):
        if not (number.isascii() and number.isdecimal()):
            raise _invalid(tree, REPLICA_CHANGES, _annotations(tree)[REPLICA_CHANGES], wanted)
        if len(number) > DIGITS_MAX or int(number) > REPLICAS_MAX:
            raise _invalid(tree, REPLICA_CHANGES, part, f"at most {REPLICAS_MAX} replicas")
        found.append(ReplicaChange(at_s, int(number)))
    return tuple(sorted(found))


def _kubelet_changes(tree: Tree) -> tuple[KubeletChange, ...]:
    found = []
    wanted = "SECONDS=on or SECONDS=off, as in 60=off, 900=on"
    for _, at_s, state in _changes(tree, KUBELET_CHANGES, frozenset({"Node"}), wanted):
        if state not in ("on", "off"):
            raise _invalid(tree, KUBELET_CHANGES, _annotations(tree)[KUBELET_CHANGES], wanted)
        found.append(KubeletChange(at_s, state))
    return tuple(sorted(found))


def _changes(
    tree: Tree, annotation: str, kinds: frozenset[str], wanted: str
) -> Iterator[tuple[str, float, str]]:
    """Part, seconds and value of each change in an annotation; raises InputError."""
    text = _annotations(tree).get(annotation)
    if text is None:
        return
    if tree.get("kind") not in kinds:
        raise _invalid(tree, annotation, text, ", ".join(sorted(kinds)))
    for part in map(str.strip, text.split(",")):
        at, sign, value = part.partition("=")
        if not sign:
            raise _invalid(tree, annotation, text, wanted)
        yield part, _seconds(tree, annotation, at), value


def _invalid(tree: Tree, annotation: str, text: str, wanted: str) -> InputError:
    return InputError(_title(tree), f"metadata.annotations[{annotation}]", repr(text), wanted)
