"""shuffle: evict the tasks that plugins choose.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/shuffle/shuffle.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.framework.deciders.tasks import TaskStatus


def shuffle(session: VolcanoSession) -> None:
    """Run the action.

    Differs: with victims of tdm the original fails an assertion, and panics unless turned off.
    """
    running = [t for job in session.jobs.values() for t in job.of(TaskStatus.RUNNING)]
    for victim in victims(session, running):
        session.evict(victim)
        session.commit_evict(victim)


def victims(session: VolcanoSession, running: list[VolcanoTask]) -> list[VolcanoTask]:
    """What the plugins of the first tier choose that chooses any; each task once."""
    for tier in session.hooks.tiers("victim_tasks"):
        chosen = {task.uid: task for call in tier for task in call(running)}
        if chosen:
            return list(chosen.values())
    return []
