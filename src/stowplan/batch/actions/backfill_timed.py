"""backfill-timed: start jobs in order, and short jobs ahead of their turn where no job before them
starts later for it.

It takes the place of `allocate`. The first job that does not fit gets a reservation: the earliest
time at which running pods will have ended, on nodes of its own. A job behind it starts now if it
fits now and ends, by its run limit, before what it uses is reserved.

    conservative    every job that has to wait gets a reservation
    easy            only the first one
    strict          none: no job starts ahead of its turn

The run limit of a job is the longest of its pending pods: the annotation `stowplan.dev/run-seconds`
or `activeDeadlineSeconds`, the smaller of the two. A job without a limit holds its nodes for ever,
and never starts ahead of its turn. A job that its queue's share or capability holds back, or for
which running pods never make room, gets no reservation and holds up no other.

A job starts on the nodes that were reserved for it, so that reservations of earlier sessions hold.
With exact limits a reservation is only ever replaced by an earlier one, unless a job is added
before it.

Source: D. Lifka, The ANL/IBM SP scheduling system, JSSPP 1995 (EASY); A. Mu'alem, D. Feitelson,
IEEE TPDS 12 (2001) (conservative); Slurm, sched/backfill (bf_max_job_test).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.batch.actions.availability_profile import TICK, AvailabilityProfile
from stowplan.batch.actions.running_tasks import OVERDUE_S, RunningTasks
from stowplan.batch.fit_errors import fit_errors, fits_somewhere
from stowplan.batch.session import Session, SessionAction
from stowplan.batch.session_rules import PressureChecks, ScoringError
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.tiers import TaskQueue
from stowplan.columns.array_types import Floats, Ints
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.timing.run_limits import run_limit_s

MODE, MAX_JOBS = "mode", "maxJobs"
"""Names of the arguments."""
CONSERVATIVE, EASY, STRICT = "conservative", "easy", "strict"
MODES = (CONSERVATIVE, EASY, STRICT)
MAX_JOBS_DEFAULT = 100
WOULD_DELAY = "there is room, but a job before it could start later"


class BackfillTimed(SessionAction):
    """Starts jobs in order, with reservations for those that wait."""

    name = "backfill-timed"

    def __init__(self) -> None:
        self._mode = CONSERVATIVE
        self._max_jobs = MAX_JOBS_DEFAULT
        self._running = RunningTasks()
        # Uid of a task -> the node that the last session reserved for it.
        self._reserved: dict[str, str] = {}

    def configure(self, arguments: Mapping[str, str]) -> None:
        """mode: one of MODES. maxJobs: how many turns after the first that has to wait are looked
        at."""
        self._mode = arguments.get(MODE, CONSERVATIVE)
        self._max_jobs = int(arguments.get(MAX_JOBS, MAX_JOBS_DEFAULT))

    def run(self, session: Session) -> None:
        """Serve queues and jobs in order."""
        plan = BackfillPlan(session, self._mode, self._running, self._reserved)
        queues: Heap[QueueInfo] = Heap(session.hooks.queue_less)
        jobs: dict[str, Heap[JobInfo]] = {}
        for job in session.jobs.values():
            if TaskStatus.PENDING not in job.by_status or job.queue not in session.queues:
                continue
            if job.queue not in jobs:
                jobs[job.queue] = Heap(session.hooks.job_less)
                queues.push(session.queues[job.queue])
            jobs[job.queue].push(job)
        tasks: dict[str, TaskQueue] = {}
        n_left = self._max_jobs
        while queues and n_left >= 0 and not plan.is_complete:
            queue = queues.pop()
            waiting = jobs[queue.name]
            if not waiting or session.hooks.overused(queue):
                continue
            job = waiting.pop()
            if job.uid not in tasks:
                tasks[job.uid] = session.hooks.job_turns(job, lambda t: not t.ask.is_best_effort)
            if plan.serve(job, tasks[job.uid]) and tasks[job.uid]:
                waiting.push(job)
            n_left -= plan.has_reservations
            queues.push(queue)
        self._reserved = plan.reserved


class _Turn(msgspec.Struct, frozen=True):
    """Tasks that start together. length_s: the longest limit; infinity for none."""

    job: JobInfo
    tasks: Sequence[TaskInfo]
    length_s: float


class BackfillPlan:
    """Starts and reservations of one session. reserved: uid -> node, of this session.
    has_reservations: whether a job has to wait."""

    def __init__(
        self, session: Session, mode: str, running: RunningTasks, before: Mapping[str, str]
    ) -> None:
        self.reserved: dict[str, str] = {}
        self.has_reservations = False
        self._session = session
        self._mode = mode
        self._running = running
        self._before = before
        self._profile: AvailabilityProfile | None = None
        self._latest_s = 0.0
        self._rows: dict[Hashable, Ints] = {}

    @property
    def is_complete(self) -> bool:
        """True if no further job can start."""
        return self._mode == STRICT and self.has_reservations

    def serve(self, job: JobInfo, tasks: TaskQueue) -> bool:
        """One turn of a job: its minimum, or one more task. True if the job is ready and may have
        another."""
        session = self._session
        is_ready = session.hooks.job_ready(job)
        n_wanted = 1 if is_ready else max(job.min_available - job.ready_count, 1)
        popped: list[TaskInfo] = []
        while tasks and len(popped) < n_wanted:
            popped.append(tasks.pop())
        if not popped:
            return False
        turn = _Turn(job, popped, max(run_limit_s(task.pod) for task in popped))
        if self._start(turn):
            return True
        is_held = self.has_reservations and fits_somewhere(session, popped[0])
        job.fit_errors = WOULD_DELAY if is_held else fit_errors(session, popped[0])
        if len(popped) == n_wanted and not (self._mode == EASY and self.has_reservations):
            self._reserve(turn)
        # Further tasks of the minimum follow, unless it is out of reach.
        return is_ready

    # Starting now.

    def _start(self, turn: _Turn) -> bool:
        """Start a turn, unless a reservation would be delayed."""
        if self.has_reservations and (self._mode == STRICT or math.isinf(turn.length_s)):
            return False
        session, job = self._session, turn.job
        statement = session.statement()
        taken: list[tuple[int, Floats]] = []
        for task in turn.tasks:
            row = self._row_for(task, turn.length_s)
            if row < 0:
                break
            statement.allocate(task, row)
            if self._profile is not None:
                amount = self._running.vector(task)
                self._profile.reserve(row, 0.0, turn.length_s, amount)
                taken.append((row, amount))
        if len(statement) == len(turn.tasks) and session.hooks.job_ready(job):
            statement.commit()
            job.fit_errors = ""
            return True
        statement.rollback()
        for row, amount in taken:
            assert self._profile is not None
            self._profile.reserve(row, 0.0, turn.length_s, -amount)
        return False

    def _row_for(self, task: TaskInfo, length_s: float) -> int:
        """The node reserved by the last session if it is possible now, else the best one; -1 for
        none."""
        session = self._session
        if not session.state.capabilities.allows(task):
            return -1
        nodes = session.state.nodes
        wanted = nodes.row(self._before.get(task.uid, ""))
        best = session.best_nodes.best(task)
        if best < 0 or (wanted < 0 and self._profile is None):
            return best
        rows = self._possible_rows(task)
        allowed = nodes.fits_idle(task, rows)
        if self._profile is not None:
            request = self._running.request(task)
            allowed &= self._profile.fits(request, 0.0, length_s, rows)
        rows = rows[allowed]
        rows = rows[session.hooks.passing(task, rows)]
        if not rows.shape[0]:
            return -1
        for row in (wanted, best):
            if row in rows:
                return row
        try:
            return session.best(task, rows)
        except ScoringError:
            return -1

    # Reservations.

    def _reserve(self, turn: _Turn) -> None:
        """Reserve the earliest time and nodes for a turn; nothing if there are none."""
        session = self._session
        if not all(session.state.capabilities.allows(task) for task in turn.tasks):
            return
        profile = self._profile_of_session()
        rows = self._possible_rows(turn.tasks[0])
        not_before = self._latest_s if math.isinf(turn.length_s) else 0.0
        requests = self._requests(turn.tasks)
        start_s, placed = profile.gang(requests, turn.length_s, rows, not_before)
        if not placed or start_s <= TICK:
            # What fits by resources and does not start is held back by something else.
            return
        for task, row in zip(turn.tasks, placed, strict=True):
            profile.reserve(row, start_s, start_s + turn.length_s, self._running.vector(task))
            self.reserved[task.uid] = session.state.nodes.names[row]
        self.has_reservations = True
        self._latest_s = max(self._latest_s, start_s)

    def _requests(self, tasks: Sequence[TaskInfo]) -> list[Floats]:
        """The requests of tasks; equal ones are one object."""
        known: dict[Hashable, Floats] = {}
        for task in tasks:
            if task.ask.wants not in known:
                known[task.ask.wants] = self._running.request(task)
        return [known[task.ask.wants] for task in tasks]

    def _possible_rows(self, task: TaskInfo) -> Ints:
        """int64: rows that the task may be on once there is room; of tasks that depend on other
        pods, those that pass now."""
        session = self._session
        kind = session.best_nodes.row_kind(task)
        rows = None if kind is None else self._rows.get(kind)
        if rows is None:
            nodes = session.state.nodes
            every: Ints = np.arange(nodes.n_nodes, dtype=np.int64)
            suits = session.hooks.passing(task, every)
            # The session plugin `predicates` refuses nodes that have no more pod slots.
            full = nodes.pod_count >= nodes.pod_limit
            if full.any():
                suits |= full & session.state.rules.passing(task, every, PressureChecks())
            rows = np.flatnonzero(suits & nodes.has_ready_nodes())
            if kind is not None:
                self._rows[kind] = rows
        return rows

    def _profile_of_session(self) -> AvailabilityProfile:
        """The profile, built when the first job has to wait."""
        if self._profile is None:
            session, running = self._session, self._running
            releases = running.releases(session)
            self._profile = AvailabilityProfile(running.idle(session), releases)
            self._hold_pipelined(self._profile)
        return self._profile

    def _hold_pipelined(self, profile: AvailabilityProfile) -> None:
        """Pipelined tasks run as soon as what they wait for is released."""
        nodes = self._session.state.nodes
        if not nodes.has_pipelined:
            return
        pipelined = [
            (row, one.task)
            for row in range(nodes.n_nodes)
            for one in nodes.tasks_on(row)
            if one.status is TaskStatus.PIPELINED
        ]
        for row, task in (*pipelined, *nodes.held):
            end_s = OVERDUE_S + run_limit_s(task.pod)
            profile.reserve(row, OVERDUE_S, end_s, self._running.vector(task))


def is_mode(text: str) -> bool:
    """True for the value of the argument `mode`."""
    return text in MODES


ARGUMENTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    MODE: (f"one of {', '.join(MODES)}", is_mode),
    MAX_JOBS: ("a whole number above 0", lambda text: text.isdecimal() and int(text) > 0),
}
"""Argument -> what is allowed, and its check."""
