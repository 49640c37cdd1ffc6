"""VolcanoSession: the state of one session, and what actions do to it.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session.go, statement.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode, HyperNodeTree
from stowplan.batch.queue_models.volcano.pod_rules import (
    PASSES,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    PodRules,
)
from stowplan.batch.queue_models.volcano.queue_books import QueueBooks
from stowplan.batch.queue_models.volcano.session_nodes.free_columns import FreeColumns
from stowplan.batch.queue_models.volcano.session_nodes.kind_columns import KindColumns
from stowplan.batch.queue_models.volcano.session_nodes.node_selection import NodeSelection
from stowplan.batch.queue_models.volcano.session_nodes.predicate_failures import PredicateFailures
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, total_of
from stowplan.batch.queue_models.volcano.volcano_defects import BOUND_RUNS
from stowplan.batch.queue_models.volcano.volcano_hooks import HookTable, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session_job import (
    VolcanoSessionJob,
    VolcanoSubJob,
    soft_to_hard,
)
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.framework.deciders.heap import Heap, HeapByKey
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.podgroup import NetworkTopology
from stowplan.objects.workload import PodDisruptionBudget

PluginBuilder = Callable[..., VolcanoPlugin]
DeviceRequests = Mapping[str, Mapping[tuple[str, str], int]]


class EvictionCause(msgspec.Struct, frozen=True):
    """Why a task was evicted. preemptor: uid of the task that gets its resources, "" for none.
    decided_by: tier and plugins that agreed on it."""

    action: str
    preemptor: str = ""
    decided_by: str = ""


class VolcanoCluster:
    """What a session opens on. tasks: of all pods, those without a job too.

    now: seconds since 1970. time_of_day: minutes since midnight. device_requests: task -> claim ->
    (device class, dimension) -> amount. books: sums of the session before. last_runs: plugin ->
    when it last chose victims.
    """

    def __init__(
        self,
        jobs: Mapping[str, VolcanoSessionJob],
        nodes: Mapping[str, VolcanoNode],
        queues: Mapping[str, VolcanoQueue],
        hyper_nodes: Iterable[HyperNode] = (),
        budgets: Sequence[PodDisruptionBudget] = (),
        now: float = 0.0,
        time_of_day: int = 0,
        device_requests: Mapping[str, DeviceRequests] | None = None,
        books: QueueBooks | None = None,
        last_runs: dict[str, float] | None = None,
    ) -> None:
        self.jobs, self.nodes, self.queues = jobs, nodes, queues
        self.tree = HyperNodeTree(hyper_nodes, nodes)
        self.budgets = budgets
        self.now, self.time_of_day = now, time_of_day
        self.device_requests = device_requests or {}
        self.books: QueueBooks = {} if books is None else books
        self.last_runs: dict[str, float] = {} if last_runs is None else last_runs


class VolcanoSession:
    """One session.

    binds: pod -> node, of committed placements. evicted: tasks whose eviction was committed.
    nominations: pod -> node where it waits for what was evicted for it; to be written to the pod.
    total: allocatable resources of all nodes. guaranteed: to all queues together. action: the one
    that runs. eviction_causes: by uid of the evicted task.
    """

    def __init__(
        self,
        cluster: VolcanoCluster,
        options: VolcanoOptions,
        rules: PodRules,
        builders: Mapping[str, PluginBuilder],
    ) -> None:
        """builders: plugin -> its class. Plugins without one are ignored."""
        self.cluster, self.options, self.rules = cluster, options, rules
        self.jobs, self.nodes, self.queues = cluster.jobs, cluster.nodes, cluster.queues
        self.tree = cluster.tree
        self.node_list = list(self.nodes.values())
        self._free = FreeColumns(self.node_list)
        self._rows = np.array([node.row for node in self.node_list], dtype=np.int64)
        self._all_places = np.arange(len(self.node_list), dtype=np.int64)
        self._placed: tuple[Sequence[VolcanoNode], Ints] = (), np.zeros(0, dtype=np.int64)
        limits = [node.allocatable.pods_max for node in self.node_list]
        self.pod_limits = np.array(limits, dtype=np.int64)
        self._below: dict[str, list[VolcanoNode]] = {}
        self.total = total_of(node.allocatable for node in self.node_list)
        self.guaranteed = total_of(
            VolcanoAmount.of(queue.queue.spec.guarantee.resource) for queue in self.queues.values()
        )
        self.binds: dict[str, str] = {}
        self.evicted: list[VolcanoTask] = []
        self.action = ""
        self.eviction_causes: dict[str, EvictionCause] = {}
        self.nominations: dict[str, str] = {}
        self._bound: set[str] = set()
        self._resolve_topologies()
        self.plugins: dict[str, VolcanoPlugin] = {}
        for tier in options.tiers:
            for entry in tier:
                if entry.name in builders:
                    plugin = self.plugins[entry.name] = builders[entry.name](entry.arguments)
                    plugin.open(self)
        self.hooks = HookTable(options.tiers, self.plugins, options.mends)
        # Heaps compare by them very often.
        self._queue_order = self.hooks.all("queue_order")
        self._job_order = self.hooks.all("job_order")
        self._task_order = self.hooks.all("task_order")
        self._job_keys = self.hooks.keys("job_order", "job_key")
        self._task_keys = self.hooks.keys("task_order", "task_key")
        self.kind_columns = KindColumns(self.node_list, self._rows, self._free, self.hooks)
        # Plugins that count what is placed.
        self._counting = [
            plugin
            for plugin in self.plugins.values()
            if type(plugin).allocated is not VolcanoPlugin.allocated
            or type(plugin).released is not VolcanoPlugin.released
        ]

    # Topology.

    def _resolve_topologies(self) -> None:
        tree = self.tree
        for job in self.jobs.values():
            if not (job.may_have_topology and job.has_topology):
                continue
            job.topology = self._named_tier(job.topology)
            for sub_job in job.sub_jobs.values():
                sub_job.topology = self._named_tier(sub_job.topology)
            job.topology = soft_to_hard(job.topology, tree.top.tier)
            stated = job.topology.highest_tier_allowed if job.topology is not None else None
            tier_max = tree.top.tier if stated is None else stated
            for sub_job in job.sub_jobs.values():
                sub_job.topology = soft_to_hard(sub_job.topology, tier_max)
            self._find_allocated_hyper_nodes(job)

    def _named_tier(self, topology: NetworkTopology | None) -> NetworkTopology | None:
        """A topology with the tier that it names as a number."""
        if topology is None or topology.highest_tier_allowed is not None:
            return topology
        tier = self.tree.tier_of_name.get(topology.highest_tier_name)
        return topology if tier is None else NetworkTopology(topology.mode, tier)

    def _find_allocated_hyper_nodes(self, job: VolcanoSessionJob) -> None:
        """The HyperNodes that its placed tasks use."""
        tree = self.tree
        for sub_job in job.sub_jobs.values():
            if sub_job.topology is not None:
                nodes = {task.node for task in sub_job.tasks.values() if _is_placed(task)}
                sub_job.allocated_hyper_node = tree.lowest_above(nodes)
        common = ""
        for sub_job in job.sub_jobs.values():
            if sub_job.allocated_hyper_node:
                common = tree.common_ancestor(common, sub_job.allocated_hyper_node)
        job.allocated_hyper_node = common

    def nodes_of(self, hyper_node: str) -> list[VolcanoNode]:
        """The nodes below a HyperNode."""
        if hyper_node not in self.tree:
            return []
        found = self._below.get(hyper_node)
        if found is None:
            names = self.tree[hyper_node].nodes
            is_all = len(names) == len(self.node_list)
            found = self.node_list if is_all else [self.nodes[name] for name in names]
            self._below[hyper_node] = found
        return found

    # Order.

    def queue_before(self, left: VolcanoQueue, right: VolcanoQueue) -> bool:
        """True if `left` comes before `right`."""
        for call in self._queue_order:
            found: int = call(left, right)
            if found:
                return found < 0
        return (left.created, left.name) < (right.created, right.name)

    def job_before(self, left: VolcanoSessionJob, right: VolcanoSessionJob) -> bool:
        """True if `left` comes before `right`."""
        for call in self._job_order:
            found: int = call(left, right)
            if found:
                return found < 0
        return (left.created, left.uid) < (right.created, right.uid)

    def task_before(self, left: VolcanoTask, right: VolcanoTask) -> bool:
        """True if `left` comes before `right`."""
        for call in self._task_order:
            found: int = call(left, right)
            if found:
                return found < 0
        return left.comes_before(right)

    def job_heap(self, jobs: Iterable[VolcanoSessionJob]) -> Heap[VolcanoSessionJob]:
        """Jobs in the order of `job_before`, which must not change for any while it is in the
        heap."""
        keys = self._job_keys
        if keys is None:
            return Heap(self.job_before, jobs)
        return HeapByKey(lambda job: (*[key(job) for key in keys], job.created, job.uid), jobs)

    def task_heap(self, tasks: Sequence[VolcanoTask]) -> Heap[VolcanoTask]:
        """Pending tasks in the order of `task_before`; none is pushed later."""
        keys = self._task_keys
        if keys is not None and len(tasks) == 1:
            return HeapByKey(lambda _: 0, tasks)
        # The index counts between tasks that both have one, which makes no order otherwise.
        n_indexed = sum([task.index is not None for task in tasks])
        if keys is None or n_indexed not in (0, len(tasks)):
            return Heap(self.task_before, tasks)
        return HeapByKey(
            lambda task: (*[key(task) for key in keys], task.index or 0, task.created, task.uid),
            tasks,
        )

    def sub_job_heap(
        self, sub_job: VolcanoSubJob, *, with_admission: bool
    ) -> Heap[VolcanoTask] | None:
        """Tasks of a sub-group to place, in order; None for none. with_admission: also those that
        wait for Volcano's own gate. It is kept until a task of the sub-group changes."""
        names = None
        if self._task_keys is not None:
            # Keys of tasks depend on the task alone.
            names = tuple([key.__self__.name for key in self._task_keys])  # type: ignore[attr-defined]
            kept = sub_job.kept_order
            if kept is not None and kept[0] == (sub_job.version, with_admission, names):
                return HeapByKey.of_pairs(kept[1]) if kept[1] else None
        tasks = [
            task
            for task in sub_job.of(TaskStatus.PENDING)
            if not task.is_best_effort
            and not (task.is_gated_by_others if with_admission else task.is_gated)
        ]
        heap = self.task_heap(tasks) if tasks else None
        if heap is None or isinstance(heap, HeapByKey):
            pairs = () if heap is None else heap.pairs
            sub_job.kept_order = (sub_job.version, with_admission, names), pairs
        return heap

    def sub_job_before(self, left: VolcanoSubJob, right: VolcanoSubJob) -> bool:
        """True if `left` comes before `right`."""
        found = self.hooks.first_difference("sub_job_order", left, right)
        if found:
            return found < 0
        return (left.match_index, left.uid) < (right.match_index, right.uid)

    def victim_queue_before(
        self, left: VolcanoQueue, right: VolcanoQueue, reclaimer: VolcanoQueue
    ) -> bool:
        """True if victims of `left` come before those of `right`."""
        found = self.hooks.first_difference("victim_queue_order", left, right, reclaimer)
        return found < 0 if found else not self.queue_before(left, right)

    def victim_heap(
        self, victims: Iterable[VolcanoTask], preemptor: VolcanoTask
    ) -> Heap[VolcanoTask]:
        """Victims, the first to evict on top."""
        jobs, hooks = self.jobs, self.hooks
        own = jobs.get(preemptor.job)

        def before(left: VolcanoTask, right: VolcanoTask) -> bool:
            if left.job == right.job:
                return not self.task_before(left, right)
            first, second = jobs.get(left.job), jobs.get(right.job)
            if first is None or second is None:
                if first is None and second is None:
                    return not self.task_before(left, right)
                return first is None
            if own is not None and first.queue != second.queue:
                queues = self.queues
                return self.victim_queue_before(
                    queues[first.queue], queues[second.queue], queues[own.queue]
                )
            found = hooks.first_difference("job_order", first, second)
            return found > 0 if found else not self.task_before(left, right)

        return Heap(before, victims)

    # Questions about jobs.

    def is_ready(self, job: VolcanoSessionJob) -> bool:
        """True if enough of the job is placed."""
        return self.hooks.everyone("job_ready", job)

    def is_pipelined(self, job: VolcanoSessionJob) -> bool:
        """True if enough of the job is placed or waits for resources."""
        return self.hooks.vote("job_pipelined", job)

    def is_starving(self, job: VolcanoSessionJob) -> bool:
        """True if evictions may help the job."""
        return self.hooks.first_tier("job_starving", job)

    def is_valid(self, job: VolcanoSessionJob) -> bool:
        """True if the job has enough tasks."""
        return not any(call(job) for call in self.hooks.all("job_valid"))

    def is_sub_job_ready(self, job: VolcanoSessionJob, sub_job: VolcanoSubJob) -> bool:
        """True if enough of a sub-group is placed."""
        if not job.has_sub_groups:
            return self.is_ready(job)
        return self.hooks.everyone("sub_job_ready", sub_job)

    def is_sub_job_pipelined(self, job: VolcanoSessionJob, sub_job: VolcanoSubJob) -> bool:
        """True if enough of a sub-group is placed or waits for resources."""
        if not job.has_sub_groups:
            return self.is_pipelined(job)
        return self.hooks.vote("sub_job_pipelined", sub_job)

    def may_allocate(self, queue: VolcanoQueue, task: VolcanoTask) -> bool:
        """True if the queue may have one more task."""
        return self.hooks.everyone("allocatable", queue, task)

    def has_pending(self, job: VolcanoSessionJob) -> list[VolcanoTask]:
        """Pending tasks without a scheduling gate."""
        return [task for task in job.of(TaskStatus.PENDING) if not task.is_gated]

    # Nodes.

    def prepare(self, task: VolcanoTask) -> bool:
        """Compute what predicates read; False if the task fits nowhere."""
        return self.hooks.everyone("pre_predicate", task)

    def codes(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """int64 (n_nodes,): the first code of the predicates that is not PASSES."""
        codes = np.zeros(len(nodes), dtype=np.int64)
        for call in self.hooks.all("predicate"):
            asked = np.flatnonzero(codes == PASSES)
            if asked.shape[0] == 0:
                break
            given = nodes if asked.shape[0] == len(nodes) else self.pick(nodes, asked)
            codes[asked] = call(task, given)
        return codes

    def candidates_for(self, task: VolcanoTask) -> list[VolcanoNode]:
        """Nodes on which evictions could help, by what is known of them."""
        job = self.jobs.get(task.job)
        skipped = job.infeasible.get(task.uid) if job is not None else None
        if not skipped:
            return self.node_list
        return [node for node in self.node_list if node.name not in skipped]

    def scores(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats | None:
        """float64 (n_nodes,): sums of the scores; None if they cannot be computed at all.

        A node for which a plugin fails has only the scores that look at all nodes together.
        """
        order = np.zeros(len(nodes), dtype=np.float64)
        for call in self.hooks.all("node_order"):
            order += call(task, nodes)
        batch = np.zeros(len(nodes), dtype=np.float64)
        for call in self.hooks.all("batch_node_order"):
            found = call(task, nodes)
            if found is None:
                return None
            batch += found
        total: Floats = np.where(np.isnan(order), 0.0, order) + batch
        return total

    def best_node(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> VolcanoNode | None:
        """The node with the highest score, the first of several; None if none can be scored."""
        if len(nodes) == 1:
            return nodes[0]
        scores = self.scores(task, nodes)
        if scores is None or not nodes:
            return None
        best: int = int(np.argmax(scores))
        return nodes[best]

    # Changes. Each undoes itself if a plugin refuses.

    def place(self, task: VolcanoTask, node: VolcanoNode, status: TaskStatus) -> bool:
        """Place a task on a node, allocated or pipelined."""
        job = self.jobs[task.job]
        job.move(task, status)
        task.node = node.name
        is_added = node.add(task)
        if not (self._notify_allocated(task) and is_added):
            self.displace(task)
            return False
        return True

    def displace(self, task: VolcanoTask) -> None:
        """Undo a placement."""
        node = self.nodes.get(task.node)
        if node is not None:
            node.remove(task)
        self.jobs[task.job].move(task, TaskStatus.PENDING)
        self._notify_released(task)
        task.node = task.near = ""

    def evict(self, task: VolcanoTask) -> None:
        """Begin to release a task."""
        if task.status is TaskStatus.BOUND:
            self._bound.add(task.uid)
        self._change_status(task, TaskStatus.RELEASING)
        self._notify_released(task)

    def commit_evict(self, task: VolcanoTask, preemptor: str = "") -> None:
        """Commit an eviction. preemptor: uid of the task that gets its resources."""
        self.evicted.append(task)
        cause = EvictionCause(self.action, preemptor, self.hooks.agreed_in)
        self.eviction_causes[task.uid] = cause

    def undo_evict(self, task: VolcanoTask) -> None:
        """Undo an eviction."""
        was_bound = task.uid in self._bound and BOUND_RUNS in self.options.mends
        self._bound.discard(task.uid)
        self._change_status(task, TaskStatus.BOUND if was_bound else TaskStatus.RUNNING)
        self._notify_allocated(task)

    def _change_status(self, task: VolcanoTask, status: TaskStatus) -> None:
        node, job = self.nodes.get(task.node), self.jobs.get(task.job)
        if node is not None:
            node.remove(task)
        if job is not None:
            job.move(task, status)
        else:
            task.status = status
        if node is not None:
            node.add(task)

    def _notify_allocated(self, task: VolcanoTask) -> bool:
        # Every plugin is notified, also after one has refused.
        is_accepted = True
        for plugin in self._counting:
            is_accepted &= plugin.allocated(task)
        return is_accepted

    def _notify_released(self, task: VolcanoTask) -> None:
        for plugin in self._counting:
            plugin.released(task)

    def bind(self, task: VolcanoTask) -> None:
        """Commit a placement."""
        self.jobs[task.job].move(task, TaskStatus.BINDING)
        self.binds[task.key] = task.node

    def with_room(self, task: VolcanoTask, nodes: Sequence[VolcanoNode], *, later: bool) -> Bools:
        """bool (n_nodes,): nodes that have the resources idle. later: or will have them. Read-only
        for all nodes."""
        return self._free.fits(task.request, self.places_of(nodes), later=later)

    def lacking(self, task: VolcanoTask) -> dict[str, Bools]:
        """Requested resource -> bool (n_nodes,): nodes of the session that have too little of it,
        with what is being released."""
        return self._free.lacking(task.request)

    def places_of(self, nodes: Sequence[VolcanoNode]) -> Ints | slice:
        """int64 (n_nodes,): positions of nodes in the session; a slice for all."""
        if nodes is self.node_list:
            return slice(None)
        if isinstance(nodes, NodeSelection):
            return nodes.places
        # Consecutive questions are about the same nodes.
        if self._placed[0] is not nodes or len(nodes) != len(self._placed[1]):
            places = np.fromiter((n.place for n in nodes), dtype=np.int64, count=len(nodes))
            self._placed = nodes, places
        return self._placed[1]

    def pick(self, nodes: Sequence[VolcanoNode], indices: Ints) -> NodeSelection:
        """The nodes at these positions of a sequence of nodes."""
        return NodeSelection(self.node_list, self._all_places[self.places_of(nodes)][indices])

    def rows_of(self, nodes: Sequence[VolcanoNode]) -> Ints:
        """int64 (n_nodes,): their rows in the node table."""
        rows: Ints = self._rows[self.places_of(nodes)]
        return rows

    def predicate_nodes(
        self,
        task: VolcanoTask,
        nodes: Sequence[VolcanoNode],
        failures: PredicateFailures,
        *,
        with_amounts: bool,
        allows_eviction: bool,
    ) -> Sequence[VolcanoNode]:
        """Nodes that pass the predicates; others are added to `failures`.

        with_amounts: they must have, or get, the resources. allows_eviction: a node also passes
        where evictions could help.
        """
        places = self._all_places[self.places_of(nodes)]
        known = failures.of(task)
        found = np.zeros(len(nodes), dtype=np.int64) if known is None else known[places]
        if with_amounts:
            has_room = self.with_room(task, nodes, later=True)
            found[(found == PASSES) & ~has_room] = UNSCHEDULABLE
        asked_at = np.flatnonzero(found == PASSES)
        asked = nodes if asked_at.shape[0] == len(nodes) else self.pick(nodes, asked_at)
        codes = self.codes(task, asked)
        passing = asked
        if codes.any():
            passes = codes == PASSES
            if allows_eviction:
                passes |= codes != UNRESOLVABLE
            found[asked_at] = np.where(passes, PASSES, codes)
            passing = self.pick(asked, np.flatnonzero(passes))
        failures.record(task, places, found)
        return passing


def _is_placed(task: VolcanoTask) -> bool:
    return bool(task.node) and task.status in (
        TaskStatus.BOUND,
        TaskStatus.BINDING,
        TaskStatus.RUNNING,
        TaskStatus.ALLOCATED,
    )
