"""Topology ungater: gives each pod of an admitted Workload a domain of its topology.

Pods with a completion index take domains in their order; others by name. A pod that a Job creates
again takes the place that has become free.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/tas/topology_ungater.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import JOBS, PODS
from stowplan.controllers.kueue.kueue_kinds import (
    POD_SET_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
    WORKLOADS,
)
from stowplan.controllers.kueue.workload_status import ADMITTED, is_true
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
_MARK = TOPOLOGY_GATE.encode()
Domain = tuple[tuple[str, ...], int]


class TopologyUngater(Controller):
    """Keys are those of Workloads."""

    name = "kueue-topology-ungater"
    path = WORKLOADS

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Workload, and that of a pod with the gate of topologies."""
        if change.path == WORKLOADS:
            self.queue.add(split_key(change))
        elif change.path == PODS and _MARK in change.value:
            meta = (self.decoded(change.value) or {}).get("metadata") or {}
            name = (meta.get("annotations") or {}).get(WORKLOAD_ANNOTATION)
            if name:
                self.queue.add((change.namespace, name))

    def sync(self, key: Key) -> None:
        """Ungate the pods for which a domain has a free place."""
        workload = self.api.get(WORKLOADS, *key)
        if workload is None or not is_true(workload, ADMITTED):
            return
        pods = self._pods_of(workload)
        admission = workload["status"].get("admission") or {}
        for one in admission.get("podSetAssignments") or ():
            places = one.get("topologyAssignment")
            if places:
                own = [pod for pod in pods if _pod_set_of(pod) == one["name"]]
                self._place(own, list(places["levels"]), list(domains_of(places)))

    def _pods_of(self, workload: Tree) -> list[Tree]:
        """Active pods of the job, or of the Jobs that it owns."""
        uids = [owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()]
        for uid in list(uids):
            owned = (item for item in self.index.dependents(uid) if item[0] == JOBS)
            trees = (self.api.get(*item) for item in owned)
            uids += [tree["metadata"]["uid"] for tree in trees if tree is not None]
        keys = [pod.key for uid in uids for pod in self.index.of_owner(uid) if pod.is_active]
        pods = (self.api.get(PODS, *key) for key in keys)
        return [pod for pod in pods if pod is not None]

    def _place(self, pods: list[Tree], levels: list[str], domains: list[Domain]) -> None:
        left = dict(domains)
        gated = []
        for pod in pods:
            if has_gate(pod):
                gated.append(pod)
                continue
            selector = pod["spec"].get("nodeSelector") or {}
            values = tuple(selector.get(level, "") for level in levels)
            if values in left:
                left[values] -= 1
        free = (values for values, count in left.items() for _ in range(max(0, count)))
        for pod, values in zip(sorted(gated, key=_rank), free, strict=False):
            ungate(pod, TOPOLOGY_GATE)
            pod["spec"]["nodeSelector"] = {
                **(pod["spec"].get("nodeSelector") or {}),
                **dict(zip(levels, values, strict=True)),
            }
            self.api.update(PODS, pod)


def domains_of(places: Tree) -> Iterator[Domain]:
    """Values of each domain and its number of pods, of a `topologyAssignment`."""
    for one in places.get("slices") or ():
        for i in range(int(one["domainCount"])):
            values = tuple(_value(level, i) for level in one["valuesPerLevel"])
            counts = one["podCounts"]
            yield values, int(counts.get("universal") or (counts.get("individual") or [0])[i])


def _value(level: Tree, i: int) -> str:
    if level.get("universal") is not None:
        return str(level["universal"])
    held = level.get("individual") or {}
    return f"{held.get('prefix', '')}{held['roots'][i]}{held.get('suffix', '')}"


def has_gate(pod: Tree, name: str = TOPOLOGY_GATE) -> bool:
    """Whether a pod has a scheduling gate."""
    return any(gate["name"] == name for gate in pod["spec"].get("schedulingGates") or ())


def ungate(pod: Tree, name: str) -> None:
    """Remove a scheduling gate."""
    gates = [gate for gate in pod["spec"].get("schedulingGates") or () if gate["name"] != name]
    if gates:
        pod["spec"]["schedulingGates"] = gates
    else:
        pod["spec"].pop("schedulingGates", None)


def _pod_set_of(pod: Tree) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_SET_LABEL, "main"))


def _rank(pod: Tree) -> tuple[int, str]:
    index = (pod["metadata"].get("labels") or {}).get(INDEX_LABEL, "")
    return int(index) if index.isdecimal() else 0, pod["metadata"]["name"]
