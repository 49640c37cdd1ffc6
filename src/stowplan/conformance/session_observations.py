"""Observations of a session: decisions, counts, shares, and status updates."""

from __future__ import annotations

from collections import Counter

from stowplan.batch import Session
from stowplan.batch.session_close import PodFitError, PodGroupStatusUpdate
from stowplan.batch.session_plugins.drf import DrfPlugin
from stowplan.batch.session_plugins.proportion import ProportionPlugin
from stowplan.batch.state.jobs import JobInfo, TaskStatus
from stowplan.conformance.resource_arithmetic import rounded_amount
from stowplan.conformance.session_cases import Answer
from stowplan.objects.podgroup import PodGroupStatus


class SessionObservations:
    """Observations of one session: after its actions and at its close."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._facts: Answer = {}

    def after_actions(self) -> None:
        """Record the state after the actions."""
        session, facts = self._session, self._facts
        state = session.state
        jobs = session.jobs.values()
        facts["binds"] = {task.key: task.node for task in state.bound}
        facts["evicts"] = {task.key: reason for task, reason in state.evicted}
        facts["pipelined"] = _placed(session, TaskStatus.PIPELINED)
        facts["reserved"] = _placed(session, TaskStatus.ALLOCATED)
        facts["order/binds"] = [task.key for task in state.bound]
        facts["order/evicts"] = [task.key for task, _ in state.evicted]
        bound_jobs = [task.job for task in state.bound]
        facts["order/bindJobs"] = [
            job for i, job in enumerate(bound_jobs) if not i or bound_jobs[i - 1] != job
        ]
        facts["totals"] = {
            "bound": len(facts["binds"]),
            "evicted": len(facts["evicts"]),
            "pipelined": len(facts["pipelined"]),
        }
        bound = Counter(bound_jobs)
        evicted = Counter(task.job for task, _ in state.evicted)
        facts["jobs"] = {
            job.uid: _job(job, bound[job.uid], evicted[job.uid], session) for job in jobs
        }
        facts["nodes"] = {
            name: {
                kind: rounded_amount(column.amount(row))
                for kind, column in (
                    ("idle", state.nodes.idle),
                    ("used", state.nodes.used),
                    ("releasing", state.nodes.releasing),
                )
            }
            for row, name in enumerate(state.nodes.names)
        }
        if state.failed:
            facts["failedCalls"] = {"": [[f"!{key}", text, job] for key, text, job in state.failed]}
        self._shares()

    def _shares(self) -> None:
        policies = self._session.plugins
        proportion, drf = policies.get(ProportionPlugin.name), policies.get(DrfPlugin.name)
        if isinstance(proportion, ProportionPlugin):
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
                    "overused": proportion.overused(held.queue),
                }
                for name, held in proportion.shares.items()
            }
        if isinstance(drf, DrfPlugin):
            self._facts["drf"] = {
                uid: {
                    "openShare": round(held.open_share, 6),
                    "openAllocated": rounded_amount(held.open_allocated),
                    "share": round(held.share, 6),
                    "allocated": rounded_amount(held.allocated),
                }
                for uid, held in drf.shares.items()
            }

    def after_close(self, writes: list[PodGroupStatusUpdate], notes: list[PodFitError]) -> Answer:
        """Record the updates at close; returns all observations."""
        facts, session = self._facts, self._session
        facts["podGroups"] = {write.group.key: _status(write.status) for write in writes}
        facts["podConditions"] = {
            note.key: f"PodScheduled=False Unschedulable: {note.message}" for note in notes
        }
        events: dict[str, list[str]] = {}
        for task, reason in session.state.evicted:
            job = session.jobs.get(task.job)
            if job is not None and not job.is_solo and job.group is not None:
                events.setdefault(job.group.key, []).append(f"Normal Evict {reason}")
        for write in writes:
            for kind, reason, message in write.notes:
                events.setdefault(write.group.key, []).append(f"{kind} {reason} {message}")
        facts["events"] = {key: sorted(texts) for key, texts in events.items()}
        return facts


def _placed(session: Session, status: TaskStatus) -> dict[str, str]:
    return {
        task.key: task.node for job in session.jobs.values() for task in job.of(status).values()
    }


def _job(job: JobInfo, bound: int, evicted: int, session: Session) -> Answer:
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
