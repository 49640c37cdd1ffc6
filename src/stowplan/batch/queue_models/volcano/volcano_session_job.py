"""VolcanoSessionJob: a PodGroup with its tasks and sub-groups.

Source: volcano master of 2026-08-20, pkg/scheduler/api/job_info.go and sub_job_info.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

from stowplan.batch.queue_models.volcano.volcano_amount import PODS, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_task import (
    ALLOCATED_STATUSES,
    READY_STATUSES,
    SCHEDULED_STATUSES,
    VALID_STATUSES,
    WAITING_STATUSES,
    VolcanoTask,
    accepted_zone,
    seconds,
    stated_preemptable,
    sum_of_requests,
)
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.encoding import duration
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_scalar
from stowplan.objects.podgroup import (
    HARD_TOPOLOGY,
    SOFT_TOPOLOGY,
    NetworkTopology,
    PodGroup,
    SubGroupPolicy,
)
from stowplan.objects.selectors import label_selector_matches

WAITING_TIMES = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"

PENDING_PHASE, INQUEUE_PHASE, RUNNING_PHASE = "Pending", "Inqueue", "Running"


class TaskCounts:
    """Tasks by status.

    n_ready: tasks that are placed or have succeeded. n_best_effort: pending tasks that request
    nothing. Both are read for every comparison of jobs.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, VolcanoTask] = {}
        self._by_status: dict[TaskStatus, dict[str, VolcanoTask]] = {}
        # Changes whenever a task enters, leaves or moves.
        self.version = 0
        self.n_ready = 0
        self.n_best_effort = 0

    def of(self, status: TaskStatus) -> Collection[VolcanoTask]:
        """Tasks of one status."""
        found = self._by_status.get(status)
        return () if found is None else found.values()

    def in_statuses(self, statuses: Iterable[TaskStatus]) -> Iterator[VolcanoTask]:
        """Tasks of several statuses."""
        for status in statuses:
            yield from self.of(status)

    def count(self, statuses: Iterable[TaskStatus]) -> int:
        """Number of tasks of several statuses."""
        known = self._by_status
        return sum([len(known[status]) for status in statuses if status in known])

    def statuses(self) -> dict[TaskStatus, int]:
        """Number of tasks per status."""
        return {status: len(tasks) for status, tasks in self._by_status.items() if tasks}

    def enter(self, task: VolcanoTask) -> None:
        """Count a task under its status."""
        uid, status, known = task.uid, task.status, self._by_status
        self.version += 1
        self.tasks[uid] = task
        self._count(task, 1)
        of_status = known.get(status)
        if of_status is None:
            of_status = known[status] = {}
        of_status[uid] = task

    def leave(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        self.version += 1
        if self.tasks.pop(task.uid, None) is not None:
            self._count(task, -1)
        self._by_status.get(task.status, {}).pop(task.uid, None)

    def move(self, task: VolcanoTask, status: TaskStatus) -> None:
        """Count a task that is counted already under another status. The status of the task itself
        changes after this."""
        before, uid, known = task.status, task.uid, self._by_status
        self.version += 1
        # It becomes the last of the tasks.
        del self.tasks[uid]
        self.tasks[uid] = task
        del known[before][uid]
        of_status = known.get(status)
        if of_status is None:
            of_status = known[status] = {}
        of_status[uid] = task
        self.n_ready += (status in READY_STATUSES) - (before in READY_STATUSES)
        if task.is_best_effort:
            pending = TaskStatus.PENDING
            self.n_best_effort += (status is pending) - (before is pending)

    def _count(self, task: VolcanoTask, number: int) -> None:
        if task.status in READY_STATUSES:
            self.n_ready += number
        elif task.status is TaskStatus.PENDING and task.is_best_effort:
            self.n_best_effort += number

    @property
    def n_waiting(self) -> int:
        """Tasks that wait for resources that are being released."""
        return len(self.of(TaskStatus.PIPELINED))

    @property
    def n_allocated(self) -> int:
        """Tasks that are placed."""
        return self.count(ALLOCATED_STATUSES)


class VolcanoSubJob(TaskCounts):
    """A sub-group of a job, or the whole job where it has none.

    group: of the sub-groups of one policy. allocated_hyper_node, nominated_hyper_node: names, ""
    for none.
    """

    def __init__(
        self, uid: str, group: str, job: str, size: int, topology: NetworkTopology | None
    ) -> None:
        super().__init__()
        self.uid, self.group, self.job = uid, group, job
        self.min_available = size
        self.match_index = 0
        self.priority = 0
        self.topology = topology
        self.allocated_hyper_node = ""
        self.nominated_hyper_node = ""
        # Of VolcanoSession.sub_job_heap: what it is valid for, and the tasks with their keys.
        self.kept_order: tuple[Hashable, tuple[tuple[Any, VolcanoTask], ...]] | None = None

    def enter(self, task: VolcanoTask) -> None:
        """Count a task under its status."""
        super().enter(task)
        self.priority = max(self.priority, task.priority)

    @property
    def hard_tier(self) -> int | None:
        """Highest tier that its pods may span; None without such a limit."""
        return hard_tier(self.topology)

    @property
    def is_ready(self) -> bool:
        """True if enough tasks are placed."""
        return self.n_ready + self.n_best_effort >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """True if enough tasks are placed or wait for resources."""
        return self.n_waiting + self.n_ready + self.n_best_effort >= self.min_available

    def pending_request(self) -> VolcanoAmount:
        """Sum of the requests of pending tasks."""
        total = VolcanoAmount()
        for task in self.of(TaskStatus.PENDING):
            total.add(task.request)
        return total


def hard_tier(topology: NetworkTopology | None) -> int | None:
    """The highest allowed tier of a hard network topology."""
    if topology is None or topology.mode != HARD_TOPOLOGY:
        return None
    return topology.highest_tier_allowed


class JobAmounts:
    """What a job counts with in the books of queues; read-only. allocated, pending: sums of
    requests. reserved: see `VolcanoSessionJob.reserved`. elastic: allocated above the minimum."""

    __slots__ = ("allocated", "elastic", "pending", "reserved")

    def __init__(self, job: VolcanoSessionJob) -> None:
        self.allocated = job.allocated
        self.pending = sum_of_requests(job.of(TaskStatus.PENDING))
        self.reserved = job.reserved()
        self.elastic = job.elastic


class VolcanoSessionJob(TaskCounts):
    """A PodGroup in a session.

    phase: of the group, changed by actions. infeasible: task -> nodes that no eviction could make
    suitable; present once placing the task failed.
    """

    def __init__(self, group: PodGroup, priority: int, default_queue: str) -> None:
        super().__init__()
        spec, meta = group.spec, group.metadata
        self.uid, self.name, self.namespace = group.key, group.name, group.namespace
        self.group = group
        self.queue = spec.queue or default_queue
        self.phase = group.status.phase
        self.priority = priority
        self.created = seconds(meta.creation_timestamp)
        self.min_available = spec.min_member
        self.min_by_role = dict(spec.min_task_member)
        self.min_by_role_total = sum(self.min_by_role.values())
        self.accepts_eviction = stated_preemptable(meta, default=False)
        self.revocable_zone = accepted_zone(meta.annotations)
        self.waiting_time_s = _waiting_time(meta.annotations)
        self.keep_available = meta.annotations.get(MIN_AVAILABLE, "")
        self.keep_unavailable = (
            "" if MIN_AVAILABLE in meta.annotations else meta.annotations.get(MAX_UNAVAILABLE, "")
        )
        self.topology = spec.network_topology
        self.may_have_topology = self.topology is not None or any(
            policy.network_topology is not None for policy in spec.sub_group_policy
        )
        # Made when it is read, until a task changes.
        self._allocated: VolcanoAmount | None = None
        # Made when they are first read where pods form none, and follow the tasks from then on.
        self._sub_jobs: dict[str, VolcanoSubJob] | None = {} if spec.sub_group_policy else None
        self._total_request: VolcanoAmount | None = None
        # Tasks -> sub-groups, where pods form any.
        self._sub_job_of: dict[str, str] = {}
        self.min_sub_jobs = {
            f"{self.uid}/{policy.name}": policy.min_sub_groups or 0
            for policy in spec.sub_group_policy
        }
        self.allocated_hyper_node = ""
        self.infeasible: dict[str, frozenset[str]] = {}
        # Both are valid for one group, and the amounts for one phase until a task changes.
        self._least: tuple[PodGroup, VolcanoAmount] | None = None
        self._amounts: tuple[PodGroup, str, JobAmounts] | None = None

    # Tasks.

    def enter(self, task: VolcanoTask) -> None:
        """Count a task under its status."""
        self._amounts = self._allocated = self._total_request = None
        super().enter(task)
        if self._sub_jobs is not None:
            sub_job = self._sub_job_for(self._sub_jobs, task.pod)
            sub_job.enter(task)
            if self.has_sub_groups:
                self._sub_job_of[task.uid] = sub_job.uid

    def leave(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        if task.uid not in self.tasks:
            return
        self._amounts = self._allocated = self._total_request = None
        super().leave(task)
        if self._sub_jobs is not None:
            self._sub_jobs[self._sub_job_of.pop(task.uid, self.uid)].leave(task)

    def move(self, task: VolcanoTask, status: TaskStatus) -> None:
        """Change the status of a task; one that was not counted is from now on."""
        if task.uid not in self.tasks:
            task.status = status
            self.enter(task)
            return
        self._amounts = self._allocated = None
        super().move(task, status)
        if self._sub_jobs is not None:
            self._sub_jobs[self._sub_job_of.get(task.uid, self.uid)].move(task, status)
        task.status = status

    @property
    def allocated(self) -> VolcanoAmount:
        """What its placed tasks request together; read-only."""
        if self._allocated is None:
            self._allocated = sum_of_requests(self.in_statuses(ALLOCATED_STATUSES))
        return self._allocated

    @property
    def sub_jobs(self) -> dict[str, VolcanoSubJob]:
        """Sub-groups by id; the whole job where pods form none."""
        if self._sub_jobs is None:
            self._sub_jobs = {}
            for task in self.tasks.values():
                self._sub_job_for(self._sub_jobs, task.pod).enter(task)
        return self._sub_jobs

    def sub_job_of(self, uid: str) -> str:
        """Id of the sub-group of a task; "" for a task of another job."""
        return self._sub_job_of.get(uid, "" if self.has_sub_groups else self.uid)

    def _sub_job_for(self, known: dict[str, VolcanoSubJob], pod: Pod) -> VolcanoSubJob:
        for policy in self.group.spec.sub_group_policy:
            values = _match_values(policy, pod)
            if values:
                uid = f"{self.uid}/{policy.name}-{'-'.join(values)}"
                return known.get(uid) or self._new_sub_job(uid, policy, values)
        found = known.get(self.uid)
        if found is None:
            size = 1 if self.has_sub_groups else self.min_available
            found = VolcanoSubJob(self.uid, self.uid, self.uid, size, self.topology)
            known[self.uid] = found
        return found

    def _new_sub_job(
        self, uid: str, policy: SubGroupPolicy, values: tuple[str, ...]
    ) -> VolcanoSubJob:
        size = 1 if policy.sub_group_size is None else policy.sub_group_size
        group = f"{self.uid}/{policy.name}"
        made = VolcanoSubJob(uid, group, self.uid, size, policy.network_topology)
        if values[0].isascii() and values[0].lstrip("+-").isdigit():
            made.match_index = int(values[0])
        self.sub_jobs[uid] = made
        return made

    # Amounts.

    @property
    def min_resources(self) -> VolcanoAmount:
        """`spec.minResources`; nothing where absent. Read-only."""
        if self._least is None or self._least[0] is not self.group:
            self._least = self.group, VolcanoAmount.of(self.group.spec.min_resources or {})
        return self._least[1]

    @property
    def amounts(self) -> JobAmounts:
        """What it counts with now."""
        kept = self._amounts
        if kept is None or kept[0] is not self.group or kept[1] != self.phase:
            kept = self._amounts = self.group, self.phase, JobAmounts(self)
        return kept[2]

    @property
    def states_min_resources(self) -> bool:
        """True if `spec.minResources` is given."""
        return self.group.spec.min_resources is not None

    def without_gated(self, amount: VolcanoAmount) -> VolcanoAmount:
        """An amount less the requests of tasks with scheduling gates of others, at least 0."""
        gated = VolcanoAmount()
        for task in self.tasks.values():
            if task.is_gated_by_others:
                gated.add(task.request)
        if gated.is_empty:
            return amount
        scalars = amount.scalars
        if scalars is not None:
            held = gated.scalars or {}
            scalars = {
                name: max(n - held[name], 0.0) if name in held else n for name, n in scalars.items()
            }
        return VolcanoAmount(
            max(amount.cpu - gated.cpu, 0.0), max(amount.memory - gated.memory, 0.0), scalars
        )

    @property
    def total_request(self) -> VolcanoAmount:
        """Sum of the requests of all tasks; read-only."""
        if self._total_request is None:
            self._total_request = sum_of_requests(self.tasks.values())
        return self._total_request

    @property
    def elastic(self) -> VolcanoAmount:
        """What is allocated above `minResources`."""
        return self.allocated.above(self.min_resources)

    def still_to_reserve(self) -> VolcanoAmount:
        """What `minResources` has above what is allocated, for the resources that it names."""
        least, given = self.min_resources, self.allocated
        result = VolcanoAmount()
        for name in self.group.spec.min_resources or {}:
            rest = least.get(name) - given.get(name)
            if name == "cpu":
                result.cpu = max(rest, 0.0)
            elif name == "memory":
                result.memory = max(rest, 0.0)
            elif name == PODS and rest > 0:
                result.scalars = {**(result.scalars or {}), name: rest}
            elif name != PODS and is_scalar(name):
                result.scalars = result.scalars or {}
                if name not in (given.scalars or {}):
                    result.scalars[name] = least.get(name)
                elif rest > 0:
                    result.scalars[name] = rest
        return result

    def reserved(self) -> VolcanoAmount | None:
        """What the job holds in the books of its queue beside what is allocated; None for
        nothing."""
        if not self.states_min_resources:
            return None
        if self.phase == INQUEUE_PHASE or (
            self.phase == RUNNING_PHASE and self.n_allocated >= self.group.spec.min_member
        ):
            return self.without_gated(self.still_to_reserve())
        return None

    # Gang.

    @property
    def is_pending(self) -> bool:
        """True if the group waits for admission."""
        return self.phase in (PENDING_PHASE, "")

    @property
    def is_ready(self) -> bool:
        """True if enough tasks are placed."""
        return self.n_ready + self.n_best_effort >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """True if enough tasks are placed or wait for resources."""
        return self.n_waiting + self.n_ready + self.n_best_effort >= self.min_available

    @property
    def is_starving(self) -> bool:
        """True if too few tasks are placed or wait."""
        return self.n_waiting + self.n_ready < self.min_available

    @property
    def counts_roles(self) -> bool:
        """True if the minimum per role matters."""
        return self.min_available >= self.min_by_role_total

    def per_role(
        self, statuses: Iterable[TaskStatus], *, with_best_effort: bool
    ) -> Mapping[str, int]:
        """Number of tasks per role."""
        counts: dict[str, int] = {}
        for task in self.in_statuses(statuses):
            counts[task.role] = counts.get(task.role, 0) + 1
        if with_best_effort:
            for task in self.of(TaskStatus.PENDING):
                if task.request.is_empty:
                    counts[task.role] = counts.get(task.role, 0) + 1
        return counts

    def _roles_have(self, statuses: Iterable[TaskStatus]) -> bool:
        if not self.counts_roles or not self.min_by_role:
            return True
        counts = self.per_role(statuses, with_best_effort=True)
        return all(counts.get(role, 0) >= least for role, least in self.min_by_role.items())

    @property
    def roles_are_ready(self) -> bool:
        """True if enough tasks of every role are placed."""
        return self._roles_have(READY_STATUSES)

    @property
    def roles_are_pipelined(self) -> bool:
        """True if enough tasks of every role are placed or wait."""
        return self._roles_have(WAITING_STATUSES)

    def _sub_groups_have(self, is_met: Callable[[VolcanoSubJob], bool]) -> bool:
        if not self.min_sub_jobs:
            return True
        counts: dict[str, int] = {}
        for sub_job in self.sub_jobs.values():
            counts[sub_job.group] = counts.get(sub_job.group, 0) + is_met(sub_job)
        return all(counts.get(group, 0) >= least for group, least in self.min_sub_jobs.items())

    @property
    def sub_groups_are_ready(self) -> bool:
        """True if enough sub-groups of every policy are ready."""
        return self._sub_groups_have(lambda sub_job: sub_job.is_ready)

    @property
    def sub_groups_are_pipelined(self) -> bool:
        """True if enough sub-groups of every policy are ready or wait."""
        return self._sub_groups_have(lambda sub_job: sub_job.is_pipelined)

    def invalidity(self) -> str:
        """Reason why the job can never be placed as it is; "" for none."""
        if self.counts_roles and self.min_by_role:
            counts = self.per_role(VALID_STATUSES, with_best_effort=False)
            if any(
                least and counts.get(role, 0) < least for role, least in self.min_by_role.items()
            ):
                return "NotEnoughPodsOfTask"
        if not self._sub_groups_have(lambda _: True):
            return "NotEnoughPodsOfTask"
        return "" if self.count(VALID_STATUSES) >= self.min_available else "NotEnoughPods"

    @property
    def n_scheduled(self) -> int:
        """Tasks that run, are bound or have ended."""
        return self.count(SCHEDULED_STATUSES)

    @property
    def n_released(self) -> int:
        """Tasks on a node that are being released."""
        return sum(bool(task.node) for task in self.of(TaskStatus.RELEASING))

    # Sub-groups and topology.

    @property
    def has_sub_groups(self) -> bool:
        """True if pods form sub-groups."""
        return bool(self.group.spec.sub_group_policy)

    @property
    def hard_tier(self) -> int | None:
        """Highest tier that its pods may span; None without such a limit."""
        return hard_tier(self.topology)

    @property
    def has_hard_topology(self) -> bool:
        """True if the job or a sub-group has a hard network topology."""
        return self.hard_tier is not None or any(
            sub_job.hard_tier is not None for sub_job in self.sub_jobs.values()
        )

    @property
    def has_topology(self) -> bool:
        """True if the job or a sub-group has a network topology."""
        return self.topology is not None or any(
            sub_job.topology is not None for sub_job in self.sub_jobs.values()
        )

    # Failures to place tasks.

    def failed_roles(self, sub_job: str) -> set[str]:
        """Roles of a sub-group of which a task could not be placed."""
        return {
            self.tasks[uid].role
            for uid in self.infeasible
            if self.sub_job_of(uid) == sub_job and uid in self.tasks
        }

    def has_failed(self, sub_job: str, task: VolcanoTask) -> bool:
        """True if a task of the same role could not be placed."""
        return bool(task.role) and task.role in self.failed_roles(sub_job)

    def forget_failures(self, sub_job: str | None = None) -> None:
        """Forget which tasks could not be placed, of a sub-group or of all."""
        if sub_job is None:
            self.infeasible = {}
        else:
            kept = {
                u: nodes for u, nodes in self.infeasible.items() if self.sub_job_of(u) != sub_job
            }
            self.infeasible = kept

    def may_continue(self, sub_job_id: str) -> bool:
        """True if other tasks are worth trying after one could not be placed."""
        if self.min_available == len(self.tasks):
            return False
        sub_job = self.sub_jobs.get(sub_job_id)
        if sub_job is not None and sub_job.min_available >= len(sub_job.tasks):
            return False
        if self.has_sub_groups:
            return True
        failed = self.failed_roles(sub_job_id)
        if not self.counts_roles:
            left = sum(task.role not in failed for task in self.of(TaskStatus.PENDING))
            return self.n_ready + left >= self.min_available
        placed = self.per_role(READY_STATUSES, with_best_effort=True)
        return all(placed.get(role, 0) >= self.min_by_role.get(role, 0) for role in failed)


def soft_to_hard(topology: NetworkTopology | None, tier_max: int) -> NetworkTopology | None:
    """A soft topology as a hard one that allows every tier up to `tier_max`."""
    if topology is None or topology.mode != SOFT_TOPOLOGY:
        return topology
    return NetworkTopology(HARD_TOPOLOGY, tier_max)


def _match_values(policy: SubGroupPolicy, pod: Pod) -> tuple[str, ...]:
    """Values of the policy's labels on a pod; () if it is not of the policy."""
    labels = pod.metadata.labels
    selector = policy.label_selector
    if selector is not None and not label_selector_matches(selector, labels):
        return ()
    values = tuple(labels.get(key, "") for key in policy.match_label_keys)
    return values if all(values) else ()


def waiting_time_s(text: object) -> float | None:
    """A waiting time in seconds; None for an invalid one."""
    try:
        found = duration.parse(text if isinstance(text, str) else "").total_seconds()
    except ValueError:
        return None
    return found if found > 0 else None


def _waiting_time(annotations: Mapping[str, str]) -> float | None:
    found = (waiting_time_s(annotations[key]) for key in WAITING_TIMES if key in annotations)
    return next((one for one in found if one is not None), None)
