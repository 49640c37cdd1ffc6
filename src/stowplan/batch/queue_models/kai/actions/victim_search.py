"""The search for victims of a job, as KAI-Scheduler does it: scenarios are simulated until one
works.

First for one pod of the job, then for two, four and so on, then between the last number that worked
and the first that did not; victims that helped are kept. At last for the whole gang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stowplan.batch.queue_models.kai.actions.job_placement import JobPlacement
from stowplan.batch.queue_models.kai.actions.scenario_generators import GENERATORS
from stowplan.batch.queue_models.kai.actions.victim_reach import VictimReach
from stowplan.batch.queue_models.kai.actions.victim_scenario import VictimBatch, VictimScenario
from stowplan.batch.queue_models.kai.job_queue import (
    JobFilters,
    JobQueue,
    in_order,
    leaves_that_matter,
    without_repeats,
)
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.kai_statement import KaiStatement, evict_all
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES, KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.pod_sets import shrink_minimums

PRIVATE = JobFilters(preemptible=True, active=True)
WAITING = JobFilters(pending=True)


class KaiVictimSearch:
    """candidates: jobs with possible victims. is_valid: whether a scenario that works may be
    done."""

    def __init__(
        self,
        session: KaiSession,
        candidates: Iterable[KaiJob],
        is_valid: Callable[[VictimScenario], bool],
        keeps_all: bool = False,
    ) -> None:
        """keeps_all: victims must all find other places; scenarios end with the first that does
        not.

        Differs: a job with pods on a node that is gone is no victim. KAI leaves out those of which
        no other pod is left; with any other of them, each set of victims fails."""
        self._session = session
        there = (job for job in candidates if job.uid not in session.off_nodes)
        self._candidates = in_order(session, there, PRIVATE)
        self._waiting: Mapping[str, Sequence[KaiJob]] | None = None
        self._is_valid = is_valid
        self._keeps_all = keeps_all
        self._failed: set[tuple[str, ...]] = set()
        self._recorded: list[VictimBatch] = []
        self._recorded_tasks: list[KaiTask] = []
        self._feasible: Mapping[str, KaiNode] = {}
        self._reach = VictimReach(
            session, [job for jobs in self._candidates.values() for job in jobs]
        )
        self._alike: dict[str, list[KaiJob]] = {}

    def solve(self, job: KaiJob) -> KaiStatement | None:
        """Changes that give a job its place; None if there are none."""
        used = job.used
        tasks = job.next_tasks(False)
        if not tasks or not self._candidates:
            return None
        self._feasible = {node.name: node for node in feasible_nodes(self._session, job)}
        for generator in GENERATORS:
            if generator not in self._session.options.plugins:
                continue
            self._recorded, self._recorded_tasks = [], []
            if self._most(job, tasks, generator) == 0:
                continue
            statement = self._probe(job, tasks, len(tasks), generator, keeps=True)
            if statement is None:
                continue
            # The original leaves changes of a gang that is not satisfied behind.
            return statement if job.is_gang_satisfied and job.used > used else None
        return None

    def _most(self, job: KaiJob, tasks: Sequence[KaiTask], generator: str) -> int:
        """The most pods for which a probe works."""
        count, low, high = 1, 0, 0
        while True:
            if self._probe(job, tasks, count, generator) is None:
                high = count
                break
            low = count
            if count == len(tasks):
                return count
            count = min(2 * count, len(tasks))
        while high - low > 1:
            middle = (low + high) // 2
            if self._probe(job, tasks, middle, generator) is None:
                high = middle
            else:
                low = middle
        return low

    def _probe(
        self,
        job: KaiJob,
        tasks: Sequence[KaiTask],
        count: int,
        generator: str,
        keeps: bool = False,
    ) -> KaiStatement | None:
        """Changes for some pods of a job, undone again unless they are to be kept."""
        session = self._session
        placed = [task for task in job.tasks() if task.status & ACTIVE_STATUSES]
        part = job.with_tasks([*placed, *tasks[:count]])
        shrink_minimums(part.root)
        nodes = dict(self._feasible)
        for task in self._recorded_tasks:
            nodes[task.node] = session.nodes[task.node]
        pending = part.next_tasks(False)
        if not pending:
            return None
        victims = JobQueue(session, of_victims=True)
        victims.fill(self._candidates)
        base = VictimScenario(session, part, pending, self._recorded)
        for scenario in GENERATORS[generator](base, victims, nodes, self._reach):
            if session.budget.is_spent:
                return None
            if not scenario.may_work():
                continue
            fingerprint = scenario.fingerprint()
            if fingerprint in self._failed:
                continue
            statement = self._simulate(scenario, nodes)
            if statement is None:
                self._failed.add(fingerprint)
                continue
            if not keeps:
                statement.discard()
            return statement
        return None

    def _simulate(self, scenario: VictimScenario, nodes: dict[str, KaiNode]) -> KaiStatement | None:
        session = self._session
        victims = [*scenario.recorded_tasks, *scenario.tried]
        if not victims:
            return None
        statement = KaiStatement(session)
        session.budget.spend(len(victims))
        if self._waiting is None:
            self._waiting = in_order(session, session.waiting, WAITING)
        evict_all(statement, victims)
        added = {task.node for task in victims} - nodes.keys()
        for name in added:
            nodes[name] = session.nodes[name]
        if self._places(scenario, victims, statement, nodes):
            gone = [task for task in victims if task.status == KaiStatus.RELEASING]
            if self._is_valid(scenario):
                moved = [task for task in victims if task.status == KaiStatus.PIPELINED]
                self._found(scenario, [*gone, *moved])
                return statement
        for name in added:
            del nodes[name]
        statement.discard()
        return None

    def _found(self, scenario: VictimScenario, victims: list[KaiTask]) -> None:
        self._session.budget.makes_progress(len(victims))
        self._recorded_tasks = victims
        by_job: dict[str, list[VictimBatch]] = {}
        for batch in scenario.batches_of(victims):
            by_job.setdefault(batch.uid, []).append(batch)
        self._recorded = [batch for batches in by_job.values() for batch in batches]

    def _places(
        self,
        scenario: VictimScenario,
        victims: Sequence[KaiTask],
        statement: KaiStatement,
        nodes: dict[str, KaiNode],
    ) -> bool:
        """Place the job and as many victims as still fit, in the order of queues."""
        session, own = self._session, scenario.job
        involved = {task.job: session.jobs[task.job] for task in victims}
        queue = self._order_of({**involved, own.uid: own})
        placement = JobPlacement(session, statement, is_simulated=True)
        is_placed = False
        ordered = [*nodes.values()]
        # Jobs that come after the last of these make no difference.
        left = {*involved, own.uid}
        while left:
            job = queue.pop()
            left.discard(job.uid)
            if job.uid == own.uid or job.uid in involved:
                # What it asks for is kept as it was before it got its place.
                session.wanted(job)
            if job.uid == own.uid:
                if not placement.place(job, ordered):
                    return False
                is_placed = True
            elif job.uid in involved and not placement.place(job, ordered) and self._keeps_all:
                return False
        return is_placed

    def _order_of(self, jobs: Mapping[str, KaiJob]) -> JobQueue:
        """Jobs among those that wait, as far as these change their order. jobs: by uid."""
        session = self._session
        by_leaf: dict[str, list[KaiJob]] = {}
        for job in jobs.values():
            by_leaf.setdefault(job.queue, []).append(job)
        waiting = self._waiting or {}
        leaves = {}
        for name in leaves_that_matter(session, by_leaf, waiting):
            if name not in by_leaf:
                # Nothing of such a leaf changes during the search.
                if name not in self._alike:
                    self._alike[name] = without_repeats(session, waiting[name], lambda _: False)
                leaves[name] = self._alike[name]
                continue
            own = [job for job in waiting.get(name, ()) if job.uid not in jobs]
            own += by_leaf[name]
            own.sort(key=KaiJob.order)
            leaves[name] = without_repeats(session, own, lambda job: job.uid in jobs)
        queue = JobQueue(session)
        queue.fill(leaves)
        return queue


def feasible_nodes(session: KaiSession, job: KaiJob) -> list[KaiNode]:
    """Nodes with cards that are free or being released, or all if a pod needs none."""
    nodes = list(session.nodes.values())
    if not all(task.needs_card for task in job.tasks()):
        return nodes
    return [node for node in nodes if node.idle_cards()[0] > 0 or node.releasing_cards()[0] > 0]
