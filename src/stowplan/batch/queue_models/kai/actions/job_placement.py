"""Placement of a job's next pods, as actions of KAI-Scheduler do it, for real or in a
simulation."""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.kai_statement import KaiStatement
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, SubGroupSet, member_order


class JobPlacement:
    """Places jobs on a session. is_simulated: pods only wait for their places."""

    def __init__(self, session: KaiSession, statement: KaiStatement, is_simulated: bool) -> None:
        self._session = session
        self._statement = statement
        self._is_simulated = is_simulated

    def place(self, job: KaiJob, nodes: Sequence[KaiNode]) -> bool:
        """Place a job's next pods; False if not all of them fit, with changes left behind."""
        session = self._session
        session.topology.start_job()
        tasks = job.next_tasks(not self._is_simulated)
        if not tasks or session.is_over_capacity(job, tasks):
            return False
        if self._lacks_room(job, tasks, nodes):
            return False
        return self._place_group(job, job.root, tasks, nodes)

    def _lacks_room(self, job: KaiJob, tasks: Sequence[KaiTask], nodes: Sequence[KaiNode]) -> bool:
        """Whether these surely do not fit together."""
        session = self._session
        if self._may_return(tasks) or session.may_have_room(job):
            return False
        if len(tasks) > 1 and self._has_released(tasks):
            # What is known of the pods that come next is kept beyond the simulation, unless one
            # of them gets a place when it is tried.
            first = _first(job.root, tasks)
            if not first.is_plain or job.has_topology:
                return False
            if session.may_start(first) and any(True for _ in session.places(nodes, first)):
                job.forget_next()
        return True

    def _has_released(self, tasks: Sequence[KaiTask]) -> bool:
        """Whether some of these are evicted in the simulation."""
        return self._is_simulated and any(task.status == KaiStatus.RELEASING for task in tasks)

    def _may_return(self, tasks: Sequence[KaiTask]) -> bool:
        """Whether one of these was evicted in this session before, and is evicted again: it has
        places on several nodes, and may go back to one of them whatever is free."""
        notes = self._session.eviction_notes
        return self._is_simulated and bool(notes) and any(task.key in notes for task in tasks)

    def _place_group(
        self,
        job: KaiJob,
        group: SubGroupSet,
        tasks: Sequence[KaiTask],
        nodes: Sequence[KaiNode],
    ) -> bool:
        if not tasks:
            return True
        names = {task.sub_group for task in tasks}
        pod_sets = [pods for pods in group.pod_sets() if pods.name in names]
        for chosen in self._session.node_sets(job, group, pod_sets, tasks, nodes):
            checkpoint = self._statement.checkpoint()
            if self._place_members(job, group, tasks, chosen):
                return True
            self._statement.rollback(checkpoint)
        return False

    def _place_members(
        self,
        job: KaiJob,
        group: SubGroupSet,
        tasks: Sequence[KaiTask],
        nodes: Sequence[KaiNode],
    ) -> bool:
        for member in sorted(group.members, key=member_order):
            names = {pods.name for pods in member.pod_sets()}
            own = [task for task in tasks if task.sub_group in names]
            if isinstance(member, SubGroupSet):
                is_placed = self._place_group(job, member, own, nodes)
            else:
                is_placed = self._place_set(job, member, own, nodes)
            if not is_placed:
                return False
        return True

    def _place_set(
        self, job: KaiJob, pods: KaiPodSet, tasks: Sequence[KaiTask], nodes: Sequence[KaiNode]
    ) -> bool:
        if not tasks:
            return True
        for chosen in self._session.node_sets(job, pods, [pods], tasks, nodes):
            checkpoint = self._statement.checkpoint()
            if all(self._place_task(task, chosen) for task in tasks):
                return True
            self._statement.rollback(checkpoint)
        return False

    def _place_task(self, task: KaiTask, nodes: Sequence[KaiNode]) -> bool:
        session = self._session
        if not session.may_start(task):
            return False
        return any(self._place_on(task, node) for node in session.places(nodes, task))

    def _place_on(self, task: KaiTask, node: KaiNode) -> bool:
        self._session.choose_zones(task, node)
        if task.is_shared:
            return self._place_share(task, node)
        if not self._is_simulated and node.fits_idle(task):
            return self._statement.allocate(task, node.name)
        return self._statement.pipeline(task, node.name, not self._is_simulated)

    def _place_share(self, task: KaiTask, node: KaiNode) -> bool:
        session = self._session
        cards = session.fitting_cards(task, node)
        chosen = session.choose_cards(cards, task, node, self._is_simulated)
        if chosen is None:
            return False
        task.groups, waits = chosen
        if self._is_simulated or waits:
            is_placed = self._statement.pipeline(task, node.name, False)
        else:
            is_placed = self._statement.allocate(task, node.name)
        if not is_placed:
            task.groups = ()
        return is_placed


def _first(group: SubGroupSet, tasks: Sequence[KaiTask]) -> KaiTask:
    """The pod that is placed first."""
    for member in sorted(group.members, key=member_order):
        names = {pods.name for pods in member.pod_sets()}
        own = [task for task in tasks if task.sub_group in names]
        if own:
            return _first(member, own) if isinstance(member, SubGroupSet) else own[0]
    raise AssertionError("pods that come next are in sub-groups")
