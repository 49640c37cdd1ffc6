"""explain_scheduling_group(): what one cycle of a profile does with a PodGroup of
scheduling.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.insight.gang_notes import GATES_OFF
from stowplan.insight.pod_placement import frameworks_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.failure_handler import FailedAttempt
from stowplan.scheduler.pod_groups.group_cycle import GroupReport
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders

SCHEMA = "stowplan.dev/pod-group-explanation/v1"


class MemberExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod of a group. state: running (it has a node), scheduled (it gets `node`), nominated (it
    waits for evictions on `node`), waiting (at Permit, on `node`), gated, or pending. message: why
    it is not scheduled. plugins: those that refused it."""

    pod: str
    state: str
    node: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()


class SchedulingGroupExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of one group cycle on the cluster as given.

    policy: gang or basic. state: scheduled, pending, or gated where it was not tried. outcome:
    `scheduled`, `unschedulable`, `waiting_on_preemption` or `error`; "" where it was not tried.
    message: of the condition that the cycle writes. evicted: pods that are evicted for it.
    decided_by: the schedulerName of its pods. topology_key: the label whose value its nodes share.
    """

    api_version: str
    pod_group: str
    decided_by: str
    state: str
    policy: str
    pods: int
    running: int
    outcome: str = ""
    message: str = ""
    min_count: int | None = None
    topology_key: str = ""
    evicted: tuple[str, ...] = ()
    members: tuple[MemberExplanation, ...] = ()

    @property
    def is_placed(self) -> bool:
        """True where as many pods as the group needs have a node, or get one."""
        placed = sum(one.state in ("running", "scheduled") for one in self.members)
        return placed >= max(self.min_count or 1, 1)


def find_scheduling_group(key: str, cluster: Cluster) -> SchedulingGroup | None:
    """The PodGroup of scheduling.k8s.io of a name, None where there is none."""
    groups = (one for one in cluster.objects if isinstance(one, SchedulingGroup))
    return next((one for one in groups if one.key == key), None)


def explain_scheduling_group(
    group: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
) -> SchedulingGroupExplanation:
    """Run one group cycle for a PodGroup, by `NAMESPACE/NAME`; other pending pods are left out.

    Raises InputError (also for an unknown group, and where the gate GenericWorkload is off),
    ConfigError and ContractError.
    """
    deciders = config if isinstance(config, Deciders) else read_deciders(config)
    cluster = cluster_of(cluster)
    found = find_scheduling_group(group, cluster)
    if found is None:
        known = [one.key for one in cluster.objects if isinstance(one, SchedulingGroup)]
        hint = did_you_mean(group, known)
        wanted = f"one of the cluster's {count_of(len(known), 'PodGroup')}"
        raise InputError(f"podgroup {group}", "", "not found", f"{wanted} {hint}".strip())
    if not deciders.gates.generic_workload:
        raise InputError.at(f"podgroup {group}", "", f"not scheduled as a group: {GATES_OFF}")
    members = [
        pod for pod in cluster.pods if group_key_of(pod) == found.key and not pod.is_finished
    ]
    trial = GroupTrial(cluster, deciders, members)
    trial.run()
    return trial.explanation(found)


class GroupTrial:
    """One cycle of a scheduler that sees the bound pods of a cluster and the members of a group."""

    def __init__(self, cluster: Cluster, deciders: Deciders, members: list[Pod]) -> None:
        self._members = members
        self._scheduler: Scheduler = deciders.scheduler(options=SchedulerOptions(), engine="walk")
        self._report: GroupReport | None = None
        self._failed: dict[str, FailedAttempt] = {}
        self._evicted: dict[str, None] = {}
        self._message = ""
        self._scheduler.pod_lane.group_cycles.on_group = self._group_tried
        self._scheduler.on_failure(self._pod_failed)
        keys = {pod.key for pod in members}
        events: list[Event] = [happened.NodeAdded(node) for node in cluster.nodes]
        events += [happened.ObjectAdded(one) for one in cluster.objects]
        events += [happened.PodAdded(pod) for pod in cluster.bound() if pod.key not in keys]
        events += [happened.PodAdded(pod) for pod in members]
        self._events = events

    def _group_tried(self, report: GroupReport) -> None:
        self._report = self._report or report

    def _pod_failed(self, attempt: FailedAttempt) -> None:
        self._failed.setdefault(attempt.key, attempt)

    def run(self) -> None:
        """Attempt the group once."""
        for effect in self._scheduler.handle(self._events, 0, heads_max=1):
            if isinstance(effect, to_do.Evict):
                self._evicted[f"{effect.namespace}/{effect.name}"] = None
            elif isinstance(effect, to_do.PatchGroup):
                self._message = effect.status.conditions[0].message

    def explanation(self, group: SchedulingGroup) -> SchedulingGroupExplanation:
        """What the cycle did."""
        members = tuple(self._member(pod) for pod in self._members)
        report = self._report
        names = dict.fromkeys(pod.spec.scheduler_name for pod in self._members)
        made = SchedulingGroupExplanation(
            SCHEMA,
            group.key,
            ", ".join(names),
            "gated" if report is None else "pending",
            "basic" if group.min_count is None else "gang",
            len(members),
            sum(one.state == "running" for one in members),
            "" if report is None else report.outcome,
            self._message,
            group.min_count,
            group.topology_key or "",
            tuple(self._evicted),
            members,
        )
        return replace(made, state="scheduled") if made.is_placed else made

    def _member(self, pod: Pod) -> MemberExplanation:
        if pod.node_name:
            return MemberExplanation(pod.key, "running", pod.node_name)
        groups = self._scheduler.pod_groups
        state = None if groups is None else groups.of(pod)
        node = "" if state is None else state.assumed.get(pod.uid, "")
        if node:
            waits = pod.uid in {one.pod.uid for one in self._scheduler.waiting_pods}
            return MemberExplanation(pod.key, "waiting" if waits else "scheduled", node)
        failed = self._failed.get(pod.key)
        if failed is None:
            return MemberExplanation(pod.key, "gated", message=self._gate(pod))
        plugins = tuple(sorted(failed.plugins))
        nominated = failed.nominated_node or ""
        kind = "nominated" if nominated else "pending"
        return MemberExplanation(pod.key, kind, nominated, failed.message, plugins)

    def _gate(self, pod: Pod) -> str:
        """What keeps a pod out of the queue."""
        framework = frameworks_of(self._scheduler).get(pod.spec.scheduler_name)
        if framework is None:
            return no_profile(pod.spec.scheduler_name)
        return framework.run_pre_enqueue(pod).message
