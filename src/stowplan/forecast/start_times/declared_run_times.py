"""Run times of jobs that declare none, as finished pods show them, written into their templates."""

from __future__ import annotations

import copy
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from stowplan.apis.machinery.timestamps import parse_time
from stowplan.forecast.start_times.run_times import SERVICES
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import namespace_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod

Owner = tuple[str, str, str]
"""Namespace, kind and name."""
_ENDED = ("Succeeded", "Failed")


def with_run_times(cluster: Cluster) -> tuple[Cluster, int]:
    """The cluster with `stowplan.dev/run-seconds` on pods and templates that lack it, and how many
    jobs and pods got one.

    The median of finished pods of the same owner counts, else `activeDeadlineSeconds`, else the
    median of all finished pods. Pods whose containers start again when they end, as those of
    services, get none. cluster: with its manifests, which are not modified.
    """
    known = _finished(cluster.manifests)
    every = [seconds for held in known.values() for seconds in held]
    writer = _RunTimes(known, statistics.median(every) if every else None)
    manifests = [writer.written(tree) for tree in cluster.manifests]
    queued = [writer.written(tree) for tree in cluster.queued]
    job_sets = [writer.written(tree) for tree in cluster.job_sets]
    pods = [writer.of_pod(pod) for pod in cluster.pods]
    found = replace(cluster, manifests=manifests, queued=queued, pods=pods, job_sets=job_sets)
    return found, writer.n_written


class _RunTimes:
    """n_written: objects that got a run time."""

    def __init__(self, known: Mapping[Owner, list[float]], typical: float | None) -> None:
        self._known, self._typical = known, typical
        self.n_written = 0

    def written(self, tree: Tree) -> Tree:
        """The object; a copy if it gets a run time."""
        if tree.get("kind") == "Pod":
            if (tree.get("status") or {}).get("phase") in _ENDED or _restarts(tree):
                return tree
            owner = _owner_of(tree)
        elif tree.get("kind") in ("Job", "JobSet", "TrainJob") or _is_kubeflow(tree):
            owner = _self(tree)
        else:
            return tree
        lacking = [one for one in _pods_in(tree) if RUN_ANNOTATION not in _notes(one)]
        found = copy.deepcopy(tree) if lacking else tree
        changed = False
        for one in _pods_in(found) if lacking else ():
            seconds = self._seconds(owner, found.get("spec") or {}, one.get("spec") or {})
            if seconds is not None and RUN_ANNOTATION not in _notes(one):
                meta = one["metadata"] = one.get("metadata") or {}
                meta["annotations"] = {**_notes(one), RUN_ANNOTATION: f"{seconds:.0f}"}
                changed = True
        self.n_written += changed
        return found if changed else tree

    def of_pod(self, pod: Pod) -> Pod:
        """A pod that reading made of a job."""
        notes = pod.metadata.annotations
        if RUN_ANNOTATION in notes or pod.is_finished or pod.spec.restart_policy == "Always":
            return pod
        refs = pod.metadata.owner_references
        owner = (pod.namespace, refs[0].kind, refs[0].name) if refs else ("", "", "")
        deadline = pod.spec.active_deadline_seconds
        seconds = self._seconds(owner, {}, {"activeDeadlineSeconds": deadline})
        if seconds is None:
            return pod
        more = {**notes, RUN_ANNOTATION: f"{seconds:.0f}"}
        return replace(pod, metadata=replace(pod.metadata, annotations=more))

    def _seconds(self, owner: Owner, job: Tree, pod: Tree) -> float | None:
        own = self._known.get(owner)
        if own:
            return statistics.median(own)
        limits = [one.get("activeDeadlineSeconds") for one in (job, pod)]
        given = [float(one) for one in limits if isinstance(one, int)]
        return min(given) if given else self._typical


def _finished(trees: Iterable[Tree]) -> dict[Owner, list[float]]:
    """Owner -> seconds for which its pods that have ended ran."""
    found: dict[Owner, list[float]] = defaultdict(list)
    for tree in trees:
        status = tree.get("status") or {}
        if tree.get("kind") != "Pod" or status.get("phase") not in _ENDED:
            continue
        states = (one.get("state") or {} for one in status.get("containerStatuses") or ())
        ends = [(one.get("terminated") or {}).get("finishedAt") for one in states]
        times = [parse_time(one) for one in ends if isinstance(one, str) and one]
        started = status.get("startTime")
        owner = _owner_of(tree)
        if times and isinstance(started, str) and owner[1] not in SERVICES:
            found[owner].append(max(0.0, max(times) - parse_time(started)))
    return found


def _restarts(pod: Tree) -> bool:
    """Whether the kubelet starts the containers of a pod again when they end."""
    return bool((pod.get("spec") or {}).get("restartPolicy", "Always") == "Always")


def _owner_of(pod: Tree) -> Owner:
    refs = (pod.get("metadata") or {}).get("ownerReferences") or ()
    if not refs:
        return _self(pod)
    return namespace_of(pod), str(refs[0].get("kind")), str(refs[0].get("name"))


def _self(tree: Tree) -> Owner:
    return namespace_of(tree), str(tree.get("kind")), str(tree["metadata"].get("name"))


def _is_kubeflow(tree: Tree) -> bool:
    return str(tree.get("apiVersion", "")).partition("/")[0] == "kubeflow.org"


def _pods_in(tree: Tree) -> Iterator[Tree]:
    """The pod, or the pod templates, in an object."""
    if tree.get("kind") == "Pod":
        yield tree
        return
    waiting: list[object] = [tree.get("spec")]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict) and isinstance(one.get("spec"), dict):
            if "containers" in one["spec"]:
                yield one
            waiting += one.values()
        elif isinstance(one, dict):
            waiting += one.values()


def _notes(tree: Tree) -> dict[str, str]:
    return (tree.get("metadata") or {}).get("annotations") or {}
