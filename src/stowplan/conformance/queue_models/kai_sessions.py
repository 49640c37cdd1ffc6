"""KAI-Scheduler's cases that are sessions: runs the rounds of a case on its cluster."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from stowplan.assembly.sessions.kai_devices import device_allocation
from stowplan.assembly.sessions.kai_rules import fits_node_rules, fits_rules
from stowplan.assembly.sessions.kai_settings import kai_options
from stowplan.batch.queue_models.kai.actions.kai_actions import run_actions
from stowplan.batch.queue_models.kai.kai_objects import KaiObjects, KaiPodState, session_of
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_session import KaiRules, KaiSession
from stowplan.batch.queue_models.kai.session_claims import claims_after
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS, ResourceIndex
from stowplan.batch.queue_models.kai.state.kai_node import DEFAULT_CARD_MEMORY
from stowplan.batch.queue_models.kai.state.kai_queue import RESOURCES
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.numa_zones import NumaPolicy, NumaScope, NumaTopology
from stowplan.batch.queue_models.kai.zone_reports import (
    KaiZoneReport,
    KaiZonesReport,
    zones_of_report,
)
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiQueueObject,
    KaiTopologyObject,
)
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PriorityClass

Answer = dict[str, Any]

A_MOMENT = 0.001
"""A session takes some time: what was set to its beginning is past."""
STATE_NAMES = {"StuckInReleasing": KaiStatus.STUCK, "Pipelined": KaiStatus.PIPELINED}


class KaiCaseZones(Value, frozen=True):
    """`cluster.numa` of a node: policy and scope by number."""

    policy: str = "0"
    scope: str = "0"
    zones: tuple[KaiZoneReport, ...] = ()

    def report(self) -> KaiZonesReport:
        """The report that it stands for."""
        policy, scope = NumaPolicy(int(self.policy)), NumaScope(int(self.scope))
        return KaiZonesReport(policy, scope, self.zones)


class KaiCaseCluster(Value, frozen=True):
    """`cluster` of a case."""

    now: datetime.datetime
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    pod_groups: tuple[KaiPodGroupObject, ...] = ()
    queues: tuple[KaiQueueObject, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    topologies: tuple[KaiTopologyObject, ...] = ()
    keep_terminating: tuple[str, ...] = ()
    pod_states: dict[str, str] = {}
    numa: dict[str, KaiCaseZones] = {}
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()


def answer_rounds(case: QueueModelCase, rounds: int) -> Answer:
    """Sessions of a case one after the other, and where its pods are at last."""
    cluster = msgspec.convert(case.cluster, KaiCaseCluster)
    options = _options(case.config if isinstance(case.config, dict) else {}, rounds)
    rules = KaiRules(fits_rules, fits_node_rules)
    reports = {name: zones.report() for name, zones in cluster.numa.items()}

    def numa(node: str, index: ResourceIndex) -> NumaTopology | None:
        return zones_of_report(reports.get(node), index)

    states = _first_states(cluster)
    sessions: list[Answer] = []
    claims = list(cluster.resource_claims)
    allocate = device_allocation(cluster.resource_slices, cluster.device_classes)
    for _ in range(rounds):
        objects = KaiObjects(
            cluster.now.timestamp() + A_MOMENT,
            cluster.nodes,
            cluster.pods,
            cluster.pod_groups,
            cluster.queues,
            cluster.priority_classes,
            cluster.topologies,
            states,
            numa,
            claims,
            cluster.resource_slices,
            cluster.device_classes,
            allocate,
        )
        session = session_of(objects, options, rules)
        queues = _queues(session)
        placed = [task.key for task in _tasks(session) if task.node]
        run_actions(session)
        sessions.append({**_outcome(session, placed), "queuesOpen": queues})
        states = _next_states(session, cluster.keep_terminating, states)
        claims = _next_claims(session, claims, cluster.keep_terminating)
    return {"sessions": sessions, "final": _final(cluster, states)}


def _options(config: Mapping[str, Any], rounds: int) -> KaiOptions:
    plugins = {
        one["name"]: one.get("arguments") or {}
        for tier in config["tiers"]
        for one in tier["plugins"]
    }
    # The recordings ran without `--use-scheduling-signatures`. Cases of several rounds were run in
    # the state of KAI's own tests, others from their objects, by a client that deletes pods at
    # once.
    return msgspec.structs.replace(
        kai_options(config["actions"], plugins, skips_alike=False),
        unknown_memory=DEFAULT_CARD_MEMORY if rounds > 1 else 0,
        evicts_once=rounds == 1,
    )


def _first_states(cluster: KaiCaseCluster) -> dict[str, KaiPodState]:
    states: dict[str, KaiPodState] = {}
    for pod in cluster.pods:
        name = cluster.pod_states.get(pod.name)
        if name is not None:
            status, _, kind = name.partition("/")
            known = STATE_NAMES.get(status, KaiStatus.RUNNING)
            key = f"{pod.metadata.namespace}/{pod.name}"
            states[key] = KaiPodState(known, pod.spec.node_name, is_old_mig=kind == "legacyMig")
    return states


def _tasks(session: KaiSession) -> Iterable[KaiTask]:
    return (task for job in session.jobs.values() for task in job.tasks())


def _next_states(
    session: KaiSession, kept: Iterable[str], states: Mapping[str, KaiPodState]
) -> dict[str, KaiPodState]:
    """Where pods are in the next round: bound ones run, evicted and waiting ones are pending."""
    result = dict(states)
    kept_jobs = {*kept}
    for task in _tasks(session):
        if task.status == KaiStatus.BINDING:
            result[task.key] = KaiPodState(KaiStatus.RUNNING, task.node, task.groups)
        elif task.status == KaiStatus.RELEASING and task.job in kept_jobs:
            result[task.key] = KaiPodState(KaiStatus.RELEASING, task.node, task.groups)
        elif task.status in (KaiStatus.PIPELINED, KaiStatus.RELEASING):
            result[task.key] = KaiPodState(KaiStatus.PENDING, "", ())
    return result


def _next_claims(
    session: KaiSession, claims: Iterable[ResourceClaim], kept: Iterable[str]
) -> list[ResourceClaim]:
    kept_jobs = {*kept}
    bound = [task for task in _tasks(session) if task.status == KaiStatus.BINDING]
    gone = [
        task
        for task in _tasks(session)
        if task.status == KaiStatus.PIPELINED
        or (task.status == KaiStatus.RELEASING and task.job not in kept_jobs)
    ]
    return claims_after({claim.key: claim for claim in claims}, session.claims, bound, gone)


def _outcome(session: KaiSession, placed: Collection[str]) -> Answer:
    """What happened. placed: pods that were on nodes before; others that a later action took back
    count neither as bound nor as evicted."""
    waiting = {t.key: t.node for t in _tasks(session) if t.status == KaiStatus.PIPELINED}
    nodes = {
        name: {"idleGpus": node.idle[CARDS], "releasingGpus": node.releasing[CARDS]}
        for name, node in session.nodes.items()
    }
    groups = {name: _groups(node.tasks.values()) for name, node in session.nodes.items()}
    return {
        "binds": {t.key: t.node for t in _tasks(session) if t.status == KaiStatus.BINDING},
        "evicts": sorted({*session.evicts} & {*placed}),
        "pipelined": waiting,
        "nodes": nodes,
        "gpuGroups": {name: own for name, own in groups.items() if own},
    }


def _groups(tasks: Iterable[KaiTask]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for task in tasks:
        if task.has_share:
            for group in task.groups:
                groups.setdefault(group, []).append(task.key)
    return sorted(sorted(pods) for pods in groups.values())


def _queues(session: KaiSession) -> Answer:
    facts: Answer = {"/total": dict(zip(RESOURCES, session.queues.total, strict=True))}
    for name, queue in session.queues.queues.items():
        facts[name] = {
            resource: {
                "deserved": queue.quota[i],
                "fairShare": queue.fair[i],
                "maxAllowed": queue.limit[i],
                "allocated": queue.allocated[i],
                "allocatedNonPreemptible": queue.fixed[i],
                "request": queue.request[i],
            }
            for i, resource in enumerate(RESOURCES)
        }
    return facts


STATUS_NAMES = {
    KaiStatus.RUNNING: "Running",
    KaiStatus.PENDING: "Pending",
    KaiStatus.RELEASING: "Releasing",
    KaiStatus.STUCK: "StuckInReleasing",
    KaiStatus.PIPELINED: "Pipelined",
}


def _final(cluster: KaiCaseCluster, states: Mapping[str, KaiPodState]) -> Answer:
    final: Answer = {}
    for pod in cluster.pods:
        key = f"{pod.metadata.namespace}/{pod.name}"
        state = states.get(key)
        if state is None:
            is_released = pod.metadata.deletion_timestamp is not None
            entry = {"status": "Releasing" if is_released else pod.status.phase}
            node = pod.spec.node_name
        else:
            entry, node = {"status": STATUS_NAMES[state.status]}, state.node
        final[key] = {**entry, "node": node} if node else entry
    return final
