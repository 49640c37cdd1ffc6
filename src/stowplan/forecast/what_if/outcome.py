"""Outcomes: a version of a cluster with its pending pods decided."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Session
from stowplan.columns import NodeTable
from stowplan.forecast.what_if.loaded_cluster import LoadedCluster
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import Placement
from stowplan.insight.what_if.result import AutoscalerUse, QueueState
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.simulation.session_runner import AnySession, SessionRunner
from stowplan.simulation.simulate_jobs import simulate_jobs


class DecisionOutcome(msgspec.Struct):
    """A decided version of a cluster.

    version: the cluster before its pending pods were decided. placements: of the pending pods.
    evicted: pod -> the pod, or job, for which a session or the scheduler evicted it. resources:
    name -> (requested, allocatable) on nodes that are not cordoned. waits: pod -> seconds from its
    arrival to its node, with a duration. autoscaled: what an autoscaler did, None without one.
    """

    version: Cluster
    placements: dict[str, Placement]
    evicted: dict[str, str] = {}
    resources: dict[str, tuple[int, int]] = {}
    waits: dict[str, float] = {}
    notes: list[str] = []
    autoscaled: AutoscalerUse | None = None

    def node_of(self, pod: Pod) -> str:
        """The node of a pod of the version, "" for none."""
        if pod.key in self.placements:
            return self.placements[pod.key].node
        return "" if pod.key in self.evicted else pod.node_name

    @property
    def n_pending(self) -> int:
        """Number of pods without a node."""
        return sum(not one.node for one in self.placements.values())


def decide_pods(loaded: LoadedCluster, version: Cluster, n_pods: int) -> DecisionOutcome:
    """Decide one by one, as `simulate`."""
    placements = loaded.decide(version, n_pods)
    use = resource_use_of(loaded.run.scheduler.cache.nodes)
    return DecisionOutcome(version, {one.pod: one for one in placements}, resources=use)


def decide_sessions(version: Cluster, deciders: Deciders, seed: int) -> DecisionOutcome:
    """Decide in sessions, as `simulate` with actions and tiers."""
    runner = SessionRunner(version, deciders, np.random.default_rng(seed))
    takers: dict[str, str] = {}

    def note(session: AnySession) -> None:
        state = session.state if isinstance(session, Session) else session
        for victim, why in state.evicted:
            taker = state.preemptors.get(victim.uid)
            takers[victim.key] = why if taker is None else taker.job

    runner.on_run = note
    run = simulate_jobs(version, config=deciders, runner=runner)
    evicted = {key: takers.get(key, why) for key, why in run.evicted.items()}
    placements = {one.pod: one for one in run.placements}
    use = resource_use_of(runner.table)
    return DecisionOutcome(version, placements, evicted, use, notes=list(run.summary["notes"]))


def resource_use_of(table: NodeTable) -> dict[str, tuple[int, int]]:
    """Resource -> (requested, allocatable) of the nodes that are not cordoned."""
    rows = np.flatnonzero(~table.unschedulable)
    found = {}
    for name in sorted(table.resources.values):
        taken = table.pod_count if name == "pods" else table.requested(name)
        found[name] = int(taken[rows].sum()), int(table.allocatable(name)[rows].sum())
    return found


def queue_states(outcome: DecisionOutcome) -> dict[str, QueueState]:
    """Queue -> its pods and what they request; empty without queues in the cluster."""
    groups = {
        one.key: one.spec.queue for one in outcome.version.objects if isinstance(one, PodGroup)
    }
    queues = [one.name for one in outcome.version.objects if isinstance(one, Queue)]
    if not groups and not queues:
        return {}
    placed: dict[str, list[Pod]] = {name: [] for name in queues}
    pending = dict.fromkeys(queues, 0)
    for pod in outcome.version.pods:
        name = groups.get(group_of(pod))
        if name is None or pod.is_finished or pod.key in outcome.evicted:
            continue
        name = name or "default"
        if outcome.node_of(pod):
            placed.setdefault(name, []).append(pod)
        else:
            pending[name] = pending.get(name, 0) + 1
    names = sorted({*placed, *pending})
    return {
        name: QueueState(
            len(placed.get(name, ())), pending.get(name, 0), _requested(placed.get(name, ()))
        )
        for name in names
    }


def _requested(pods: Iterable[Pod]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, number in requested(pod).items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items()))
