"""HyperNodeAllocation: places jobs with a hard network topology or sub-groups.

All HyperNodes of a tier are tried, the lowest tier first; the best one that a job fits is used.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/allocate/allocate.go, recorder.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.batch.queue_models.volcano.actions.task_allocation import TaskAllocation, TaskHeap
from stowplan.batch.queue_models.volcano.actions.worksheets import JobWorksheet
from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_statement import VolcanoOperation, VolcanoStatement


class HyperNodeAllocation:
    """Searches HyperNodes for jobs and sub-groups."""

    def __init__(self, session: VolcanoSession, tasks: TaskAllocation) -> None:
        self._session, self._tasks = session, tasks
        # Job -> HyperNode chosen for it; (job, HyperNode of the job) -> sub-group -> HyperNode.
        self._chosen: dict[str, str] = {}
        self._of_sub_jobs: dict[tuple[str, str], dict[str, str]] = {}

    def allocate(self, job: VolcanoSessionJob, worksheet: JobWorksheet) -> VolcanoStatement | None:
        """Place a job in the best HyperNode; None if it fits none."""
        session = self._session
        if worksheet.is_empty:
            return None
        before = {uid: job.sub_jobs[uid].allocated_hyper_node for uid in worksheet.tasks}
        for gradient in gradients_for_job(session, job, session.tree.top, evicts=False):
            found: dict[str, tuple[float, list[VolcanoOperation], JobWorksheet]] = {}
            for hyper_node in gradient:
                job.forget_failures()
                sheet = worksheet.copy()
                score, statements = self._try(job, sheet, hyper_node)
                for uid, name in before.items():
                    job.sub_jobs[uid].allocated_hyper_node = name
                operations = [one for part in statements for one in part.operations]
                if not operations:
                    continue
                if session.is_ready(job) or session.is_pipelined(job):
                    found[hyper_node.name] = score, operations, sheet
                for part in statements:
                    part.discard()
            if not found:
                continue
            best = max(found, key=lambda name: found[name][0])
            statement = VolcanoStatement(session)
            if not statement.repeat(found[best][1]):
                return None
            worksheet.become(found[best][2])
            self._chosen[job.uid] = best
            return statement
        return None

    def _try(
        self, job: VolcanoSessionJob, sheet: JobWorksheet, hyper_node: HyperNode
    ) -> tuple[float, list[VolcanoStatement]]:
        """Place sub-groups in a HyperNode until the job is ready; the sum of their scores."""
        total, statements = 0.0, []
        while sheet.sub_jobs:
            sub_job = sheet.sub_jobs.pop()
            statement, score = self._allocate_sub_job(job, sub_job, sheet, hyper_node)
            if statement is not None and statement.operations:
                statements.append(statement)
                total += score
                if sheet.tasks[sub_job.uid]:
                    sheet.sub_jobs.push(sub_job)
                if self._session.is_ready(job):
                    break
        return total, statements

    def _allocate_sub_job(
        self, job: VolcanoSessionJob, sub_job: VolcanoSubJob, sheet: JobWorksheet, within: HyperNode
    ) -> tuple[VolcanoStatement | None, float]:
        """Place a sub-group in the best HyperNode below another one, and its score."""
        session = self._session
        tasks = sheet.tasks.get(sub_job.uid)
        if not tasks:
            return None, 0.0
        chosen = self._of_sub_jobs.setdefault((job.uid, within.name), {})
        if sub_job.nominated_hyper_node:
            nominated = self._tasks.as_nominated(job, sub_job, tasks)
            if nominated is not None:
                chosen[sub_job.uid] = sub_job.allocated_hyper_node
                return nominated, 0.0
        for gradient in gradients_for_sub_job(session, sub_job, within, evicts=False):
            found: dict[str, tuple[list[VolcanoOperation], TaskHeap]] = {}
            for hyper_node in gradient:
                job.forget_failures(sub_job.uid)
                left = tasks.copy()
                trial = self._tasks.allocate(job, sub_job, left, hyper_node.name)
                if trial is not None and trial.operations:
                    found[hyper_node.name] = trial.operations, left
                    trial.discard()
            if not found:
                continue
            best, score = self._best(sub_job, found)
            statement = VolcanoStatement(session)
            if not statement.repeat(found[best][0]):
                return None, 0.0
            used = session.tree.common_ancestor(sub_job.allocated_hyper_node, best)
            sub_job.allocated_hyper_node = chosen[sub_job.uid] = used
            sheet.tasks[sub_job.uid] = found[best][1]
            return statement, score
        return None, 0.0

    def _best(self, sub_job: VolcanoSubJob, found: Mapping[str, object]) -> tuple[str, float]:
        """The HyperNode with the highest score, the first of several."""
        totals = dict.fromkeys(found, 0.0)
        for call in self._session.hooks.all("hyper_node_order"):
            for name, score in call(sub_job, list(found)).items():
                totals[name] += score
        best = max(totals, key=lambda name: totals[name])
        return best, totals[best]

    def keep_decision(self, job: VolcanoSessionJob) -> None:
        """Record the HyperNodes of a job that was placed."""
        chosen = self._chosen.get(job.uid, "")
        if not chosen:
            return
        tree = self._session.tree
        job.allocated_hyper_node = tree.common_ancestor(job.allocated_hyper_node, chosen)
        for uid, name in self._of_sub_jobs.get((job.uid, chosen), {}).items():
            sub_job = job.sub_jobs.get(uid)
            if sub_job is not None:
                used = tree.common_ancestor(sub_job.allocated_hyper_node, name)
                sub_job.allocated_hyper_node = used
                sub_job.nominated_hyper_node = ""


def gradients_for_job(
    session: VolcanoSession, job: VolcanoSessionJob, within: HyperNode, *, evicts: bool
) -> list[list[HyperNode]]:
    """HyperNodes to try for a job, in steps."""
    for call in session.hooks.all("job_gradients"):
        found: list[list[HyperNode]] = call(job, within, evicts)
        return found
    return [[within]]


def gradients_for_sub_job(
    session: VolcanoSession, sub_job: VolcanoSubJob, within: HyperNode, *, evicts: bool
) -> list[list[HyperNode]]:
    """HyperNodes to try for a sub-group, in steps."""
    for call in session.hooks.all("sub_job_gradients"):
        found: list[list[HyperNode]] = call(sub_job, within, evicts)
        return found
    return [[within]]
