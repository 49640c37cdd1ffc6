"""Reasons why a job of Volcano has not started, in words.

The first gate that refuses counts: the queue, the group's own numbers, the admission by `enqueue`,
the limits of queues, and the nodes. They are asked again as the session leaves them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec
import numpy as np

from stowplan.batch.queue_models.volcano.plugins.jobs.overcommit import Overcommit
from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import (
    QueueAttributes,
    QueuePlugin,
)
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import VolcanoCapacity
from stowplan.batch.queue_models.volcano.pod_rules import PASSES
from stowplan.batch.queue_models.volcano.volcano_amount import (
    EPSILON,
    PODS,
    UNLIMITED,
    VolcanoAmount,
)
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VALID_STATUSES, VolcanoTask
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.quantity import format_quantity

QUEUE_NOT_FOUND, QUEUE_NOT_OPEN = "QueueNotFound", "QueueNotOpen"
NOT_ENOUGH_PODS, NOT_INQUEUE = "NotEnoughPods", "NotInqueue"
QUEUE_LIMIT, QUEUE_OVERUSED = "QueueLimitReached", "QueueOverused"
PREDICATES, FULL = "node(s) didn't pass the predicates", "Too many pods"
ALONE = "node(s) fit this pod alone, not its gang"
NODES_REFUSE, ROOM_BEING_FREED = "NotEnoughResources", "RoomBeingFreed"


class JobReason(msgspec.Struct, frozen=True):
    """reason: one word, for programs. message: for people."""

    reason: str
    message: str


class JobReasons:
    """Reasons in one session, as its actions left it. Jobs with equal pods share what nodes say."""

    def __init__(self, session: VolcanoSession) -> None:
        self._session = session
        self._reserved: dict[str, VolcanoAmount] | None = None
        self._by_nodes: dict[Hashable, str] = {}

    def of(self, job: VolcanoSessionJob) -> JobReason | None:
        """Why pending tasks of a job have no node, or why a job without tasks is not admitted; None
        if neither is so."""
        session = self._session
        is_expected = job.is_pending and not job.tasks
        if not (job.of(TaskStatus.PENDING) or job.of(TaskStatus.PIPELINED) or is_expected):
            return None
        queue = session.queues.get(job.queue)
        if queue is None:
            return JobReason(QUEUE_NOT_FOUND, f'queues "{job.queue}" not found')
        if not is_expected and not session.is_valid(job):
            return _too_few(job)
        if job.is_pending:
            return JobReason(NOT_INQUEUE, f"not inqueue: {self._gate(job)}")
        if not queue.is_open:
            state = queue.queue.status.state
            return JobReason(QUEUE_NOT_OPEN, f"queue {queue.name} is {state}")
        n_promised = len(job.of(TaskStatus.PIPELINED))
        if n_promised and session.is_pipelined(job):
            text = f"{n_promised} of its pods wait for resources that are being released"
            return JobReason(ROOM_BEING_FREED, text)
        pending = session.has_pending(job)
        if not pending:
            return JobReason(NODES_REFUSE, "its pods have scheduling gates")
        task = min(pending, key=lambda one: (one.created, one.uid))
        if not session.may_allocate(queue, task):
            return JobReason(QUEUE_LIMIT, _limit(session, job, task))
        if session.hooks.anyone("overused", queue):
            text = f"queue {queue.name} has all that it deserves"
            return JobReason(QUEUE_OVERUSED, text)
        return JobReason(NODES_REFUSE, self._by_node(task))

    def _by_node(self, task: VolcanoTask) -> str:
        kind = id(task.pod.spec), task.pod.namespace, tuple(task.pod.labels.items())
        if kind not in self._by_nodes:
            self._by_nodes[kind] = node_refusals(self._session, task)
        return self._by_nodes[kind]

    def _gate(self, job: VolcanoSessionJob) -> str:
        """The plugin that rejects the job in `enqueue`, and the amounts that it compares."""
        session = self._session
        if "enqueue" not in session.options.actions:
            return "no session has admitted it yet"
        for tier in session.hooks.tiers("job_enqueueable"):
            votes = []
            for call in tier:
                votes.append(call(job))
                if votes[-1] < 0:
                    return self._rejection(job, call.__self__)  # type: ignore[attr-defined]
            if any(vote > 0 for vote in votes):
                break
        return "admitted by the next session"

    def _rejection(self, job: VolcanoSessionJob, plugin: object) -> str:
        queue = self._session.queues[job.queue]
        if isinstance(plugin, QueuePlugin):
            if not queue.is_open:
                return f"queue {queue.name} is {queue.queue.status.state}"
            if isinstance(plugin, VolcanoCapacity) and plugin.problem:
                return plugin.problem
            text = self._full_queue(job, plugin)
            return text or f"queue {queue.name} has no room by plugin {plugin.name}"
        if isinstance(plugin, Overcommit):
            least, room = job.min_resources, plugin.room()
            parts = [
                f"{name} {amount_text(name, max(room.get(name), 0.0))}, "
                f"{amount_text(name, n)} asked"
                for name, n in least.items()
                if name != PODS and n - room.get(name) >= EPSILON
            ]
            return f"overcommit leaves the cluster {' and '.join(parts) or 'no room'}"
        return f"plugin {getattr(plugin, 'name', '')} rejects it"

    def _full_queue(self, job: VolcanoSessionJob, plugin: QueuePlugin) -> str:
        """The first queue upwards whose limit the job's minimum exceeds."""
        least = job.min_resources
        for attributes in _path(plugin, job.queue):
            if isinstance(plugin, VolcanoCapacity) and plugin.gets_back(attributes, job):
                continue
            after = least.copy().add(attributes.allocated)
            after.add(self._reserved_in(attributes.name)).subtract(attributes.elastic)
            text = _short(attributes, after, least)
            if text:
                return text
        return ""

    def _reserved_in(self, queue: str) -> VolcanoAmount:
        """What admitted jobs of a queue, and of those below it, may still take. The plugin's own
        figure also has what jobs that were admitted in this session have taken since."""
        if self._reserved is None:
            self._reserved = {}
            for job in self._session.jobs.values():
                held = job.reserved()
                for name in () if held is None else self._upwards(job.queue):
                    self._reserved.setdefault(name, VolcanoAmount()).add(held or VolcanoAmount())
        return self._reserved.get(queue) or VolcanoAmount()

    def _upwards(self, queue: str) -> Iterator[str]:
        """A queue and those above it."""
        queues, seen = self._session.queues, set[str]()
        while queue in queues and queue not in seen:
            seen.add(queue)
            yield queue
            queue = queues[queue].queue.spec.parent or ROOT


def _too_few(job: VolcanoSessionJob) -> JobReason:
    n_valid = job.count(VALID_STATUSES)
    if n_valid < job.min_available:
        text = f"{n_valid} of its pods exist, minMember is {job.min_available}"
        return JobReason(NOT_ENOUGH_PODS, text)
    counts = job.per_role(VALID_STATUSES, with_best_effort=False)
    lacks = [
        f"task {role} has {counts.get(role, 0)} pods, minTaskMember is {least}"
        for role, least in job.min_by_role.items()
        if counts.get(role, 0) < least
    ]
    text = "; ".join(lacks) or "it has fewer sub-groups than minSubGroups"
    return JobReason(NOT_ENOUGH_PODS, text)


def _path(plugin: QueuePlugin, queue: str) -> Iterator[QueueAttributes]:
    """A queue and those above it, itself first."""
    attributes = plugin.attributes.get(queue)
    if attributes is not None:
        yield attributes
        yield from reversed(plugin.ancestors_of(attributes))


def _short(attributes: QueueAttributes, after: VolcanoAmount, asked: VolcanoAmount) -> str:
    """The limit of a queue that `after` exceeds, "" for none."""
    limit = attributes.real_capability
    names = after.exceeded_names(limit, asked)
    parts = []
    for name in names or ():
        stated = attributes.capability.get(name)
        kind = "capability" if stated and stated <= limit.get(name) < UNLIMITED else "limit"
        used = amount_text(name, after.get(name) - asked.get(name))
        parts.append(
            f"{kind} {name} {amount_text(name, limit.get(name))}, {used} in use, "
            f"{amount_text(name, asked.get(name))} asked"
        )
    return f"queue {attributes.name}'s {' and '.join(parts)}" if parts else ""


def _limit(session: VolcanoSession, job: VolcanoSessionJob, task: VolcanoTask) -> str:
    """The limit of a queue that one more task would exceed."""
    for call in session.hooks.all("allocatable"):
        plugin = call.__self__  # type: ignore[attr-defined]
        if call(session.queues[job.queue], task) or not isinstance(plugin, QueuePlugin):
            continue
        if isinstance(plugin, VolcanoCapacity) and plugin.problem:
            return plugin.problem
        for attributes in _path(plugin, job.queue):
            after = attributes.allocated.copy().add(task.request)
            text = _short(attributes, after, task.request)
            if not text and not isinstance(plugin, VolcanoCapacity):
                text = _undeserved(attributes, after, task.request)
            if text:
                return text
    return f"queue {job.queue} may have no more"


def _undeserved(attributes: QueueAttributes, after: VolcanoAmount, asked: VolcanoAmount) -> str:
    names = after.exceeded_names(attributes.deserved, asked)
    has, used = attributes.deserved, attributes.allocated
    parts = [
        f"{name} {amount_text(name, has.get(name))}, {amount_text(name, used.get(name))} in use, "
        f"{amount_text(name, asked.get(name))} asked"
        for name in names or ()
    ]
    return f"queue {attributes.name} deserves {' and '.join(parts)}" if parts else ""


def node_refusals(session: VolcanoSession, task: VolcanoTask) -> str:
    """Why each node refuses a task, counted, in the words of kube-scheduler."""
    counts: dict[str, int] = {}
    fits = np.ones(len(session.node_list), dtype=np.bool_)
    for name, is_short in session.lacking(task).items():
        if is_short.any():
            counts[FULL if name == PODS else f"Insufficient {name}"] = int(is_short.sum())
            fits &= ~is_short
    fitting = session.pick(session.node_list, np.flatnonzero(fits))
    if fitting:
        n_refused = len(fitting)
        if session.prepare(task):
            n_refused = int(np.count_nonzero(session.codes(task, fitting) != PASSES))
        left = {PREDICATES: n_refused, ALONE: len(fitting) - n_refused}
        counts |= {text: number for text, number in left.items() if number}
    texts = sorted(f"{count} {text}" for text, count in counts.items())
    head = f"0/{len(session.node_list)} nodes are available"
    return f"{head}: {', '.join(texts)}." if texts else head


def node_reasons(session: VolcanoSession, task: VolcanoTask) -> dict[str, tuple[str, ...]]:
    """Node -> why it does not fit a task as the session leaves it, amounts first."""
    found = {node.name: tuple(_short_on(task, node)) for node in session.node_list}
    fitting = [node for node in session.node_list if not found[node.name]]
    if not fitting:
        return found
    if not session.prepare(task):
        # Filters have nothing to go by then.
        return {**found, **{node.name: (PREDICATES,) for node in fitting}}
    for node, code in zip(fitting, session.codes(task, fitting).tolist(), strict=True):
        if code != PASSES:
            found[node.name] = (PREDICATES,)
    return found


def _short_on(task: VolcanoTask, node: VolcanoNode) -> Iterator[str]:
    """Resources of which a node has too little, with what is being released."""
    free = node.future_idle()
    for name, n in task.request.items():
        if n < EPSILON or n - free.get(name) < EPSILON:
            continue
        if name == PODS:
            yield FULL
        else:
            need, have = amount_text(name, n), amount_text(name, max(free.get(name), 0.0))
            yield f"Insufficient {name} (needs {need}, {have} left)"


def amount_text(name: str, amount: float) -> str:
    """An amount as people write it."""
    if amount >= UNLIMITED:
        return "unlimited"
    if name in ("cpu", "memory"):
        return format_quantity(name, round(amount))
    return format_quantity(name, round(amount if name == PODS else amount / 1000))
