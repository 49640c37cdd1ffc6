"""Changes of a gang, its queue, its pods and of nodes that let a session start it."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.batch.job_report import JobReport
from stowplan.cycle.change import Change, ChangedObject, Operation
from stowplan.forecast.session_changes.gang_changes import find_gang_changes
from stowplan.forecast.session_changes.session_trials import JobChanges, Outcome, smallest
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.quantity import amount, format_quantity
from stowplan.simulation.session_runner import SessionRunner

WEIGHT_MAX = 10_000
RAISED_MAX = 900
"""Points of raising a queue's share or limit: the percentage, up to this."""
SEARCHED_MAX = 1_000_000
"""Limit of (pods x nodes) up to which sessions are tried."""


def find_job_changes(
    cluster: Cluster,
    deciders: Deciders,
    job: JobReport,
    has_started: Outcome,
) -> JobChanges:
    """The smallest changes of a PodGroup, its Queue, its pods and of nodes after which one session
    starts it.

    Sessions run on copies of the cluster.
    """
    if len(cluster.pods) * len(cluster.nodes) > SEARCHED_MAX:
        return JobChanges((), ("changes of gang, queue, pods and nodes: the cluster is too large",))
    search = _JobSearch(cluster, deciders, has_started)
    pending = (*job.waiting, *job.promised)
    others = find_gang_changes(cluster, deciders, pending, has_started)
    found = [*search.gang(job.uid), *search.queue(job.queue), *others.changes]
    cheapest: dict[str, Change] = {}
    for change in sorted(found, key=lambda change: change.cost):
        cheapest.setdefault(change.kind, change)
    return JobChanges(tuple(cheapest.values()), others.not_searched)


class _JobSearch:
    """Tries other versions of one object."""

    def __init__(self, cluster: Cluster, deciders: Deciders, has_started: Outcome) -> None:
        self.cluster = cluster
        self.deciders = deciders
        self.has_started = has_started

    def starts_with(self, before: Object, after: Object) -> bool:
        """True when a session starts the gang with the other version."""
        objects = [after if one is before else one for one in self.cluster.objects]
        runner = SessionRunner(replace(self.cluster, objects=objects), self.deciders)
        return self.has_started(runner.run_session())

    def gang(self, key: str) -> list[Change]:
        """The largest `minMember` with which the gang starts."""
        groups = (one for one in self.cluster.objects if isinstance(one, PodGroup))
        group = next((one for one in groups if one.key == key), None)
        if group is None or group.spec.min_member < 2:
            return []
        least = group.spec.min_member

        def lowered(by: int) -> PodGroup:
            return replace(group, spec=replace(group.spec, min_member=least - by))

        by = smallest(1, least - 1, lambda by: self.starts_with(group, lowered(by)))
        if by is None:
            return []
        members = "member" if by == 1 else "members"
        text = (
            f"lower minMember of PodGroup {group.name} from {least} to {least - by}: "
            f"it is {by} {members} short"
        )
        operation: Operation = {"op": "add", "path": "/spec/minMember", "value": least - by}
        entry = ChangedObject(
            group.api_version, "PodGroup", group.namespace, group.name, (operation,)
        )
        return [Change("gang", -(-100 * by // least), text, (entry,))]

    def queue(self, name: str) -> list[Change]:
        """The smallest weight, and the smallest capability per resource, with which it starts."""
        queues = (one for one in self.cluster.objects if isinstance(one, Queue))
        queue = next((one for one in queues if one.name == name), None)
        if queue is None:
            return []
        found = []
        weight = max(queue.spec.weight, 1)

        def heavier(to: int) -> Queue:
            return replace(queue, spec=replace(queue.spec, weight=to))

        to = smallest(weight + 1, WEIGHT_MAX, lambda to: self.starts_with(queue, heavier(to)))
        if to is not None:
            text = f"raise the weight of Queue {name} from {queue.spec.weight} to {to}"
            found.append(_raised(queue, text, "/spec/weight", to, weight, to))
        for resource in queue.spec.capability:
            found += self._capability(queue, resource)
        return found

    def _capability(self, queue: Queue, resource: str) -> list[Change]:
        quantity = queue.spec.capability[resource]
        limit = amount(resource, quantity)

        def wider(by: int) -> Queue:
            raised = {**queue.spec.capability, resource: format_quantity(resource, limit + by)}
            return replace(queue, spec=replace(queue.spec, capability=raised))

        offered = sum(
            amount(resource, node.status.allocatable[resource])
            for node in self.cluster.nodes
            if resource in node.status.allocatable
        )
        most = max(offered, limit)
        by = smallest(1, most, lambda by: self.starts_with(queue, wider(by)))
        if by is None:
            return []
        value = format_quantity(resource, limit + by)
        text = f"raise the {resource} capability of Queue {queue.name} from {quantity} to {value}"
        path = "/spec/capability/" + resource.replace("~", "~0").replace("/", "~1")
        return [_raised(queue, text, path, value, limit, limit + by)]


def _raised(queue: Queue, text: str, path: str, value: object, before: int, after: int) -> Change:
    cost = RAISED_MAX if before <= 0 else min(-(-100 * (after - before) // before), RAISED_MAX)
    operation: Operation = {"op": "add", "path": path, "value": value}
    entry = ChangedObject(queue.api_version, "Queue", name=queue.name, patch=(operation,))
    return Change("queue", cost, text, (entry,))
