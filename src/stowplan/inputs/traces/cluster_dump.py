"""Dump of a cluster with events as a trace: what ran, to be replayed.

`kubectl get nodes,pods,events -A -o json` and further kinds. Without `--trace-format
kubectl` a dump is the cluster as it is; with it every pod arrives when it was created, on a cluster
that is empty.

| field | becomes |
|---|---|
| Pod metadata.creationTimestamp | arrival |
| last terminated.finishedAt less the first start of a container | run time of a finished pod |
| start: status.startTime, else the event `Scheduled` | used where no container tells its start |
| spec of the pod without nodeName | requests, constraints, priority |
| Node and all other kinds that scheduling reads | as they are |

Source: Kubernetes core/v1 and events.k8s.io/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stowplan.apis.machinery.timestamps import parse_time
from stowplan.inputs.annotations import RUN_ANNOTATION

Tree = dict[str, Any]

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
CONTROLLERS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob",
     "ReplicationController"}
)  # fmt: skip
"""Kinds whose pods are in the dump."""
LOST = (
    "pods that were deleted before the dump: events name them, but not what they requested",
    "when pods that still run will end: they run to the end of the replay",
    "controllers: pods arrive when they were created, and none is created anew",
    "pods of DaemonSets arrive like others; static pods are there from the beginning",
    "restarts of containers, and nodes that have left",
)


class DumpImporter:
    """Collects the items of dumps, as events may be in another file than their pods."""

    def __init__(self) -> None:
        self._items: list[tuple[Tree, str, str]] = []
        self._scheduled: dict[str, str] = {}
        self._evicted: set[str] = set()
        self._pods: set[str] = set()
        self._counts: Counter[str] = Counter()

    def add(self, item: Tree, path: str, place: str) -> None:
        """Add an object of a dump."""
        kind = item.get("kind")
        if kind == "Event":
            self._event(item)
        elif kind in CONTROLLERS:
            self._counts["controllers"] += 1
        else:
            if kind == "Pod":
                self._pods.add(_key(item))
            self._items.append((item, path, place))

    def items(self) -> Iterator[tuple[Tree, str, str]]:
        """The objects of the trace: (object, path, place)."""
        for item, path, place in self._items:
            yield (self._pod(item) if item.get("kind") == "Pod" else item), path, place

    def notes(self) -> list[str]:
        """What the dump did not have; valid once `items` is through."""
        gone = len(self._scheduled.keys() - self._pods)
        counts = {
            "pods that only events name": gone,
            "controllers, whose pods are in the dump": self._counts["controllers"],
        }
        found = [f"left out, {n:,} {what}" for what, n in counts.items() if n]
        if self._counts["open"]:
            found.append(f"{self._counts['open']:,} pods had not ended: they run to the end")
        if self._evicted:
            found.append(f"{len(self._evicted):,} pods were evicted or preempted, by events")
        return found

    def _event(self, item: Tree) -> None:
        what = item.get("involvedObject") or item.get("regarding") or {}
        if what.get("kind") != "Pod":
            return
        key = f"{what.get('namespace') or 'default'}/{what.get('name')}"
        reason = item.get("reason")
        if reason == "Scheduled":
            times = ("eventTime", "firstTimestamp", "deprecatedFirstTimestamp", "lastTimestamp")
            at = next((item[name] for name in times if item.get(name)), "")
            self._scheduled.setdefault(key, at)
        elif reason in ("Preempted", "Evicted"):
            self._evicted.add(key)

    def _pod(self, item: Tree) -> Tree:
        """The pod as it was created, with its run time. A static pod stays where it is."""
        if MIRROR_ANNOTATION in ((item.get("metadata") or {}).get("annotations") or {}):
            return item
        meta, status = dict(item.get("metadata") or {}), item.get("status") or {}
        spec = {k: v for k, v in (item.get("spec") or {}).items() if k != "nodeName"}
        annotations = dict(meta.get("annotations") or {})
        run_s = _run_s(status, self._scheduled.get(_key(item), ""))
        if RUN_ANNOTATION not in annotations and run_s is not None:
            annotations[RUN_ANNOTATION] = f"{run_s:g}"
        self._counts["open"] += run_s is None and bool((item.get("spec") or {}).get("nodeName"))
        meta["annotations"] = annotations
        meta.pop("deletionTimestamp", None)
        return {**item, "metadata": meta, "spec": spec, "status": {}}


def _key(item: Tree) -> str:
    meta = item.get("metadata") or {}
    return f"{meta.get('namespace') or 'default'}/{meta.get('name')}"


def _run_s(status: Tree, scheduled: str) -> float | None:
    """Seconds from the start to the end of a finished pod; None for another."""
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    states = status.get("containerStatuses") or []
    ended = [one for one in states if isinstance(one, dict)]
    terminated = [(one.get("state") or {}).get("terminated") or {} for one in ended]
    ends = [at for one in terminated if (at := _time(one.get("finishedAt"))) is not None]
    starts = [at for one in terminated if (at := _time(one.get("startedAt"))) is not None]
    other = _time(status.get("startTime") or scheduled)
    start = min(starts, default=other)
    if not ends or start is None:
        return None
    return max(max(ends) - start, 0.0)


def _time(text: object) -> float | None:
    """Seconds since 1970; None where there is no valid time."""
    try:
        return parse_time(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
