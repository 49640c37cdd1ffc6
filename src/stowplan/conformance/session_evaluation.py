"""Evaluation of session cases: runs sessions on the cluster of a case.

Bind and evict calls always succeed. Between two sessions bound pods run, and evicted pods are
deleted, at once or after a grace period.
"""

from __future__ import annotations

import datetime
from functools import cache

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.sessions.profile_rules import session_framework
from stowplan.assembly.sessions.session_config import (
    batch_configuration,
    rules_for,
    session_options,
)
from stowplan.batch import Compat, Inventory, Session, SessionOptions
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.resource_vector import SessionPanic
from stowplan.config.session_configuration import BatchConfiguration
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
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue, QueueSpec

SCHEDULER = "kube-batch"

_EPOCH = datetime.datetime(2019, 6, 1, 1, tzinfo=datetime.UTC)

__all__ = ["answer", "read_case"]


def answer(
    case: SessionCase, compat: Compat | None = None, rng: np.random.Generator | None = None
) -> Answer:
    """The answer to one case; raises QuantityError for a bad one. rng: tie-break."""
    compat = compat or Compat()
    if case.units is not None:
        return answer_units(case, compat)
    try:
        configuration = batch_configuration(case.conf, "conf", compat)
    except ConfigError as error:
        return {"confError": str(error)}
    options = session_options(configuration, compat, rules_for(compat, _framework()))
    return _CaseCluster(case, options, compat, rng).run() | {"conf": _conf(configuration, options)}


@cache
def _framework() -> Framework:
    """Framework of the current plugins, which keep no state of a case."""
    return session_framework()


def _conf(configuration: BatchConfiguration, options: SessionOptions) -> Answer:
    def policy(name: str, disabled: tuple[str, ...], arguments: dict[str, str]) -> Answer:
        entry: Answer = {"name": name, "known": name in options.plugins}
        entry["disabled"] = sorted(disabled)
        return entry | ({"arguments": arguments} if arguments else {})

    tiers = configuration.tiers
    return {
        "actions": list(configuration.actions),
        "tiers": None
        if tiers is None
        else [[policy(p.name, p.disabled, p.arguments) for p in tier] for tier in tiers],
    }


class _CaseCluster:
    """Cluster of a case between sessions."""

    def __init__(
        self,
        case: SessionCase,
        options: SessionOptions,
        compat: Compat,
        rng: np.random.Generator | None,
    ) -> None:
        self.case = case
        self.rng = rng
        self.options = options
        self.inventory = Inventory(SCHEDULER, case.default_queue, compat)
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.going: dict[str, int] = {}
        self._arrive()

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
            except SessionPanic as panic:
                return {"sessions": sessions, "panic": str(panic)}
        return {"sessions": sessions}

    def _session(self, number: int) -> Answer:
        inventory = self.inventory
        inventory.bound.clear()
        inventory.evicted.clear()
        now = _EPOCH + datetime.timedelta(seconds=number)
        opened = inventory.open()
        uid = session_uid(number)
        session = Session(opened, self.options, inventory, uid, now, self.rng)
        facts = SessionObservations(session)
        session.run()
        facts.after_actions()
        writes, notes = session.close()
        result = facts.after_close(writes, notes)
        inventory.settle()
        return result

    # Between sessions.

    def _between(self, number: int) -> None:
        for key in [key for key, last in self.going.items() if last < number]:
            del self.going[key]
            self._drop_pod(key)
        for task in list(self.inventory.bound):
            self._run_bound(task)
        for task, _ in list(self.inventory.evicted):
            self._evict(task.key, number)
        for event in self.case.events:
            if event.before == number:
                self._happen(event)
        self.inventory.sweep()

    def _run_bound(self, task: TaskInfo) -> None:
        pod = self.pods.get(task.key)
        if pod is None:
            return
        spec = replace(pod.spec, node_name=task.node)
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


def _queue(entry: SessionCaseQueue) -> Queue:
    meta = ObjectMeta(name=entry.name, creation_timestamp=entry.creation_timestamp)
    return Queue(metadata=meta, spec=QueueSpec(weight=entry.weight))
