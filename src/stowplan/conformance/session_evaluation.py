"""Evaluation of session cases: runs sessions on the cluster of a case.

Bind and evict calls always succeed. Between two sessions bound pods run, and evicted pods are
deleted, at once or after a grace period.
"""

from __future__ import annotations

import datetime
from functools import cache

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.sessions.kube_batch_v05 import kube_batch_options
from stowplan.assembly.sessions.profile_rules import session_framework
from stowplan.assembly.sessions.session_config import (
    SESSION_PLUGINS,
    batch_configuration,
    rules_for,
    session_options,
)
from stowplan.batch import Session, StandaloneInventory
from stowplan.batch.state.jobs import TaskInfo
from stowplan.config.session_configuration import KUBE_BATCH_0_5, BatchConfiguration
from stowplan.conformance.resource_arithmetic import answer_units
from stowplan.conformance.session_cases import (
    Answer,
    SessionCase,
    SessionCaseEvent,
    SessionCaseQueue,
    read_case,
)
from stowplan.conformance.session_observations import SessionObservations, session_uid
from stowplan.framework import ConfigError, Framework
from stowplan.kube_batch_v05.amounts import KubeBatchPanic
from stowplan.kube_batch_v05.close import close
from stowplan.kube_batch_v05.decider import open_session, run_actions
from stowplan.kube_batch_v05.jobs import KubeBatchTask
from stowplan.kube_batch_v05.session_cache import KubeBatchCache
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue, QueueSpec

SCHEDULER = "kube-batch"

_EPOCH = datetime.datetime(2019, 6, 1, 1, tzinfo=datetime.UTC)

__all__ = ["answer", "read_case"]


def answer(case: SessionCase, compat: str = "", rng: np.random.Generator | None = None) -> Answer:
    """The answer to one case; raises QuantityError for a bad one.

    compat: "" for the sessions of today, KUBE_BATCH_0_5 for the original with its defects. rng:
    tie-break.
    """
    if case.units is not None:
        return answer_units(case, compat)
    try:
        configuration = batch_configuration(case.conf, "conf", lenient=bool(compat))
    except ConfigError as error:
        return {"confError": str(error)}
    cluster = (_KubeBatchCluster if compat == KUBE_BATCH_0_5 else _BatchCluster)(
        case, configuration, rng
    )
    return cluster.run() | {"conf": _conf(configuration)}


@cache
def _framework() -> Framework:
    """Framework of the current plugins, which keep no state of a case."""
    return session_framework()


def _conf(configuration: BatchConfiguration) -> Answer:
    def plugin(name: str, disabled: tuple[str, ...], arguments: dict[str, str]) -> Answer:
        entry: Answer = {"name": name, "known": name in SESSION_PLUGINS}
        entry["disabled"] = sorted(disabled)
        return entry | ({"arguments": arguments} if arguments else {})

    tiers = configuration.tiers
    return {
        "actions": list(configuration.actions),
        "tiers": None
        if tiers is None
        else [[plugin(p.name, p.disabled, p.arguments) for p in tier] for tier in tiers],
    }


class _CaseCluster:
    """Cluster of a case between sessions. inventory: state of the implementation that answers."""

    inventory: StandaloneInventory | KubeBatchCache

    def __init__(self, case: SessionCase) -> None:
        self.case = case
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.going: dict[str, int] = {}
        self._arrive()

    def observe(self, uid: str, now: datetime.datetime) -> Answer:
        """Run one session and return what it decided."""
        raise NotImplementedError

    def _arrive(self) -> None:
        case, inventory = self.case, self.inventory
        for node in case.nodes:
            self._add_node(node)
        for priority_class in case.priority_classes:
            inventory.priority_class_updated(priority_class)
        for queue in case.queues:
            inventory.queue_updated(_queue(queue))
        for group in case.pod_groups:
            inventory.group_updated(group)
        if not case.pdb_last:
            for budget in case.pdbs:
                inventory.budget_updated(budget)
        for pod in case.pods:
            self._add_pod(pod)
        if case.pdb_last:
            for budget in case.pdbs:
                inventory.budget_updated(budget)

    def run(self) -> Answer:
        """Observations of all sessions; a panic ends the answer."""
        sessions: list[Answer] = []
        for number in range(1, self.case.sessions + 1):
            try:
                self._between(number)
                sessions.append(self._session(number))
            except KubeBatchPanic as panic:
                return {"sessions": sessions, "panic": str(panic)}
        return {"sessions": sessions}

    def _session(self, number: int) -> Answer:
        inventory = self.inventory
        inventory.bound.clear()
        inventory.evicted.clear()
        now = _EPOCH + datetime.timedelta(seconds=number)
        return self.observe(session_uid(number), now)

    # Between sessions.

    def _between(self, number: int) -> None:
        for key in [key for key, last in self.going.items() if last < number]:
            del self.going[key]
            self._drop_pod(key)
        bound: list[TaskInfo | KubeBatchTask] = [*self.inventory.bound]
        evicted: list[TaskInfo | KubeBatchTask] = [task for task, _ in self.inventory.evicted]
        for task in bound:
            self._run_bound(task.key, task.node)
        for task in evicted:
            self._evict(task.key, number)
        for event in self.case.events:
            if event.before == number:
                self._happen(event)
        self.inventory.sweep()

    def _run_bound(self, key: str, node: str) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        spec = replace(pod.spec, node_name=node)
        status = replace(pod.status, phase=self.case.bound_phase)
        self._add_pod(replace(pod, spec=spec, status=status))

    def _evict(self, key: str, number: int) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        if self.case.evict_grace:
            self.going[key] = number + self.case.evict_grace - 1
            meta = replace(pod.metadata, deletion_timestamp=_EPOCH)
            self._add_pod(replace(pod, metadata=meta))
        else:
            self._drop_pod(key)
        if self.case.recreate_evicted:
            meta = replace(pod.metadata, name=f"{pod.metadata.name}-r", uid=f"{pod.metadata.uid}-r")
            spec = replace(pod.spec, node_name="")
            status = replace(pod.status, phase="Pending")
            self._add_pod(replace(pod, metadata=meta, spec=spec, status=status))

    def _happen(self, event: SessionCaseEvent) -> None:
        inventory = self.inventory
        match event.type:
            case "addPod" if isinstance(event.pod, Pod):
                self._add_pod(event.pod)
            case "deletePod" if isinstance(event.pod, str):
                self._drop_pod(event.pod)
            case "phase" if isinstance(event.pod, str):
                self._phase(event.pod, event.phase)
            case "addPodGroup" | "updatePodGroup" if event.pod_group is not None:
                inventory.group_updated(event.pod_group)
            case "deletePodGroup" if event.pod_group is not None:
                inventory.group_deleted(event.pod_group.key)
            case "addNode" if isinstance(event.node, Node):
                self._add_node(event.node)
            case "updateNode" if isinstance(event.node, Node):
                if event.node.name in self.nodes:
                    self._add_node(event.node)
            case "deleteNode" if isinstance(event.node, str):
                if self.nodes.pop(event.node, None) is not None:
                    inventory.node_deleted(event.node)
            case "addQueue" if isinstance(event.queue, SessionCaseQueue):
                inventory.queue_updated(_queue(event.queue))
            case "deleteQueue" if isinstance(event.queue, str):
                inventory.queue_deleted(event.queue)
            case _:
                raise ValueError(f"{self.case.id}: invalid event {event.type!r}")

    def _phase(self, key: str, phase: str) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        now = pod.status.phase
        if now == "Running" or (now == "Pending" and pod.node_name):
            self._add_pod(replace(pod, status=replace(pod.status, phase=phase)))

    def _add_pod(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.inventory.pod_updated(pod)

    def _drop_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            self.inventory.pod_deleted(pod.uid)

    def _add_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.inventory.node_updated(node)


class _BatchCluster(_CaseCluster):
    """Sessions of today."""

    def __init__(
        self,
        case: SessionCase,
        configuration: BatchConfiguration,
        rng: np.random.Generator | None,
    ) -> None:
        self._options = session_options(configuration, rules_for(_framework()))
        self._rng = rng
        self.inventory: StandaloneInventory = StandaloneInventory(SCHEDULER, case.default_queue)
        super().__init__(case)

    def observe(self, uid: str, now: datetime.datetime) -> Answer:
        """Run one session and return what it decided."""
        inventory = self.inventory
        session = Session(inventory.open(), self._options, inventory, uid, now, self._rng)
        facts = SessionObservations(session)
        session.run()
        facts.after_actions()
        writes, notes = session.close()
        groups = [(write.group.key, write.status, write.notes) for write in writes]
        result = facts.after_close(groups, {note.key: note.message for note in notes})
        inventory.settle()
        return result


class _KubeBatchCluster(_CaseCluster):
    """The original with its defects."""

    def __init__(
        self,
        case: SessionCase,
        configuration: BatchConfiguration,
        rng: np.random.Generator | None,
    ) -> None:
        self._options = kube_batch_options(configuration)
        self._rng = rng
        self.inventory: KubeBatchCache = KubeBatchCache((SCHEDULER,), case.default_queue)
        super().__init__(case)

    def observe(self, uid: str, now: datetime.datetime) -> Answer:
        """Run one session and return what it decided."""
        session = open_session(self.inventory, self._options, uid, now, self._rng)
        facts = SessionObservations(session)
        run_actions(session, self._options)
        facts.after_actions()
        closed = close(session)
        groups = [(write.group.key, write.group.status, write.notes) for write in closed.groups]
        return facts.after_close(groups, {task.key: text for task, text in closed.unplaced})


def _queue(entry: SessionCaseQueue) -> Queue:
    meta = ObjectMeta(name=entry.name, creation_timestamp=entry.creation_timestamp)
    return Queue(metadata=meta, spec=QueueSpec(weight=entry.weight))
