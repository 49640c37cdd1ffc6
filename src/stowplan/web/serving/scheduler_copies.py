"""What the page copies of a running scheduler, in the scheduler's own thread between two calls.

Only fields are copied here; rows, groups and JSON are made of them elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from stowplan.batch.decider import BatchDecider
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.driver.clocks import unix_offset_ns
from stowplan.driver.live import scheduler_status
from stowplan.driver.live.exposition import pending_pods
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.insight.gpu_fragmentation import has_gpu_share
from stowplan.kube_batch_v05.decider import KubeBatchDecider
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.queue.pod_record import PodRecord
from stowplan.scheduler import Scheduler
from stowplan.web.model.node_columns import NodeTableCopy, copy_columns
from stowplan.web.model.pending_rows import POSITIONS_MAX, QueuedCopy

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer

MS = 1_000_000
"""Nanoseconds of a millisecond."""
ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, IN_SESSIONS = (
    "active",
    "backoff",
    "unschedulable",
    "gated",
    "sessions",
)


class SchedulerCopy(msgspec.Struct):
    """Copies at one time. columns: None where nothing has changed, or they were not asked for.
    pending, status: None where they were not asked for."""

    columns: NodeTableCopy | None = None
    pending: list[QueuedCopy] | None = None
    status: Tree | None = None


def copy_pending(scheduler: Scheduler) -> list[QueuedCopy]:
    """All pending pods that are not in flight."""
    offset = unix_offset_ns()
    queue = scheduler.queue
    active = queue.active.in_order()
    found = [
        _queued(entry, ACTIVE, offset, place + 1 if place < POSITIONS_MAX else None)
        for place, entry in enumerate(active)
    ]
    for entry in queue.backoff:
        ends = queue.backoff.expiry(entry)
        found.append(_queued(entry, BACKOFF, offset, next_ns=ends))
    limit = round(scheduler.options.queue.unschedulable_limit_s * SECOND)
    for entry in queue.unschedulable_pods:
        if entry.gated_by:
            found.append(_queued(entry, GATED, offset))
        else:
            found.append(_queued(entry, UNSCHEDULABLE, offset, next_ns=int(entry.added_at) + limit))
    waiting = session_pods(scheduler)
    found += [QueuedCopy(pod, IN_SESSIONS, None, 0, 0.0, None, ()) for pod in waiting]
    return found


def _queued(
    entry: PodRecord,
    place: str,
    offset: int,
    position: int | None = None,
    next_ns: int | None = None,
) -> QueuedCopy:
    rules = (entry.gated_by,) if entry.gated_by else tuple(entry.refusers)
    return QueuedCopy(
        entry.pod,
        place,
        position,
        entry.attempts,
        (entry.added_at + offset) // MS,
        None if next_ns is None else (next_ns + offset) // MS,
        rules,
    )


def session_pods(scheduler: Scheduler) -> Iterator[Pod]:
    """Pods that wait for a session."""
    for lane in scheduler.lanes.batch:
        decider = lane.decider
        if isinstance(decider, ModelDecider):
            yield from decider.pending_pods()
        elif isinstance(decider, BatchDecider):
            for job in decider.inventory.jobs.values():
                yield from (task.pod for task in job.of(TaskStatus.PENDING).values())
        elif isinstance(decider, KubeBatchDecider):
            for known in decider.cache.jobs.values():
                yield from (task.pod for task in known.of(TaskStatus.PENDING).values())


def copy_status(server: SchedulerServer) -> Tree:
    """The figures of the topic `status` that are the scheduler's own."""
    scheduler, recorder = server.scheduler, server.metrics_recorder
    unready = scheduler_status.unready_reasons(server)
    waiting = sum(lane.n_waiting for lane in scheduler.lanes.batch)
    table = scheduler.cache.nodes
    return {
        "healthy": not unready,
        "unready": unready,
        "leads": server.leadership.leads,
        "holder": server.leadership.leader,
        "synced": server.is_synced,
        **recorder.rates(),
        "bound": recorder.n_bound,
        "refused": recorder.n_refused,
        "pending": {**pending_pods(server), "sessions": waiting},
        "nodes": table.n_nodes,
        "pods": int(table.pod_count.sum()),
    }


def _columns(server: SchedulerServer, last: NodeTableCopy | None) -> NodeTableCopy | None:
    shares_cards = has_gpu_share(server.deciders.configuration)
    return copy_columns(server.scheduler.cache.nodes, last, shares_cards=shares_cards)


def copied(
    server: SchedulerServer,
    last: NodeTableCopy | None,
    *,
    nodes: bool,
    pending: bool,
    status: bool,
) -> SchedulerCopy:
    """What is asked for, of one moment."""
    return SchedulerCopy(
        _columns(server, last) if nodes else None,
        copy_pending(server.scheduler) if pending else None,
        copy_status(server) if status else None,
    )
