"""Evaluation of pod group cases: the whole scheduler, one attempt at a time.

The scheduler is the one of `run` and `simulate`; only the API server and the clock belong to the
script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.build import scheduler_for
from stowplan.conformance.case_lines import case_configuration
from stowplan.conformance.pod_groups.attempt_log import AttemptLog, condition_of
from stowplan.conformance.pod_groups.pod_group_cases import PodGroupCase, PodGroupStep
from stowplan.conformance.pod_groups.scripted_api import CONFLICT, NOT_FOUND, ScriptedApi
from stowplan.framework import OK, FeatureGates, Status, unschedulable
from stowplan.framework.cycle_state import CycleState
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.queue import PodRecord, QueueOptions
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.pod_groups.group_cycle import GroupReport

Answer = dict[str, Any]

_MS = SECOND // 1000
_NEVER_S = 1e9
REFUSED_BY_SCRIPT = "refused by the script"


class SchedulerPanic(Exception):
    """The original would crash."""


def answer(case: PodGroupCase, compat: str = "", engine: str = "walk") -> Answer:
    """The answer to one case; raises ConfigError and QuantityError for a bad one. compat: the
    scheduler whose defects are reproduced, "" for none. engine: as for `scheduler_for`."""
    return PodGroupScript(case, compat, engine).run()


class PodGroupScript:
    """State between the steps of a case."""

    def __init__(self, case: PodGroupCase, compat: str, engine: str = "walk") -> None:
        self.case = case
        self.compat = compat
        self.gates = FeatureGates.of(case.feature_gates, case.id)
        self.api = ScriptedApi(graceful=case.graceful_eviction)
        self.now = 0
        self.nodes: dict[str, Node] = {}
        self.refused_reserve: set[str] = set()
        refused = self.refused_reserve

        class Script:
            """Refuses reservations that the script names."""

            name = "Script"

            def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
                """Refuse a reservation for binding once."""
                if state.is_group_cycle or pod.key not in refused:
                    return OK
                refused.discard(pod.key)
                return unschedulable(REFUSED_BY_SCRIPT)

        # Kernels place no pods for which a plugin reserves.
        refuses = any(step.op == "failReserve" for step in case.steps)
        plugins = [Script] if refuses else []
        configuration, full = case_configuration(case.profile, case.id, plugins, self.gates)
        queue = QueueOptions(
            flush_backoff_s=_NEVER_S,
            flush_unschedulable_s=_NEVER_S,
            pop_from_backoff=self.gates.scheduler_pop_from_backoff_q,
        )
        self.scheduler = scheduler_for(
            configuration,
            full,
            self.gates,
            options=SchedulerOptions(queue=queue, compat=compat),
            engine=engine,
        )
        self.log = AttemptLog(self.api)
        self.outcomes: Counter[str] = Counter()
        lane = self.scheduler.pod_lane
        lane.on_attempt = self._popped
        lane.group_cycles.on_group = self._group_tried
        self.scheduler.on_failure(self.log.failed)
        self.n_popped = 0
        self.cycle_pods: set[str] = set()

    # What the scheduler reports.

    def _popped(self, entry: PodRecord) -> None:
        self.n_popped += 1
        self.cycle_pods = {entry.key}
        self.log.attempt["pods"] = [entry.key]

    def _group_tried(self, report: GroupReport) -> None:
        self.n_popped += 1
        self.cycle_pods = set(report.pods)
        attempt = self.log.attempt
        attempt["group"] = report.key
        if self.scheduler.cache.nodes.n_nodes:
            attempt["pods"] = list(report.pods[: report.n_tried])
        if report.outcome:
            attempt["result"] = report.outcome
            self.outcomes[report.outcome] += 1

    # Steps.

    def run(self) -> Answer:
        """Run all steps; a crash ends them."""
        steps: list[Answer] = []
        try:
            self._begin()
            # Those before a crash are kept.
            steps.extend(self._step(step) for step in self.case.steps)
        except SchedulerPanic as panic:
            return {"steps": [*steps, {"panic": str(panic)}]}
        pods = self.api.pods.values()
        return {
            "steps": steps,
            "placements": {pod.key: pod.node_name for pod in pods if pod.node_name},
            "pending": {pod.key: _pending(pod) for pod in pods if not pod.node_name},
            "podGroupConditions": {
                key: condition_of(group) for key, group in self.api.groups.items()
            },
            "podGroupAttempts": dict(self.outcomes),
        }

    def _begin(self) -> None:
        case, api = self.case, self.api
        others = (
            *case.namespaces,
            *case.pdbs,
            *case.storage_classes,
            *case.pvs,
            *case.pvcs,
            *case.device_classes,
            *case.resource_slices,
        )
        events = [api.put(one) for one in others]
        events += [api.put(one, f"claim:{one.key}") for one in case.resource_claims]
        events += [self._put_node(node) for node in case.nodes]
        events += [api.put(group, f"pg:{group.key}") for group in case.pod_groups]
        events += [self._put_pod(pod) for pod in case.pods]
        for event in events:
            self._deliver(event)

    def _put_pod(self, pod: Pod) -> Event:
        group = pod.spec.scheduling_group
        is_nameless = group is not None and group.pod_group_name is None
        if is_nameless and self.compat and self.gates.generic_workload:
            raise SchedulerPanic("invalid memory address or nil pointer dereference")
        return self.api.put_pod(pod)

    def _step(self, step: PodGroupStep) -> Answer:
        self.now += step.ms * _MS
        result: Answer = {}
        if step.op == "schedule":
            result["attempts"], result["idle"] = self._schedule(step.max)
        else:
            self.log.begin()
            act: Callable[[PodGroupStep], None] | None = getattr(
                self, f"_on_{_snake(step.op)}", None
            )
            if act is None:
                raise ValueError(f"{self.case.id}: unknown op {step.op!r}")
            act(step)
            late = self.log.end()
            if late:
                result["late"] = late
        return result | self._observed()

    def _schedule(self, most: int) -> tuple[list[Answer], bool]:
        attempts = []
        for _ in range(most):
            if self._is_idle():
                break
            self.now += _MS
            self.log.begin()
            self.cycle_pods = set()
            self._perform(self.scheduler.handle([], self.now, heads_max=1), in_cycle=True)
            attempts.append(self.log.end())
        return attempts, self._is_idle()

    def _is_idle(self) -> bool:
        queue = self.scheduler.queue
        early = queue.options.pops_from_backoff and len(queue.backoff.refused)
        return not len(queue.active) and not early

    def _on_add_pod(self, step: PodGroupStep) -> None:
        self._send(self._put_pod(convert(step.object, Pod)))

    def _on_delete_pod(self, step: PodGroupStep) -> None:
        self._send(*self.api.drop_pod(step.key))

    def _on_terminate_pod(self, step: PodGroupStep) -> None:
        self._send(*self.api.terminate(step.key))

    def _on_remove_gates(self, step: PodGroupStep) -> None:
        pod = self.api.pods.get(step.key)
        if pod is not None:
            spec = replace(pod.spec, scheduling_gates=())
            self._send(self.api.put_pod(replace(pod, spec=spec)))

    def _on_bind_pod(self, step: PodGroupStep) -> None:
        pod = self.api.pods.get(step.key)
        if pod is not None and not pod.node_name:
            self._send(self.api.bound(pod, step.node))

    def _on_add_pod_group(self, step: PodGroupStep) -> None:
        group = convert(step.object, SchedulingGroup)
        self._send(self.api.put(group, f"pg:{group.key}"))

    def _on_update_pod_group(self, step: PodGroupStep) -> None:
        group = convert(step.object, SchedulingGroup)
        known = self.api.groups.get(group.key)
        if known is not None:
            self._send(self.api.put(replace(known, spec=group.spec)))

    def _on_delete_pod_group(self, step: PodGroupStep) -> None:
        self._send(*self.api.drop_group(step.key))

    def _on_add_node(self, step: PodGroupStep) -> None:
        self._send(self._put_node(convert(step.object, Node)))

    def _put_node(self, node: Node) -> Event:
        self.nodes[node.name] = node
        return happened.NodeAdded(node)

    def _on_update_node(self, step: PodGroupStep) -> None:
        node = convert(step.object, Node)
        if node.name in self.nodes:
            self.nodes[node.name] = node
            self._send(happened.NodeUpdated(node))

    def _on_remove_node(self, step: PodGroupStep) -> None:
        node = self.nodes.pop(step.node, None)
        if node is not None:
            self._send(happened.NodeDeleted(node))

    def _on_fail_bind(self, step: PodGroupStep) -> None:
        self.api.refused.add(step.key)

    def _on_fail_reserve(self, step: PodGroupStep) -> None:
        self.refused_reserve.add(step.key)

    def _on_advance(self, step: PodGroupStep) -> None:
        self._perform(self.scheduler.handle([], self.now, heads_max=0))
        self.scheduler.queue.flush_backoff(self.now)
        self.scheduler.queue.flush_unschedulable(self.now)

    # Effects.

    def _send(self, *events: Event) -> None:
        for event in events:
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        self._perform(self.scheduler.handle([event], self.now, heads_max=0))

    def _perform(self, effects: list[Effect], *, in_cycle: bool = False) -> None:
        """Carry out effects and what follows from them; then watches show what was written: first
        by the cycle itself, then by bindings and evictions, in order of arrival of the pods."""
        first: list[Event] = []
        later: list[tuple[tuple[bool, int], Event]] = []
        due = self._written(effects, first, later, in_cycle=in_cycle)
        while due:
            due.sort(key=lambda one: one[0])
            (rank, effect), *due = due
            outcome, seen = self._request(effect)
            later += [(rank, event) for event in seen]
            more = self.scheduler.handle([outcome], self.now, heads_max=0)
            due += self._written(more, first, later, in_cycle=False)
        later.sort(key=lambda one: one[0])
        for event in [*first, *(event for _, event in later)]:
            self._deliver(event)

    def _written(
        self,
        effects: list[Effect],
        first: list[Event],
        later: list[tuple[tuple[bool, int], Event]],
        *,
        in_cycle: bool,
    ) -> list[tuple[tuple[bool, int], Effect]]:
        """Carry out the writes of status at once; returns the other requests with their ranks."""
        due: list[tuple[tuple[bool, int], Effect]] = []
        for effect in effects:
            match effect:
                case to_do.PatchStatus():
                    key = f"{effect.namespace}/{effect.name}"
                    events = self.api.patch_status(effect)
                    if in_cycle and effect.reason and key in self.cycle_pods:
                        first += events
                    else:
                        later += [((False, self.api.arrivals.get(key, 0)), e) for e in events]
                case to_do.PatchGroup():
                    first += self.api.patch_group(effect)
                    group = self.api.groups.get(f"{effect.namespace}/{effect.name}")
                    if group is not None:
                        self.log.attempt.setdefault("condition", {})[group.key] = condition_of(
                            group
                        )
                case to_do.RecordEvent():
                    self.log.recorded(effect)
                case to_do.Bind() | to_do.Evict():
                    key = f"{effect.namespace}/{effect.name}"
                    is_last = isinstance(effect, to_do.Evict) and not in_cycle
                    due.append(((is_last, self.api.arrivals.get(key, 0)), effect))
                case to_do.Write():
                    # What PostFilter writes is written in the cycle itself.
                    binds = effect.uid in self.scheduler.bindings
                    due.append(((False, self._arrival(effect.uid) if binds else -1), effect))
                case _:
                    pass
        return due

    def _arrival(self, uid: str) -> int:
        pods = self.api.pods.values()
        return next((self.api.arrivals[pod.key] for pod in pods if pod.uid == uid), 0)

    def _request(self, effect: Effect) -> tuple[Event, list[Event]]:
        """Carry out a request; its outcome, and what watches see later."""
        match effect:
            case to_do.Bind():
                code, reason, seen = self.api.bind(effect)
                if code:
                    return happened.BindFailed(effect.effect, effect.uid, code, reason), []
                key = f"{effect.namespace}/{effect.name}"
                self.log.attempt.setdefault("bound", {})[key] = effect.node
                return happened.BindDone(effect.effect, effect.uid), seen
            case to_do.Evict():
                evicted = self.api.evict(effect)
                if evicted is None:
                    return happened.EvictFailed(effect.effect, effect.uid, NOT_FOUND), []
                key = f"{effect.namespace}/{effect.name}"
                self.log.attempt.setdefault("evicted", []).append(key)
                return happened.EvictDone(effect.effect, effect.uid), evicted
            case to_do.Write():
                written = self.api.write(effect)
                if written is None:
                    text = "the object has been modified"
                    return happened.WriteFailed(effect.effect, effect.uid, CONFLICT, text), []
                version, (seen_now,) = written
                # Writes to claims are seen at once.
                self.scheduler.handle([seen_now], self.now, heads_max=0)
                return happened.WriteDone(effect.effect, effect.uid, version), []
            case _:
                raise TypeError(f"no request: {effect}")

    # State.

    def _observed(self) -> Answer:
        queue = self.scheduler.queue
        found: Answer = {"queue": {entry.key: self._place(entry) for entry in queue}}
        groups = self.scheduler.pod_groups
        if groups is not None:
            found["groups"] = {
                key: {
                    "all": len(state.pods),
                    "unscheduled": len(state.unscheduled),
                    "assumed": len(state.assumed),
                    "assigned": len(state.assigned),
                }
                for key in groups
                if (state := groups.get(key)) is not None
            }
        waiting = self.scheduler.waiting_pods
        found["waiting"] = {one.pod.key: one.node_name for one in waiting}
        found["nominator"] = {
            node: sorted(info.pod.key for info in queue.nominator.on(node))
            for node in queue.nominator.nodes()
            if node
        }
        claims = [one for one in self.api.objects.values() if isinstance(one, ResourceClaim)]
        if claims:
            found["claims"] = {one.key: _claim(one) for one in claims}
        return found

    def _place(self, entry: PodRecord) -> Answer:
        queue = self.scheduler.queue
        found: Answer = {}
        if entry.key in queue.active:
            found["in"] = "active"
        elif entry.key in queue.backoff.refused:
            found["in"] = "backoff"
        elif entry.key in queue.backoff.failed:
            found["in"] = "errorBackoff"
        else:
            found["in"] = "gated" if entry.gated_by else "unschedulable"
        if entry.gated_by:
            found["gate"] = entry.gated_by
        if entry.refused_by:
            found["plugins"] = sorted(entry.refused_by)
        if entry.pending_on:
            found["pending"] = sorted(entry.pending_on)
        counts = {
            "attempts": entry.attempts,
            "unschedulableCount": entry.refusals,
            "errorCount": entry.errors,
        }
        return found | {name: count for name, count in counts.items() if count}


def _snake(op: str) -> str:
    """`addPod` as `add_pod`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in op)


def _pending(pod: Pod) -> Answer:
    found: Answer = {}
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            found = {"reason": condition.reason, "message": condition.message}
    if pod.status.nominated_node_name:
        found["nominatedNodeName"] = pod.status.nominated_node_name
    return found


def _claim(claim: ResourceClaim) -> Answer:
    found: Answer = {}
    allocation = claim.status.allocation
    if allocation is not None:
        found["allocated"] = [
            f"{one.request}={one.driver}/{one.pool}/{one.device}"
            for one in allocation.devices.results
        ]
    if claim.status.reserved_for:
        found["reservedFor"] = sorted(f"{r.resource}/{r.name}" for r in claim.status.reserved_for)
    return found
