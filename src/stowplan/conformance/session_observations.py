"""Observations of a session: decisions, counts, shares, and status updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from stowplan.batch import Session
from stowplan.batch.session_plugins.drf import DrfPlugin
from stowplan.batch.session_plugins.proportion import ProportionPlugin
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.conformance.resource_arithmetic import rounded_amount
from stowplan.conformance.session_cases import Answer
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.plugins import KubeBatchDrf
from stowplan.kube_batch_v05.proportion import KubeBatchProportion
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.podgroup import PodGroupStatus

Note = tuple[str, str, str]
"""Type, reason and message of an event."""


class SessionObservations:
    """Observations of one session: after its actions and at its close."""

    def __init__(self, session: Session | KubeBatchSession) -> None:
        self._session = session
        self._bound: list[TaskInfo] | list[KubeBatchTask]
        self._evicted: list[tuple[TaskInfo, str]] | list[tuple[KubeBatchTask, str]]
        state = session.state if isinstance(session, Session) else session
        self._bound, self._evicted = state.bound, state.evicted
        self._facts: Answer = {}

    def after_actions(self) -> None:
        """Record the state after the actions."""
        session, facts = self._session, self._facts
        facts["binds"] = {task.key: task.node for task in self._bound}
        facts["evicts"] = {task.key: reason for task, reason in self._evicted}
        facts["pipelined"] = _placed(session, TaskStatus.PIPELINED)
        facts["reserved"] = _placed(session, TaskStatus.ALLOCATED)
        facts["order/binds"] = [task.key for task in self._bound]
        facts["order/evicts"] = [task.key for task, _ in self._evicted]
        bound_jobs = [task.job for task in self._bound]
        facts["order/bindJobs"] = [
            job for i, job in enumerate(bound_jobs) if not i or bound_jobs[i - 1] != job
        ]
        facts["totals"] = {
            "bound": len(facts["binds"]),
            "evicted": len(facts["evicts"]),
            "pipelined": len(facts["pipelined"]),
        }
        bound = Counter(bound_jobs)
        evicted = Counter(task.job for task, _ in self._evicted)
        facts["jobs"] = {
            job.uid: _job(job, bound[job.uid], evicted[job.uid]) for job in session.jobs.values()
        }
        facts["nodes"] = {
            name: {kind: rounded_amount(amount) for kind, amount in amounts.items()}
            for name, amounts in _node_amounts(session).items()
        }
        if isinstance(session, KubeBatchSession) and session.failed:
            failed = [[f"!{key}", text, job] for key, text, job in session.failed]
            facts["failedCalls"] = {"": failed}
        self._shares()

    def _shares(self) -> None:
        session = self._session
        plugins = session.plugins
        proportion, drf = plugins.get("proportion"), plugins.get("drf")
        if isinstance(proportion, ProportionPlugin | KubeBatchProportion):
            self._facts["queues"] = {
                name: {
                    "weight": held.queue.weight,
                    "deserved": rounded_amount(held.deserved),
                    "request": rounded_amount(held.request),
                    "openAllocated": rounded_amount(held.open_allocated),
                    "openShare": round(held.open_share, 6),
                    "openOverused": held.open_overused,
                    "allocated": rounded_amount(held.allocated),
                    "share": round(held.share, 6),
                    "overused": session.is_overused(name),
                }
                for name, held in proportion.shares.items()
            }
        if isinstance(drf, DrfPlugin | KubeBatchDrf):
            self._facts["drf"] = {
                uid: {
                    "openShare": round(held.open_share, 6),
                    "openAllocated": rounded_amount(held.open_allocated),
                    "share": round(held.share, 6),
                    "allocated": rounded_amount(held.allocated),
                }
                for uid, held in drf.shares.items()
            }

    def after_close(
        self,
        groups: Iterable[tuple[str, PodGroupStatus, Iterable[Note]]],
        unplaced: Mapping[str, str],
    ) -> Answer:
        """Record the updates at close; returns all observations.

        groups: key, status and events of each group that is written. unplaced: pod -> message.
        """
        facts, session = self._facts, self._session
        written = [(key, status, list(notes)) for key, status, notes in groups]
        facts["podGroups"] = {key: _status(status) for key, status, _ in written}
        facts["podConditions"] = {
            key: f"PodScheduled=False Unschedulable: {message}" for key, message in unplaced.items()
        }
        events: dict[str, list[str]] = {}
        for task, reason in self._evicted:
            job = session.jobs.get(task.job)
            if job is not None and not job.is_solo and job.group is not None:
                events.setdefault(job.group.key, []).append(f"Normal Evict {reason}")
        for key, _, notes in written:
            for kind, reason, message in notes:
                events.setdefault(key, []).append(f"{kind} {reason} {message}")
        facts["events"] = {key: sorted(texts) for key, texts in events.items()}
        return facts


def _node_amounts(
    session: Session | KubeBatchSession,
) -> dict[str, dict[str, ResourceVector]]:
    """Node -> idle, used and releasing amount."""
    if isinstance(session, KubeBatchSession):
        return {
            name: {"idle": node.idle, "used": node.used, "releasing": node.releasing}
            for name, node in session.nodes.items()
        }
    nodes = session.state.nodes
    columns = {"idle": nodes.idle, "used": nodes.used, "releasing": nodes.releasing}
    return {
        name: {kind: column.amount(row) for kind, column in columns.items()}
        for row, name in enumerate(nodes.names)
    }


def _placed(session: Session | KubeBatchSession, status: TaskStatus) -> dict[str, str]:
    return {
        task.key: task.node for job in session.jobs.values() for task in job.of(status).values()
    }


def _job(job: JobInfo | KubeBatchJob, bound: int, evicted: int) -> Answer:
    return {
        "queue": job.queue,
        "priority": job.priority,
        "minAvailable": job.min_available,
        "ready": job.is_ready,
        "readyTasks": job.ready_count,
        "pipelinedOk": job.is_pipelined,
        "tasks": {status.title: len(tasks) for status, tasks in job.by_status.items()},
        "bound": bound,
        "evicted": evicted,
        "pipelined": len(job.of(TaskStatus.PIPELINED)),
    }


def session_uid(number: int) -> str:
    """Uid of a session, numbered from 1."""
    return f"session-{number}"


def session_number(uid: str) -> int:
    """Number of a session by its uid; 0 for another uid."""
    prefix, _, number = uid.rpartition("-")
    return int(number) if prefix == "session" and number.isdecimal() else 0


def _status(status: PodGroupStatus) -> Answer:
    return {
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "session": session_number(condition.transition_id),
            }
            for condition in status.conditions
        ],
    }
