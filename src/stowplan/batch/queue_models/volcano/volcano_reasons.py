"""Reasons why a job of Volcano has not started, in words.

The first gate that refuses counts: the queue, the group's own numbers, the admission by `enqueue`,
the limits of queues, and the nodes. They are asked again as the session leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

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
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import VALID_STATUSES, VolcanoTask
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.quantity import format_quantity

QUEUE_NOT_FOUND, QUEUE_NOT_OPEN = "QueueNotFound", "QueueNotOpen"
NOT_ENOUGH_PODS, NOT_INQUEUE = "NotEnoughPods", "NotInqueue"
QUEUE_LIMIT, QUEUE_OVERUSED = "QueueLimitReached", "QueueOverused"
NODES_REFUSE, ROOM_BEING_FREED = "NotEnoughResources", "RoomBeingFreed"


class JobReason(msgspec.Struct, frozen=True):
    """reason: one word, for programs. message: for people."""

    reason: str
    message: str


def reason_of(session: VolcanoSession, job: VolcanoSessionJob) -> JobReason | None:
    """Why pending tasks of a job have no node; None if none is pending."""
    if not job.of(TaskStatus.PENDING) and not job.of(TaskStatus.PIPELINED):
        return None
    queue = session.queues.get(job.queue)
    if queue is None:
        return JobReason(QUEUE_NOT_FOUND, f'queues "{job.queue}" not found')
    if not session.is_valid(job):
        return _too_few(job)
    if job.is_pending:
        return JobReason(NOT_INQUEUE, f"not inqueue: {_gate(session, job)}")
    if not queue.is_open:
        state = queue.queue.status.state
        return JobReason(QUEUE_NOT_OPEN, f"queue {queue.name} is {state}")
    n_promised = len(job.of(TaskStatus.PIPELINED))
    if n_promised and session.is_pipelined(job):
        text = f"{n_promised} of its pods wait for resources that are being released"
        return JobReason(ROOM_BEING_FREED, text)
    pending = [task for task in session.has_pending(job) if not task.is_gated]
    if not pending:
        return JobReason(NODES_REFUSE, "its pods have scheduling gates")
    task = min(pending, key=lambda one: (one.created, one.uid))
    if not session.may_allocate(queue, task):
        return JobReason(QUEUE_LIMIT, _limit(session, job, task))
    if session.hooks.anyone("overused", queue):
        text = f"queue {queue.name} has all that it deserves"
        return JobReason(QUEUE_OVERUSED, text)
    return JobReason(NODES_REFUSE, node_refusals(session, task))


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


def _gate(session: VolcanoSession, job: VolcanoSessionJob) -> str:
    """The plugin that rejects the job in `enqueue`, and the amounts that it compares."""
    if "enqueue" not in session.options.actions:
        return "no session has admitted it yet"
    for tier in session.hooks.tiers("job_enqueueable"):
        votes = []
        for call in tier:
            votes.append(call(job))
            if votes[-1] < 0:
                return _rejection(session, job, call.__self__)  # type: ignore[attr-defined]
        if any(vote > 0 for vote in votes):
            break
    return "admitted by the next session"


def _rejection(session: VolcanoSession, job: VolcanoSessionJob, plugin: object) -> str:
    least = job.min_resources
    queue = session.queues[job.queue]
    if isinstance(plugin, QueuePlugin):
        if not queue.is_open:
            return f"queue {queue.name} is {queue.queue.status.state}"
        if isinstance(plugin, VolcanoCapacity) and plugin.problem:
            return plugin.problem
        for attributes in _path(plugin, job.queue):
            after = least.copy().add(attributes.allocated).add(attributes.inqueue)
            after.subtract(attributes.elastic)
            text = _short(attributes, after, least)
            if text:
                return text
        return f"queue {queue.name} has no room for minResources by plugin {plugin.name}"
    if isinstance(plugin, Overcommit):
        room = plugin.room()
        parts = [
            f"{name} {_text(name, max(room.get(name), 0.0))}, {_text(name, least.get(name))} asked"
            for name, n in least.items()
            if name != PODS and n - room.get(name) >= EPSILON
        ]
        return f"overcommit leaves the cluster {' and '.join(parts) or 'no room'}"
    return f"plugin {getattr(plugin, 'name', '')} rejects it"


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
        used = after.get(name) - asked.get(name)
        parts.append(
            f"{kind} {name} {_text(name, limit.get(name))}, {_text(name, used)} in use, "
            f"{_text(name, asked.get(name))} asked"
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
        f"{name} {_text(name, has.get(name))}, {_text(name, used.get(name))} in use, "
        f"{_text(name, asked.get(name))} asked"
        for name in names or ()
    ]
    return f"queue {attributes.name} deserves {' and '.join(parts)}" if parts else ""


def node_refusals(session: VolcanoSession, task: VolcanoTask) -> str:
    """Why each node refuses a task, counted, in the words of kube-scheduler."""
    nodes = session.node_list
    counts: dict[str, int] = {}
    fitting = []
    for node in nodes:
        free = node.future_idle()
        short = [
            name
            for name, n in task.request.items()
            if n >= EPSILON and n - free.get(name) >= EPSILON
        ]
        for name in short:
            text = "Too many pods" if name == PODS else f"Insufficient {name}"
            counts[text] = counts.get(text, 0) + 1
        if not short:
            fitting.append(node)
    if fitting:
        is_prepared = session.prepare(task)
        codes = session.codes(task, fitting).tolist()
        refused = len(fitting) if not is_prepared else sum(code != PASSES for code in codes)
        if refused:
            counts["node(s) refused by predicates"] = refused
        if refused < len(fitting):
            counts["node(s) with room for this pod alone, not for its gang"] = (
                len(fitting) - refused
            )
    texts = sorted(f"{count} {text}" for text, count in counts.items())
    return (
        f"0/{len(nodes)} nodes are available: {', '.join(texts)}."
        if texts
        else (f"0/{len(nodes)} nodes are available")
    )


def _text(name: str, amount: float) -> str:
    """An amount as people write it."""
    if amount >= UNLIMITED:
        return "unlimited"
    if name in ("cpu", "memory"):
        return format_quantity(name, round(amount))
    return format_quantity(name, round(amount if name == PODS else amount / 1000))
