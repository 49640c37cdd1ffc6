"""A scenario of the search for victims: pods that wait, and pods that would be evicted for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.batch.queue_models.kai.state.node_rows import Rows


class JobVictims(msgspec.Struct):
    """Victims of one job."""

    job: KaiJob
    tasks: list[KaiTask]


class FreedAmounts(msgspec.Struct, frozen=True):
    """rows: of the nodes of pods. amounts: float64 (n_resources, n_pods). is_known: whether that is
    all that matters."""

    rows: Rows
    amounts: npt.NDArray[np.float64]
    is_known: bool

    @classmethod
    def of(cls, session: KaiSession, tasks: Sequence[KaiTask]) -> FreedAmounts:
        """Those of some pods."""
        rows = np.array([session.nodes[task.node].row for task in tasks], dtype=np.intp)
        amounts = np.zeros((len(session.rows.offered), len(tasks)))
        if tasks:
            amounts[:] = np.array([task.accepted for task in tasks]).T
        return cls(rows, amounts, all(task.is_plain for task in tasks))


class VictimBatch:
    """Copies of victims of one job that came together, as they were then."""

    def __init__(self, job: KaiJob, tasks: Sequence[KaiTask]) -> None:
        self.uid = job.uid
        if len(job.sets) > 1:
            tasks = [task for name in job.sets for task in tasks if task.sub_group == name]
        self.tasks = [task.clone() for task in tasks]
        self.uids = frozenset(task.uid for task in tasks)
        self._freed: FreedAmounts | None = None

    def freed(self, session: KaiSession) -> FreedAmounts:
        """What is free once they are gone."""
        if self._freed is None:
            self._freed = FreedAmounts.of(session, self.tasks)
        return self._freed


class VictimScenario:
    """job: partial copy of the job that waits. recorded: victims that earlier probes found.
    tried: others, in the order in which they came."""

    def __init__(
        self,
        session: KaiSession,
        job: KaiJob,
        pending: Sequence[KaiTask],
        recorded: Sequence[VictimBatch],
    ) -> None:
        self.session = session
        self.job = job
        self.pending = list(pending)
        self.recorded = list(recorded)
        self.recorded_tasks = [task for one in recorded for task in one.tasks]
        self._recorded_freed: FreedAmounts | None = None
        self.tried: list[KaiTask] = []
        self.has_grown = False
        self._batches: dict[str, list[VictimBatch]] = {}
        self._jobs_on: dict[str, list[str]] = {}
        self._victims: dict[str, JobVictims] = {}
        for one in recorded:
            self._add_batch(one.tasks)

    def add(self, tasks: Sequence[KaiTask]) -> None:
        """Try victims of one job as well."""
        if not tasks:
            return
        self.tried += tasks
        self._add_batch(tasks)
        for task in tasks:
            jobs = self._jobs_on.setdefault(task.node, [])
            if task.job not in jobs:
                jobs.append(task.job)

    def _add_batch(self, tasks: Sequence[KaiTask]) -> None:
        job = self.session.jobs[tasks[0].job]
        self._batches.setdefault(job.uid, []).append(VictimBatch(job, tasks))
        victims = self._victims.setdefault(job.uid, JobVictims(job, []))
        victims.tasks = [*victims.tasks, *tasks]

    def victims(self) -> Mapping[str, JobVictims]:
        """All victims by job, as the session has them now."""
        for victims in self._victims.values():
            sets = victims.job.sets
            victims.tasks = [sets[t.sub_group].tasks[t.uid] for t in victims.tasks]
        return self._victims

    def batch_of(self, task: KaiTask) -> VictimBatch | None:
        """Those with which a victim came."""
        for batch in self._batches.get(task.job, ()):
            if task.uid in batch.uids:
                return batch
        return None

    def batches_of(self, tasks: Iterable[KaiTask]) -> list[VictimBatch]:
        """Those with which victims came, each once."""
        found: dict[int, VictimBatch] = {}
        for task in tasks:
            batch = self.batch_of(task)
            if batch is not None:
                found.setdefault(id(batch), batch)
        return [*found.values()]

    def tried_on(self, node: str) -> list[KaiTask]:
        """Victims of the jobs of which some that are tried are on a node."""
        return [task for batch in self.batches_on(node) for task in batch.tasks]

    def may_work(self, batches: Iterable[VictimBatch] | None = None) -> bool:
        """Whether there may be room for the job that waits once the recorded victims and those of
        some batches, or else those that are tried, are gone. False is certain."""
        session, freed = self.session, [self.recorded_freed]
        if batches is None:
            freed.append(FreedAmounts.of(session, self.tried))
        else:
            freed += [batch.freed(session) for batch in batches]
        if not all(one.is_known for one in freed):
            return True
        rows = np.concatenate([one.rows for one in freed])
        return session.may_have_room(self.job, rows, [one.amounts for one in freed])

    @property
    def recorded_freed(self) -> FreedAmounts:
        """What is free once the recorded victims are gone."""
        if self._recorded_freed is None:
            self._recorded_freed = FreedAmounts.of(self.session, self.recorded_tasks)
        return self._recorded_freed

    def batches_on(self, node: str) -> list[VictimBatch]:
        """Those of the jobs of which some that are tried are on a node."""
        return [batch for job in self._jobs_on.get(node, ()) for batch in self._batches[job]]

    def fork(self) -> VictimScenario:
        """The same with no victims but the recorded ones."""
        return VictimScenario(self.session, self.job, self.pending, self.recorded)

    def fingerprint(self) -> tuple[str, ...]:
        """Equal for scenarios with the same pods."""
        parts = (self.pending, self.recorded_tasks, self.tried)
        return tuple(",".join(sorted(task.uid for task in part)) for part in parts)
