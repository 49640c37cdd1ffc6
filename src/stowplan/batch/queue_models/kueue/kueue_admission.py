"""Kueue's admission as a whole: queues, quota in use, cycles, and what happens between them.

Source: Kueue, pkg/scheduler, pkg/cache, pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stowplan.batch.queue_models.kueue.admission_cycle import AdmissionCycle, required_checks
from stowplan.batch.queue_models.kueue.admission_order import AdmissionEntry
from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue, AdmissionSnapshot
from stowplan.batch.queue_models.kueue.admission_rules import is_well_formed
from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    AdmissionWorkload,
    PlaceUse,
)
from stowplan.batch.queue_models.kueue.flavor_assignment import WAITING_FOR_QUOTA
from stowplan.batch.queue_models.kueue.kueue_objects import (
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    KueueLimitRange,
    KueueNamespace,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.pending_workloads import (
    AFTER_NOMINATION,
    NAMESPACE_MISMATCH,
    PendingWorkloads,
)
from stowplan.batch.queue_models.kueue.preemption.eviction_memory import EvictionMemory
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage
from stowplan.batch.queue_models.kueue.quota.quota_tree import (
    QuotaNode,
    QuotaTree,
    quotas_of,
    weight_of,
)
from stowplan.batch.queue_models.kueue.second_pass import SecondPassQueue, needs_second_pass
from stowplan.batch.queue_models.kueue.topology.topology_places import TopologyPlaces
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import label_selector_matches

NODE_FAILURES = "NodeFailures"
_REQUEUED_AT_ONCE = (PREEMPTED, NODE_FAILURES)


@dataclass(frozen=True)
class KueueObjects:
    """Objects of a cluster. now: seconds."""

    cluster_queues: Sequence[KueueClusterQueue] = ()
    cohorts: Sequence[Cohort] = ()
    local_queues: Sequence[LocalQueue] = ()
    resource_flavors: Sequence[ResourceFlavor] = ()
    topologies: Sequence[Topology] = ()
    admission_checks: Sequence[AdmissionCheck] = ()
    workloads: Sequence[Workload] = ()
    namespaces: Sequence[KueueNamespace] = ()
    limit_ranges: Sequence[KueueLimitRange] = ()
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    now: float = 0.0


@dataclass
class CycleOutcome:
    """What a cycle did.

    heads: that were taken. order: those nominated, as they were processed. admitted: to entries.
    preempted: victim -> (reason, preemptor). evicted: -> reason.
    """

    heads: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    admitted: dict[str, AdmissionEntry] = field(default_factory=dict)
    preempted: dict[str, tuple[str, str]] = field(default_factory=dict)
    evicted: dict[str, str] = field(default_factory=dict)

    @property
    def has_effect(self) -> bool:
        """Whether anything was admitted or evicted."""
        return bool(self.admitted or self.preempted or self.evicted)


class KueueAdmission:
    """The state of admission. Times are in seconds.

    workloads: all that have not ended, by key. pending: waiting ones, by ClusterQueue. usage: of
    LocalQueues; None where it does not count.
    """

    def __init__(self, objects: KueueObjects, options: KueueOptions) -> None:
        self.objects = objects
        self.options = options
        self.now = objects.now
        self.cycle = 0
        self._specs = {one.name: one for one in objects.cluster_queues}
        self._cohort_specs = {one.name: one for one in objects.cohorts}
        self._flavors = {one.name: one for one in objects.resource_flavors}
        self._local = {
            f"{one.metadata.namespace}/{one.name}": one.spec.cluster_queue
            for one in objects.local_queues
            if one.spec.stop_policy in (None, "None")
        }
        self._owners = {
            f"{one.metadata.namespace}/{one.name}": one.spec.cluster_queue
            for one in objects.local_queues
        }
        self.pending = {
            name: PendingWorkloads(one.spec.queueing_strategy) for name, one in self._specs.items()
        }
        self.workloads: dict[str, AdmissionWorkload] = {}
        self.second_pass = SecondPassQueue()
        self.evictions = EvictionMemory()
        self.queues: dict[str, AdmissionQueue] = {}
        self.usage: LocalQueueUsage | None = None
        if options.usage is not None:
            self.usage = LocalQueueUsage(options.usage, objects.local_queues, self.now)
        self._generations = dict.fromkeys(self._specs, 1)
        self._namespaces: dict[str, frozenset[str]] = {}
        self._names_below: dict[QuotaNode, list[str]] = {}
        self._build()
        self.add(objects.workloads)

    def add(self, workloads: Iterable[Workload]) -> None:
        """New workloads: they wait, or hold the quota that their status names."""
        for one in workloads:
            held = AdmissionWorkload(one, self.options)
            self.workloads[held.key] = held
            self._tree_changed(self._local.get(held.queue_name, ""))
            if held.is_condition(FINISHED):
                del self.workloads[held.key]
            elif held.holds_quota and one.status.admission is not None:
                self._hold(held)
                self.second_pass.add(held, self.now)
            else:
                self._wait(held)

    def finish(self, keys: Iterable[str]) -> None:
        """Workloads end."""
        names: dict[str, None] = {}
        for key in keys:
            one = self.workloads.pop(key, None)
            if one is None:
                continue
            self.second_pass.forget(key)
            self.evictions.finished(key)
            self._drop_penalty(one)
            name = self._free(one) if one.holds_quota else self._local.get(one.queue_name, "")
            if name in self.pending:
                self.pending[name].forget(one)
            self._tree_changed(name)
            names[name] = None
        self._activate_trees(names)

    def replace(self, workload: Workload) -> None:
        """A workload has changed, in what it asks for or in what it holds."""
        old = self.workloads.pop(workload.key, None)
        if old is not None:
            self.second_pass.forget(workload.key)
            if old.holds_quota:
                self._free(old)
            if old.cluster_queue in self.pending:
                self.pending[old.cluster_queue].forget(old)
        self.add([workload])
        new = self.workloads.get(workload.key)
        if old is not None and (new is None or _keeps_no_penalty(old, new)):
            self._drop_penalty(old)
        if old is not None and old.holds_quota and (new is None or new.usage != old.usage):
            self._activate(old.cluster_queue)

    def change(self, queues: Iterable[KueueClusterQueue], cohorts: Iterable[Cohort]) -> None:
        """Replace queues and cohorts, or add them."""
        queues, cohorts = list(queues), list(cohorts)
        before = {name: _quota_key(one) for name, one in self.queues.items()}
        for queue in queues:
            self._specs[queue.name] = queue
            pending = self.pending.setdefault(queue.name, PendingWorkloads(""))
            pending.strategy = queue.spec.queueing_strategy
        for cohort in cohorts:
            self._cohort_specs[cohort.name] = cohort
        self._build()
        self.evictions.quota_changed(one.node.root.name for one in self.queues.values())
        for name, one in self.queues.items():
            if before.get(name) != _quota_key(one):
                self._generations[name] = self._generations.get(name, 0) + 1
        for name in [one.name for one in queues]:
            self._activate(name)
        roots = {
            self.tree.cohorts[one.name].root for one in cohorts if one.name in self.tree.cohorts
        }
        for name, one in self.queues.items():
            if one.node.root in roots:
                self._activate(name)

    @property
    def has_active(self) -> bool:
        """Whether a workload waits that would be tried."""
        return any(one.has_active for one in self.pending.values())

    def is_active(self, name: str) -> bool:
        """Whether a queue takes part in cycles."""
        return name in self.queues and self.queues[name].node.is_active

    def activate_all(self) -> None:
        """Try all inadmissible workloads again."""
        for name in self.pending:
            self._activate_queue(name)

    def run_cycle(self) -> CycleOutcome | None:
        """One cycle; None if no head can be taken."""
        self.sample_usage(self.now)
        heads = self._second_pass_heads()
        for name, pending in self.pending.items():
            head = pending.pop() if self.is_active(name) else None
            if head is not None:
                heads.append((head, self.queues[name]))
        if not heads:
            return None
        self.cycle += 1
        outcome = CycleOutcome([one.key for one, _ in heads])
        refused: list[AdmissionEntry] = []
        entries: list[AdmissionEntry] = []
        for workload, queue in heads:
            entry = AdmissionEntry(workload, queue)
            (refused if self._is_refused(entry) else entries).append(entry)
        saved = self.tree.saved_usage(queue.node.root for _, queue in heads)
        for _, queue in heads:
            queue.generation = self._generations.get(queue.name, 0)
        cycle = AdmissionCycle(self._snapshot(), self.now)
        cycle.run(entries)
        self.tree.restore(saved)
        outcome.order = [one.workload.key for one in cycle.order]
        # Under fair sharing a queue has one entry in a cycle, the last one.
        processed = set(map(id, cycle.order))
        left = [one for one in entries if id(one) not in processed]
        for entry in left:
            entry.requeue, entry.reason = AFTER_NOMINATION, WAITING_FOR_QUOTA
        for entry in [*cycle.order, *left, *refused]:
            self._settle(entry, outcome)
        return outcome

    def _second_pass_heads(self) -> list[tuple[AdmissionWorkload, AdmissionQueue]]:
        """Workloads of active queues that hold quota and need places."""
        ready = [self.workloads[key] for key in self.second_pass.ready(self.now)]
        return [
            (one, self.queues[one.cluster_queue])
            for one in ready
            if self.is_active(one.cluster_queue)
        ]

    def between_cycles(self) -> None:
        """A second passes; evicted workloads lose their quota and wait again."""
        self.now += 1
        for key in sorted(key for key, one in self.workloads.items() if _is_leaving(one)):
            self.release(key)

    def release(self, key: str) -> None:
        """An evicted workload loses its quota and waits again."""
        one = self.workloads[key]
        name = self._free(one)
        self.second_pass.forget(key)
        one.release(self.now)
        reason = one.conditions[EVICTED].reason
        one.set_condition(REQUEUED, reason in _REQUEUED_AT_ONCE, reason, self.now)
        self._activate(name)
        self._wait(one)

    def _settle(self, entry: AdmissionEntry, outcome: CycleOutcome) -> None:
        """Write what became of an entry into workloads and queues."""
        workload, name = entry.workload, entry.queue.name
        if entry.is_admitted:
            self._admit(entry)
            outcome.admitted[workload.key] = entry
            return
        for target in entry.targets if entry.reason == "WaitingForPreemptedWorkloads" else ():
            victim = target.workload
            if not victim.is_evicted and entry.assignment.mode.name == "PREEMPT":
                victim.set_condition(EVICTED, True, PREEMPTED, self.now)
                victim.set_condition(PREEMPTED, True, target.reason, self.now)
                outcome.preempted[victim.key] = (target.reason, workload.key)
                self.evictions.evicted(workload.key, victim.key, entry.queue.node.root.name)
        if entry.is_evicted:
            workload.set_condition(EVICTED, True, NODE_FAILURES, self.now)
            outcome.evicted[workload.key] = NODE_FAILURES
            self.second_pass.forget(workload.key)
            return
        if needs_second_pass(workload):
            self.second_pass.retry(workload, self.now)
            return
        workload.set_condition(QUOTA_RESERVED, False, entry.reason or "Pending", self.now)
        self.pending[name].requeue(workload, entry.requeue, self.now)

    def _admit(self, entry: AdmissionEntry) -> None:
        workload, queue = entry.workload, entry.queue
        was_admitted = workload.is_condition(ADMITTED)
        if workload.holds_quota:
            self._free(workload)
            self.second_pass.forget(workload.key)
        elif self.usage is not None and queue.is_by_usage:
            requests = queue.counted_requests(workload, self.options)
            self.usage.penalize(workload.queue_name, workload.key, requests)
        workload.reserve(queue.name, entry.assignment.demands(), self.now)
        workload.tried = None
        needed = required_checks(queue.checks, entry.assignment)
        if needed <= set(workload.checks):
            is_ready = all(state == "Ready" for state in workload.checks.values())
            is_delayed = any(one.delayed == "Pending" for one in workload.demands)
            if is_ready and not is_delayed:
                workload.set_condition(ADMITTED, True, ADMITTED, self.now)
        self.pending[queue.name].forget(workload)
        self.evictions.admitted(workload.key)
        self._hold(workload)
        if workload.is_condition(ADMITTED) and not was_admitted:
            self.settle_usage(workload, self.now)
        # The original takes the workload out and puts it in again once its status is written.
        self._generations[queue.name] += 1

    def _is_refused(self, entry: AdmissionEntry) -> bool:
        """Whether a head is not even tried; notes why."""
        workload, queue = entry.workload, entry.queue
        if any(state in ("Retry", "Rejected") for state in workload.checks.values()):
            entry.reason = "PendingEvaluation"
            return True
        if all(one.name != workload.namespace for one in self.objects.namespaces):
            entry.reason = "Misconfigured"
            return True
        if workload.namespace not in self._taken_namespaces(queue.name):
            entry.reason, entry.requeue = "Misconfigured", NAMESPACE_MISMATCH
            return True
        limits = [
            one for one in self.objects.limit_ranges
            if one.metadata.namespace == workload.namespace
        ]  # fmt: skip
        if not is_well_formed(workload.pod_sets, limits):
            entry.reason = "Misconfigured"
            return True
        return False

    def _wait(self, workload: AdmissionWorkload) -> None:
        """Put a workload into its queue, if it has one and may be admitted at all."""
        name = self._local.get(workload.queue_name, "")
        if workload.workload.spec.active is False or name not in self.pending:
            return
        workload.cluster_queue = name
        self.pending[name].push(workload, self.now)

    def _hold(self, workload: AdmissionWorkload) -> None:
        queue = self.queues.get(workload.cluster_queue)
        if queue is not None:
            queue.workloads[workload.key] = workload
            queue.node.add_usage(workload.usage.quota)

    def _free(self, workload: AdmissionWorkload) -> str:
        """Take quota back; the name of the queue."""
        queue = self.queues.get(workload.cluster_queue)
        if queue is not None and workload.key in queue.workloads:
            del queue.workloads[workload.key]
            queue.node.remove_usage(workload.usage.quota)
            self._generations[queue.name] += 1
        return workload.cluster_queue

    # What LocalQueues have used.

    def sample_usage(self, now: float) -> None:
        """Follow usage up to now. Call it before what holds quota changes."""
        if self.usage is not None and self.usage.is_due(now):
            self.usage.sample({key: self.admitted_by(key) for key in self.usage.sampled}, now)

    def settle_usage(self, workload: AdmissionWorkload, now: float) -> None:
        """A workload has just been admitted."""
        queue = self.queues.get(workload.cluster_queue)
        if self.usage is not None and queue is not None and queue.is_by_usage:
            used = self.admitted_by(workload.queue_name)
            self.usage.settle(workload.queue_name, workload.key, used, now)

    def admitted_by(self, local_queue: str) -> dict[str, int]:
        """What admitted workloads of a LocalQueue use: resource -> base units."""
        queue = self.queues.get(self._owners.get(local_queue, ""))
        return {} if queue is None else queue.admitted_by(local_queue)

    def order_may_change_at(self) -> float | None:
        """When the next sample is due that may put another LocalQueue first, in seconds; None
        where usage as it is keeps the order.

        Usage of all comes near to what they use now, at one rate: so two change places at some
        time if the one that used less uses more.
        """
        if self.usage is None:
            return None
        for name, pending in self.pending.items():
            if pending.usage_of is None or not self.is_active(name):
                continue
            locals_ = pending.usage_by_queue(pending.active.values())
            ends = {one: self.usage.tends_to(one, self.admitted_by(one)) for one in locals_}
            ranks = sorted((used, -ends[one]) for one, used in locals_.items())
            in_order = [-end for _, end in ranks]
            if any(a > b for a, b in itertools.pairwise(in_order)):
                return self.usage.next_at()
        return None

    def _drop_penalty(self, workload: AdmissionWorkload) -> None:
        if self.usage is not None:
            self.usage.forget(workload.queue_name, workload.key)

    def _follow_usage(self, usage: LocalQueueUsage) -> None:
        """Let usage order the queues whose admission scope says so."""
        for name, pending in self.pending.items():
            pending.usage_of = usage.of if self.queues[name].is_by_usage else None
        usage.sampled = {key for key, name in self._local.items() if self.is_active(name)}

    def _tree_changed(self, name: str) -> None:
        """The tree of a queue has other workloads."""
        if name in self.queues:
            self.evictions.tree_changed(self.queues[name].node.root.name)

    def _activate(self, name: str) -> None:
        """Try inadmissible workloads of the tree of a queue again."""
        self._activate_trees([name])

    def _activate_trees(self, names: Iterable[str]) -> None:
        """Try inadmissible workloads of the trees of these queues again."""
        roots = {self.queues[name].node.root: None for name in names if name in self.queues}
        for root in roots:
            for other in self._names_below[root]:
                self._activate_queue(other)

    def _activate_queue(self, name: str) -> None:
        self.pending[name].activate(self._taken_namespaces(name), self.now)

    def _taken_namespaces(self, name: str) -> frozenset[str]:
        """Namespaces that a queue takes."""
        found = self._namespaces.get(name)
        if found is None:
            selector = self._specs[name].spec.namespace_selector
            found = self._namespaces[name] = frozenset(
                one.name
                for one in self.objects.namespaces
                if label_selector_matches(selector, one.labels)
            )
        return found

    def _build(self) -> None:
        """Build queues and the tree, and move the workloads that hold quota into them."""
        checks = {one.name: one for one in self.objects.admission_checks}
        topologies = [one.name for one in self.objects.topologies]
        self.queues = {
            name: AdmissionQueue(one, self._flavors) for name, one in self._specs.items()
        }
        cohorts = cohort_nodes(self._specs.values(), self._cohort_specs)
        for name, queue in self.queues.items():
            spec, node = queue.spec, queue.node
            node.quotas = quotas_of(spec.resource_groups)
            node.weight = weight_of(spec.fair_sharing)
            node.is_active = queue.is_ready(checks, topologies)
            if spec.cohort_name in cohorts:
                node.parent = cohorts[spec.cohort_name]
                node.parent.queues.append(node)
            elif spec.cohort_name:
                node.is_active = False
            self._generations.setdefault(name, 1)
        nodes = {name: queue.node for name, queue in self.queues.items()}
        self.tree = QuotaTree(nodes, cohorts)
        self._namespaces = {}
        self._names_below = {}
        for name, queue in self.queues.items():
            self._names_below.setdefault(queue.node.root, []).append(name)
        for one in self.workloads.values():
            if one.holds_quota:
                self._hold(one)
        if self.usage is not None:
            self._follow_usage(self.usage)

    def _snapshot(self) -> AdmissionSnapshot:
        active = {name: one for name, one in self.queues.items() if one.node.is_active}
        return AdmissionSnapshot(
            active,
            self.tree,
            self._flavors,
            self._places(),
            self.options,
            self.cycle,
            self.evictions if self.options.is_fixed else None,
            self.usage,
        )

    def _places(self) -> dict[str, TopologyPlaces]:
        """Domains of all flavors with a topology, with what workloads use."""
        if "TopologyAwareScheduling" not in self.options.gates:
            return {}
        levels = {
            one.name: [level.node_label for level in one.spec.levels]
            for one in self.objects.topologies
        }
        by_node: dict[str, list[Pod]] = {}
        for pod in self.objects.pods:
            if pod.spec.node_name and not pod.is_finished:
                by_node.setdefault(pod.spec.node_name, []).append(pod)
        found = {}
        for name, flavor in self._flavors.items():
            topology = flavor.spec.topology_name
            if topology in levels:
                found[name] = TopologyPlaces(levels[topology], flavor)
                found[name].with_nodes(self.objects.nodes, by_node)
        for queue in self.queues.values():
            for workload in queue.workloads.values():
                for use in workload.usage.places:
                    _use_everywhere(found, use)
        return found


def _is_leaving(workload: AdmissionWorkload) -> bool:
    return workload.is_evicted and workload.holds_quota


def _keeps_no_penalty(old: AdmissionWorkload, new: AdmissionWorkload) -> bool:
    """Whether a workload is in another LocalQueue, or is neither active nor holds quota."""
    is_off = new.workload.spec.active is False and not new.holds_quota
    return is_off or old.queue_name != new.queue_name


def _use_everywhere(places: Mapping[str, TopologyPlaces], use: PlaceUse) -> None:
    """Pods on a node count in every flavor whose topology ends at nodes."""
    own = places.get(use.flavor)
    if own is None:
        return
    for one in places.values() if own.ends_at_nodes else (own,):
        if one is own or one.ends_at_nodes:
            one.change_usage(use, 1)


def _quota_key(queue: AdmissionQueue) -> object:
    """What makes searches for flavors outdated when it changes."""
    root = queue.node.root
    return sorted(_quotas_below(root)), [list(one.flavor_names) for one in queue.groups]


def _quotas_below(node: QuotaNode) -> list[tuple[str, str]]:
    found = [(node.name, repr(sorted(node.quotas.items())))]
    for child in [*node.cohorts, *node.queues]:
        found += _quotas_below(child)
    return found


def cohort_nodes(
    queues: Iterable[KueueClusterQueue], cohorts: Mapping[str, Cohort]
) -> dict[str, QuotaNode]:
    """Cohorts that have an object or are named, but not those in a cycle or below one."""
    parents = {name: one.spec.parent_name for name, one in cohorts.items()}
    named = {one.spec.cohort_name for one in queues} | set(parents.values())
    parents |= {name: "" for name in sorted(named) if name and name not in parents}
    nodes = {}
    for name in parents:
        if not _is_in_cycle(name, parents):
            nodes[name] = QuotaNode(name, is_queue=False)
    for name, node in nodes.items():
        if name in cohorts:
            node.quotas = quotas_of(cohorts[name].spec.resource_groups)
            node.weight = weight_of(cohorts[name].spec.fair_sharing)
        if parents[name]:
            node.parent = nodes[parents[name]]
            node.parent.cohorts.append(node)
    return nodes


def _is_in_cycle(name: str, parents: Mapping[str, str]) -> bool:
    seen = set()
    while name:
        if name in seen:
            return True
        seen.add(name)
        name = parents[name]
    return False
