"""Sequence cases: pods scheduled one after another on a changing cluster.

A case has a cluster, pod templates and steps; the answer has the result of each attempt and the
final state. Sequences check accounting by delta, which single attempts cannot.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stowplan.columns.nodetable import NodeTable
from stowplan.conformance.case_lines import case_configuration, case_reader
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.decision import choose_row, nominated_row, run_post_filters
from stowplan.framework import FeatureGates, Framework, Nominations, PostFilterResult, Snapshot
from stowplan.framework.object_store import ObjectStore
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace, PodDisruptionBudget, Service
from stowplan.plugins.preemption.default_preemption import PreemptionReport

Answer = dict[str, Any]

_EPOCH = datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)


class SequenceStep(Value, frozen=True, gc=True):
    """One step; the fields used depend on `op`."""

    op: str
    pod: str = ""
    template: str = ""
    node: str = ""
    labels: dict[str, str] = {}
    object: Node | None = None


class SequenceCase(Value, frozen=True, gc=True):
    """A cluster, templates and steps."""

    id: str
    steps: tuple[SequenceStep, ...]
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    services: tuple[Service, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    profile: dict[str, Any] | None = None
    templates: dict[str, Pod] = {}


read_case = case_reader(SequenceCase)


def answer(
    case: SequenceCase, *, columns: bool = True, plugins: Iterable[type[Any]] = ()
) -> Answer:
    """The answer to one case; raises ConfigError and QuantityError for a bad one.

    plugins: enabled in addition to the default ones, unless the case's profile disables them.
    """
    return SequenceRunner(case, columns=columns, plugins=plugins).run()


def _framework(case: SequenceCase, *, columns: bool, plugins: Iterable[type[Any]]) -> Framework:
    configuration, full = case_configuration(case.profile, case.id, plugins)
    (profile,) = configuration.profiles.values()
    return Framework(profile, full, FeatureGates(), columns=columns)


class SequenceRunner:
    """State between the steps of a case."""

    def __init__(
        self, case: SequenceCase, *, columns: bool = True, plugins: Iterable[type[Any]] = ()
    ) -> None:
        self.case = case
        self.framework = _framework(case, columns=columns, plugins=plugins)
        self.table = NodeTable()
        for node in case.nodes:
            self.table.add_node(node)
        self.pending: dict[str, Pod] = {}
        for pod in case.pods:
            self.table.add_pod(pod)
        object_store = ObjectStore((*case.namespaces, *case.services, *case.pdbs))
        self.snapshot = Snapshot(self.table, object_store, Nominations())
        self.order: list[str] = []

    def run(self) -> Answer:
        """Run all steps; returns their results and the final state."""
        self.table.refresh()
        self.order = list(self.table.node_order.names)
        result: Answer = {"nodeOrder": self.order}
        result["steps"] = [self._step(index, step) for index, step in enumerate(self.case.steps)]
        self.table.refresh()
        if self.table.node_order.names != self.order:
            result["finalNodeOrder"] = list(self.table.node_order.names)
        result["final"] = {info.name: self._held(row) for row, info in self._infos()}
        result["pending"] = {
            key: self.snapshot.nominations.node_of(pod.uid) for key, pod in self.pending.items()
        }
        return result

    def _infos(self) -> Any:
        return enumerate(self.table.infos())

    def _step(self, index: int, step: SequenceStep) -> Answer:
        match step.op:
            case "schedule":
                pod = self._made(index, step)
                self.pending[pod.key] = pod
                return self._attempt(index, pod)
            case "retry":
                return self._attempt(index, self._known(index, step.pod, self.pending))
            case "delete":
                return {"was": self._delete(step.pod)}
            case "addPod":
                pod = self._made(index, step)
                self.table.add_pod(_bound(pod, step.node, index))
            case "relabelPod":
                self._relabel(index, step.pod, step.labels)
            case "addNode" if step.object is not None:
                self.table.add_node(step.object)
            case "updateNode" if step.object is not None:
                self.table.update_node(step.object)
            case "removeNode":
                self.table.remove_node(step.node)
            case _:
                raise ValueError(f"{self.case.id}: step {index}: unknown op {step.op!r}")
        return {}

    def _made(self, index: int, step: SequenceStep) -> Pod:
        return _named(self._known(index, step.template, self.case.templates), step.pod)

    def _known(self, index: int, name: str, values: Mapping[str, Pod]) -> Pod:
        """The pod or template of a name; raises ValueError."""
        if name not in values:
            known = ", ".join(values) or "none"
            raise ValueError(
                f"{self.case.id}: step {index}: unknown {name!r}: expected one of {known}"
            )
        return values[name]

    def _delete(self, key: str) -> str:
        pod = self.pending.pop(key, None)
        if pod is not None:
            self.snapshot.nominations.drop(pod.uid)
            return "pending"
        self.table.remove_pod(key)
        return "bound"

    def _relabel(self, index: int, key: str, labels: dict[str, str]) -> None:
        info = self.table.pod(key)
        if info is None:
            raise ValueError(f"{self.case.id}: step {index}: pod {key!r} is on no node")
        meta = msgspec.structs.replace(info.pod.metadata, labels=labels)
        self.table.update_pod(msgspec.structs.replace(info.pod, metadata=meta))

    def _attempt(self, index: int, pod: Pod) -> Answer:
        self.table.refresh()
        nominated = self.snapshot.nominations.node_of(pod.uid)
        status = msgspec.structs.replace(pod.status, nominated_node_name=nominated)
        attempt = filter_pod(
            msgspec.structs.replace(pod, status=status), self.snapshot, self.framework
        )
        result: Answer = {"feasible": int(attempt.passed.shape[0])}
        if self.table.node_order.names != self.order:
            self.order = list(self.table.node_order.names)
            result["nodeOrder"] = self.order
        rejected = _rejected(attempt)
        if rejected:
            result["rejected"] = rejected
        if nominated:
            result["nominatedNodeFits"] = nominated_row(attempt) is not None
        if attempt.failure is None and attempt.passed.shape[0]:
            return result | self._place(index, pod, attempt)
        if attempt.failure is None:
            return result | self._refuse(pod, attempt)
        return result | _failed(attempt)

    def _place(self, index: int, pod: Pod, attempt: Attempt) -> Answer:
        names = self.table.names
        result: Answer = {"outcome": "scheduled"}
        best = attempt.feasible
        if self.framework.at("score"):
            scores = score_pod(attempt)
            if scores is None:
                return _failed(attempt)
            top = scores.rows[scores.total == scores.total.max()]
            best = top[self.table.rank[top].argsort()]
            result["total"] = int(scores.total.max())
            result["sum"] = int(scores.total.sum())
            result["pluginSums"] = {name: int(f.sum()) for name, f in scores.final.items()}
        result["best"] = [names[row] for row in best]
        nominated = nominated_row(attempt)
        row = choose_row(attempt, attempt.passed) if nominated is None else nominated
        result["placed"] = names[row]
        del self.pending[pod.key]
        self.snapshot.nominations.drop(pod.uid)
        self.table.add_pod(_bound(pod, names[row], index))
        return result

    def _refuse(self, pod: Pod, attempt: Attempt) -> Answer:
        result: Answer = {"outcome": "unschedulable", "fitError": attempt.diagnosis.text()}
        found = run_post_filters(attempt)
        if found is None:
            return result
        if found.status.is_success:
            result["outcome"] = "preempting"
        result["preemption"] = self._preempt(pod, attempt, found)
        return result

    def _preempt(self, pod: Pod, attempt: Attempt, found: PostFilterResult) -> Answer:
        entry: Answer = {"code": found.status.code.title}
        if found.status.reasons:
            entry["message"] = found.status.message
        report = attempt.state.find("DefaultPreemption")
        if isinstance(report, PreemptionReport) and report.candidates:
            entry["candidates"] = len(report.candidates)
            if len(report.best) > 1:
                entry["nominatedNodes"] = [c.node_name for c in report.best]
            else:
                entry |= self._evict(pod, report)
        elif found.nominated_node == "" and self.snapshot.nominations.node_of(pod.uid):
            self.snapshot.nominations.drop(pod.uid)
            entry["ownNominationCleared"] = True
        return entry

    def _evict(self, pod: Pod, report: PreemptionReport) -> Answer:
        """Evict at once, clear lower nominations of the node, and nominate the pod."""
        (chosen,) = report.best
        for info in chosen.victims:
            self.table.remove_pod(info.uid)
        nominations = self.snapshot.nominations
        lower = [
            info.pod
            for info in nominations.on(chosen.node_name)
            if info.pod.priority < pod.priority
        ]
        for other in lower:
            nominations.drop(other.uid)
        nominations.add(pod, chosen.node_name)
        entry: Answer = {
            "nominatedNode": chosen.node_name,
            "victims": [info.pod.key for info in chosen.victims],
        }
        if chosen.pdb_violations:
            entry["pdbViolations"] = chosen.pdb_violations
        if lower:
            entry["cleared"] = sorted(other.key for other in lower)
        return entry

    def _held(self, row: int) -> Answer:
        table = self.table
        known = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral"}
        entry: Answer = {"pods": int(table.pod_count[row])}
        scalar = {}
        for name in table.resources.values:
            amount = int(table.requested(name)[row])
            if name in known:
                entry[known[name]] = amount
            elif name != "pods" and amount:
                scalar[name] = amount
        entry["scalar"] = scalar
        entry["nonZeroCpu"] = int(table.nonzero_requested("cpu")[row])
        entry["nonZeroMemory"] = int(table.nonzero_requested("memory")[row])
        entry["ports"] = len(table.ports.of_row(row))
        return {key: value for key, value in entry.items() if value not in (0, {})}


def _named(template: Pod, name: str) -> Pod:
    meta = msgspec.structs.replace(template.metadata, name=name)
    return msgspec.structs.replace(template, metadata=meta)


def _bound(pod: Pod, node: str, index: int) -> Pod:
    status = msgspec.structs.replace(
        pod.status, phase="Running", start_time=_EPOCH + datetime.timedelta(seconds=index)
    )
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, spec=spec, status=status)


def _failed(attempt: Attempt) -> Answer:
    """Answer of an attempt that ended as an error; the pod stays pending."""
    return {"outcome": "error", "message": attempt.errors[0].message}


def _rejected(attempt: Attempt) -> dict[str, int]:
    counts: Counter[str] = Counter()
    if attempt.verdicts is not None:
        for status, rows in attempt.verdicts.refusals():
            counts[status.plugin] += int(rows.shape[0])
    return dict(counts)
