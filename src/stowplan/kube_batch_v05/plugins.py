"""Session plugins: priority, gang, conformance, drf, predicates and nodeorder.

Source: kube-batch v0.5, plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stowplan.framework.deciders.resource_vector import ResourceVector, share_of
from stowplan.framework.deciders.session_arguments import boolean, integer
from stowplan.kube_batch_v05.amounts import subtract
from stowplan.kube_batch_v05.close import set_unschedulable
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask, job_fit_error
from stowplan.kube_batch_v05.node_scores import node_scores
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.pod_predicates import PRESSURES, PodPredicates
from stowplan.kube_batch_v05.proportion import KubeBatchProportion
from stowplan.kube_batch_v05.session import KubeBatchPlugin, KubeBatchSession

SHARE_DELTA = 0.000001
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"


class _Plugin:
    """Base of plugins without arguments."""

    name = ""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: ignored."""

    def on_close(self, session: KubeBatchSession) -> None:
        """Nothing to do."""


class KubeBatchPriority(_Plugin):
    """Jobs and tasks of higher priority go first."""

    name = "priority"

    def on_open(self, session: KubeBatchSession) -> None:
        """Register both orders."""

        def order(a: KubeBatchTask | KubeBatchJob, b: KubeBatchTask | KubeBatchJob) -> int:
            return (b.priority > a.priority) - (b.priority < a.priority)

        session.functions.register(self.name, task_order=order, job_order=order)


class KubeBatchGang(_Plugin):
    """Jobs start with their minimum of pods; running gangs are not broken up by a single victim."""

    name = "gang"

    def on_open(self, session: KubeBatchSession) -> None:
        """Register the functions that depend on task counts.

        That a job has too few pods is asked before plugins are known in the original, so it has no
        effect.
        """

        def victims(
            task: KubeBatchTask, candidates: Sequence[KubeBatchTask]
        ) -> list[KubeBatchTask]:
            return [one for one in candidates if _can_spare(session.jobs[one.job])]

        session.functions.register(
            self.name,
            preemptable=victims,
            reclaimable=victims,
            job_order=lambda a, b: int(a.is_ready) - int(b.is_ready),
            job_ready=lambda job: job.is_ready,
            job_pipelined=lambda job: job.is_pipelined,
        )

    def on_close(self, session: KubeBatchSession) -> None:
        """Set the Unschedulable condition of jobs that are not ready."""
        for job in session.jobs.values():
            n_missing = job.min_available - job.ready_count
            if n_missing > 0:
                text = f"{n_missing}/{len(job.tasks)} tasks in gang unschedulable: "
                reason = NOT_ENOUGH_RESOURCES
                set_unschedulable(session, job, reason, text + job_fit_error(job))


def _can_spare(job: KubeBatchJob) -> bool:
    """True if the gang stays complete without one task; other victims are not counted."""
    return job.min_available <= job.ready_count - 1 or job.min_available == 1


class KubeBatchConformance(_Plugin):
    """Critical pods are never victims."""

    name = "conformance"

    def on_open(self, session: KubeBatchSession) -> None:
        """Register the answer for preempt and reclaim."""

        def victims(
            task: KubeBatchTask, candidates: Sequence[KubeBatchTask]
        ) -> list[KubeBatchTask]:
            return [
                one
                for one in candidates
                if one.pod.spec.priority_class_name not in CRITICAL_CLASSES
                and one.pod.metadata.namespace != SYSTEM_NAMESPACE
            ]

        session.functions.register(self.name, preemptable=victims, reclaimable=victims)


class KubeBatchJobShare:
    """Allocation and dominant share of a job, now and when the session opened."""

    def __init__(self, allocated: ResourceVector, share: float) -> None:
        self.allocated, self.share = allocated, share
        self.open_allocated, self.open_share = allocated.copy(), share


class KubeBatchDrf(_Plugin):
    """Jobs with the smaller dominant share go first, and keep it.

    Theory: A. Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource
    Types, NSDI 2011.
    """

    name = "drf"

    def on_open(self, session: KubeBatchSession) -> None:
        """Compute the share of every job and register job order, victims and handlers."""
        self.total = ResourceVector()
        for node in session.nodes.values():
            self.total.add(node.allocatable)
        self.shares = {
            uid: KubeBatchJobShare(job.allocated, self._share(job.allocated))
            for uid, job in session.jobs.items()
        }
        session.functions.register(self.name, preemptable=self._victims, job_order=self._job_order)
        session.handlers.append((self._allocated, self._deallocated))

    def _share(self, allocated: ResourceVector) -> float:
        """The largest share of a resource."""
        total = self.total
        shares = (share_of(allocated.get(name), total.get(name)) for name in total.names())
        return max(0.0, *shares)

    def _job_order(self, first: KubeBatchJob, second: KubeBatchJob) -> int:
        a, b = self.shares[first.uid].share, self.shares[second.uid].share
        return (a > b) - (a < b)

    def _victims(
        self, task: KubeBatchTask, candidates: Sequence[KubeBatchTask]
    ) -> list[KubeBatchTask]:
        """Candidates without which their job's share is not smaller than that of the task's job
        with it; those that stay count as evicted too, and the task's own job is protected."""
        mine = self._share(self.shares[task.job].allocated.copy().add(task.ask.running))
        left: dict[str, ResourceVector] = {}
        allowed = []
        for one in candidates:
            if one.job not in left:
                left[one.job] = self.shares[one.job].allocated.copy()
            theirs = self._share(subtract(left[one.job], one.ask.running))
            if mine < theirs or abs(mine - theirs) <= SHARE_DELTA:
                allowed.append(one)
        return allowed

    def _allocated(self, task: KubeBatchTask) -> None:
        held = self.shares[task.job]
        held.share = self._share(held.allocated.add(task.ask.running))

    def _deallocated(self, task: KubeBatchTask) -> None:
        held = self.shares[task.job]
        held.share = self._share(subtract(held.allocated, task.ask.running))


class KubeBatchPredicates(_Plugin):
    """Which nodes a task may run on: predicates of Kubernetes 1.13."""

    name = "predicates"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: which pressure conditions count."""
        self._pressures = frozenset(
            condition
            for condition in PRESSURES
            if boolean(arguments, f"predicate.{condition}Enable", default=False)
        )

    def on_open(self, session: KubeBatchSession) -> None:
        """Register the predicate."""

        def passing(task: KubeBatchTask, nodes: Sequence[KubeBatchNode]) -> list[KubeBatchNode]:
            checks = PodPredicates(session, task, self._pressures)
            return [node for node in nodes if checks.passes(node)]

        session.functions.register(self.name, predicate=passing)


class KubeBatchNodeOrder(_Plugin):
    """Scores of nodes: priorities of Kubernetes 1.13.

    Both affinities have the weight of balanced resources; their own settings are not read.
    """

    name = "nodeorder"

    def __init__(self, arguments: Mapping[str, str]) -> None:
        """arguments: the weights."""
        least = integer(arguments, "leastrequested.weight")
        balanced = integer(arguments, "balancedresource.weight")
        self._least_weight = 1 if least is None else least
        self._other_weight = 1 if balanced is None else balanced

    def on_open(self, session: KubeBatchSession) -> None:
        """Register the scores."""

        def scores(task: KubeBatchTask, nodes: Sequence[KubeBatchNode]) -> list[float]:
            return [
                float(least * self._least_weight + sum(others) * self._other_weight)
                for least, *others in node_scores(session, task, nodes)
            ]

        session.functions.register(self.name, node_order=scores)


PLUGINS: Mapping[str, Callable[[Mapping[str, str]], KubeBatchPlugin]] = {
    "priority": KubeBatchPriority,
    "gang": KubeBatchGang,
    "conformance": KubeBatchConformance,
    "drf": KubeBatchDrf,
    "predicates": KubeBatchPredicates,
    "proportion": KubeBatchProportion,
    "nodeorder": KubeBatchNodeOrder,
}
"""Name -> session plugin."""
