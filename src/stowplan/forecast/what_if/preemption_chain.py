"""Preemption chain: who is evicted for pods that do not fit, and whom the evicted pods evict.

An evicted pod is created again by its owner, and may preempt pods of still lower priority. Pods are
tried by priority, then in the order in which they come. Between two attempts everything settles:
victims are gone, and the preemptor is on its node. The pending pods of a PodGroup of Kubernetes are
tried together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.assembly import frameworks_for
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.decision import decide
from stowplan.forecast.what_if.group_trials import GroupPreemption
from stowplan.forecast.what_if.loaded_cluster import LoadedCluster
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.counts import count_of
from stowplan.insight.pod_owners import owner_text
from stowplan.insight.pod_placement import Placement, strip_node_counts, unplaced
from stowplan.insight.what_if.budgets import BudgetIndex
from stowplan.insight.what_if.owned_pods import PodCopies, is_created_again
from stowplan.insight.what_if.result import PreemptionStep, Victim
from stowplan.objects.pod import Pod

ATTEMPTS_MAX = 2_000
"""Attempts of one chain; the pods that are left beyond it are not tried."""


class ChainResult(NamedTuple):
    """The end of a chain. placed: pod -> node. pending: pods without a node. loops: pods that were
    evicted twice. untried: pods that the limit left out."""

    steps: tuple[PreemptionStep, ...]
    placed: dict[str, str]
    pending: dict[str, Placement]
    loops: tuple[str, ...]
    untried: tuple[str, ...]


class _Waiting(NamedTuple):
    """A pod to try, or a group by one of its pods. because: the pod or group that evicted it, ""
    for those asked about. group: its key, "" for a pod alone."""

    rank: tuple[int, int]
    pod: Pod
    because: str
    depth: int
    group: str = ""


class PreemptionChain:
    """Runs on a loaded cluster, whose pods it changes until the next `follow`.

    now: end of the time that victims have run; None: unknown. pending: the pods without a node,
    whose group is tried as a whole when one of them is asked about.
    """

    def __init__(
        self,
        loaded: LoadedCluster,
        budgets: BudgetIndex,
        now: datetime | None,
        pending: Iterable[Pod] = (),
    ) -> None:
        deciders = loaded.deciders
        self.loaded = loaded
        self.frameworks = frameworks_for(deciders.configuration, deciders.registry, deciders.gates)
        self.budgets = budgets
        self.now = now
        self.copies = PodCopies()
        self.steps: list[PreemptionStep] = []
        self.placed: dict[str, str] = {}
        self.pending: dict[str, Placement] = {}
        self.loops: dict[str, None] = {}
        self._used: dict[str, int] = {}
        self._evicted: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._n_seen = 0
        # Members of groups that wait, by group.
        self._members: dict[str, dict[str, Pod]] = {}
        self._pending_of: dict[str, list[Pod]] = {}
        if deciders.gates.generic_workload:
            for pod in pending:
                if group_key_of(pod):
                    self._pending_of.setdefault(group_key_of(pod), []).append(pod)
        self._group_preemption: GroupPreemption | None = None
        # Specs that fit nowhere and preempt nothing, since the last eviction.
        self._hopeless: dict[int, Placement] = {}

    def run(self, pods: Iterable[Pod]) -> ChainResult:
        """Try the pods, and all that is evicted for them."""
        for pod in pods:
            self._add(pod, "", 1)
        n_attempts = 0
        while self._waiting and n_attempts < ATTEMPTS_MAX:
            n_attempts += 1
            self._try(heapq.heappop(self._waiting))
        untried = tuple(one.pod.key for one in sorted(self._waiting))
        steps = tuple(self._with_targets(step) for step in self.steps)
        return ChainResult(steps, self.placed, self.pending, tuple(self.loops), untried)

    def _add(self, pod: Pod, because: str, depth: int) -> None:
        self._n_seen += 1
        group = group_key_of(pod) if self.loaded.deciders.gates.generic_workload else ""
        if group:
            is_known = group in self._members
            members = self._members.setdefault(group, {})
            for one in (*self._pending_of.pop(group, ()), pod):
                members[one.key] = one
            if is_known:
                return
        rank = -pod.priority, self._n_seen
        heapq.heappush(self._waiting, _Waiting(rank, pod, because, depth, group))

    def _try(self, waiting: _Waiting) -> None:
        if waiting.group:
            self._try_group(waiting)
            return
        pod = waiting.pod
        known = self._hopeless.get(id(pod.spec))
        if known is not None:
            self.pending[pod.key] = replace(known, pod=pod.key)
            return
        name = self.loaded.profile or pod.spec.scheduler_name
        framework = self.frameworks.get(name)
        if framework is None:
            self.pending[pod.key] = unplaced(pod, no_profile(name))
            return
        gate = framework.run_pre_enqueue(pod)
        if not gate.is_success:
            self.pending[pod.key] = unplaced(pod, gate.message)
            return
        decision = decide(pod, self.loaded.run.scheduler.cache.snapshot(), framework)
        if decision.node_name:
            self._place(pod, decision.node_name)
        elif decision.nominated_node:
            self._preempt(waiting, decision)
        else:
            reason = "; ".join(decision.near_misses) or strip_node_counts(decision.message)
            self.pending[pod.key] = unplaced(pod, reason, decision.message)
            self._hopeless[id(pod.spec)] = self.pending[pod.key]

    def _place(self, pod: Pod, node: str, *, is_of_group: bool = False) -> None:
        self.placed[pod.key] = node
        self.pending.pop(pod.key, None)
        bound = replace(pod, spec=replace(pod.spec, node_name=node))
        self.loaded.put(bound)
        if self._group_preemption is not None and not is_of_group:
            self._group_preemption.put(bound)

    def _preempt(self, waiting: _Waiting, decision: Decision) -> None:
        pod, node = waiting.pod, decision.nominated_node or ""
        gone = [info.pod for info in decision.victims]
        if self._group_preemption is not None:
            self._group_preemption.drop(gone)
        victims = self._evict(gone)
        self._place(pod, node)
        self.steps.append(
            PreemptionStep(pod.key, pod.priority, node, victims, waiting.because, waiting.depth)
        )
        self._create_again(gone, victims, pod.key, waiting.depth + 1)

    def _evict(self, pods: Sequence[Pod]) -> tuple[Victim, ...]:
        victims = tuple(self._victim(pod) for pod in pods)
        self._hopeless.clear()
        self.loaded.drop(pod.key for pod in pods)
        return victims

    def _create_again(
        self, pods: Sequence[Pod], victims: Sequence[Victim], because: str, depth: int
    ) -> None:
        """Let the owners of evicted pods create them again."""
        for victim, pod in zip(victims, pods, strict=True):
            self.placed.pop(victim.pod, None)
            if victim.is_loop:
                self.loops[victim.pod] = None
            elif is_created_again(pod):
                self._add(self.copies.again(pod), because, depth)

    def _try_group(self, waiting: _Waiting) -> None:
        """Try the waiting pods of a group together."""
        members = [self._of_profile(pod) for pod in self._members.pop(waiting.group).values()]
        if self._group_preemption is None:
            # Made here: most chains have no groups.
            simulated = self.loaded.run.cluster
            bound = [pod for pod in simulated.pods.values() if pod.node_name]
            self._group_preemption = GroupPreemption(
                self.loaded.deciders, simulated.nodes.values(), simulated.objects.values(), bound
            )
        found = self._group_preemption.attempt(members)
        for key, reason in found.reasons.items():
            (pod,) = (one for one in members if one.key == key)
            self.pending[key] = unplaced(pod, strip_node_counts(reason), reason)
        victims = self._evict(found.victims)
        for pod in members:
            if pod.key in found.placed:
                self._place(pod, found.placed[pod.key], is_of_group=True)
        if not victims:
            return
        nodes = sorted(set(found.placed.values()))
        node = nodes[0] if len(nodes) == 1 else count_of(len(nodes), "node")
        name = f"podgroup {waiting.group}"
        priority = self._group_preemption.priority_of(waiting.group, members)
        self.steps.append(
            PreemptionStep(name, priority, node, victims, waiting.because, waiting.depth)
        )
        self._create_again(found.victims, victims, name, waiting.depth + 1)

    def _of_profile(self, pod: Pod) -> Pod:
        if not self.loaded.profile:
            return pod
        return replace(pod, spec=replace(pod.spec, scheduler_name=self.loaded.profile))

    def _victim(self, pod: Pod) -> Victim:
        is_loop = pod.key in self._evicted
        self._evicted.add(pod.key)
        violated = []
        for budget in self.budgets.of(pod):
            self._used[budget.key] = self._used.get(budget.key, 0) + 1
            if self._used[budget.key] > budget.status.disruptions_allowed:
                violated.append(budget.key)
        started = pod.status.start_time
        ran_s = None
        if started is not None and self.now is not None:
            ran_s = max(0.0, (self.now - started).total_seconds())
        owner = owner_text(pod)
        return Victim(pod.key, owner, pod.priority, ran_s, tuple(violated), is_loop=is_loop)

    def _with_targets(self, step: PreemptionStep) -> PreemptionStep:
        """The step with where its victims are at the end."""

        def target(victim: Victim) -> str | None:
            if victim.pod in self.placed:
                return self.placed[victim.pod]
            return "" if victim.pod in self.pending else None

        victims = tuple(replace(one, again=target(one)) for one in step.victims)
        return replace(step, victims=victims)
