"""Workloads as Kueue holds them: what they ask for, what they hold, their conditions and order.

Source: Kueue, pkg/workload: workload.go, admissionchecks.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from stowplan.batch.queue_models.kueue.kueue_objects import (
    PodSet,
    PodSetAdmission,
    PodSetTopologyRequest,
    PodSetUpdate,
    Workload,
    seconds,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, ResourceTransformation
from stowplan.batch.queue_models.kueue.quota.quota_amounts import (
    FlavorResource,
    plus,
    request_amount,
)
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.quantity import INT64_MAX, nanos

QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED = "QuotaReserved", "Admitted", "Evicted", "Preempted"
REQUEUED, FINISHED = "Requeued", "Finished"
_TIMED_EVICTIONS = ("PodsReadyTimeout", "AdmissionCheck")

Requests = dict[str, int]
"""Resource -> base units."""
DomainValues = tuple[str, ...]

_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class PodSetPlaces:
    """Domains of a pod set. levels: labels, the widest first. domains: values -> pods."""

    levels: tuple[str, ...]
    domains: tuple[tuple[DomainValues, int], ...]


@dataclass(slots=True)
class PodSetDemand:
    """What a pod set asks for or holds.

    requests: of all its pods. flavors: resource -> flavor, of a workload that holds quota.
    per_pod: requests of a pod.
    """

    name: str
    count: int
    requests: Requests
    flavors: dict[str, str] = field(default_factory=dict)
    places: PodSetPlaces | None = None
    delayed: str | None = None
    per_pod: Requests = field(default_factory=dict)

    def scaled_to(self, count: int) -> PodSetDemand:
        """The same with another number of pods."""
        if self.places is not None or self.count in (0, count):
            return self
        requests = {name: n // self.count * count for name, n in self.requests.items()}
        return PodSetDemand(self.name, count, requests, dict(self.flavors), per_pod=self.per_pod)


@dataclass(frozen=True, slots=True)
class PlaceUse:
    """Pods in a domain of a flavor. per_pod: requests of a pod, without the pod itself."""

    flavor: str
    values: DomainValues
    per_pod: Mapping[str, int]
    count: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Quota and places that are used."""

    quota: dict[FlavorResource, int]
    places: tuple[PlaceUse, ...] = ()


@dataclass(frozen=True, slots=True)
class TriedFlavors:
    """How far the search for flavors came. per_pod_set: resource -> index of the last flavor that
    was tried, -1 if none is left."""

    per_pod_set: tuple[Mapping[str, int], ...]
    generation: int
    cycle: int
    shape: bytes

    @property
    def has_flavors_left(self) -> bool:
        """Whether the search stopped before the last flavor."""
        return any(i != -1 for tried in self.per_pod_set for i in tried.values())

    def next_index(self, pod_set: int, resource: str) -> int:
        """Index of the flavor with which to go on."""
        if pod_set >= len(self.per_pod_set):
            return 0
        return self.per_pod_set[pod_set].get(resource, -1) + 1


@dataclass(slots=True)
class WorkloadCondition:
    """A condition. since: seconds."""

    is_true: bool
    reason: str
    since: float


class AdmissionWorkload:
    """A workload. priority: of the workload; conditions: by type."""

    def __init__(self, workload: Workload, options: KueueOptions) -> None:
        self.workload = workload
        self.options = options
        self.key = workload.key
        self.uid = workload.metadata.uid
        self.namespace = workload.metadata.namespace
        self.priority = workload.spec.priority or 0
        self.created = seconds(workload.metadata.creation_timestamp)
        self.pod_sets = workload.spec.pod_sets
        self.queue_name = f"{self.namespace}/{workload.spec.queue_name}"
        self.cluster_queue = ""
        self.conditions = {
            one.type: WorkloadCondition(
                one.status == "True", one.reason, seconds(one.last_transition_time)
            )
            for one in workload.status.conditions
        }
        self.checks = {one.name: one.state for one in workload.status.admission_checks}
        self._updates = [
            update
            for one in workload.status.admission_checks
            if one.state == "Ready"
            for update in one.pod_set_updates
        ]
        self.unhealthy_nodes = [one.name for one in workload.status.unhealthy_nodes]
        self.reclaimed = {one.name: one.count for one in workload.status.reclaimable_pods}
        self.tried: TriedFlavors | None = None
        self._pod_requests = [_spec_requests(one.template.spec) for one in self.pod_sets]
        admission = workload.status.admission
        if admission is not None:
            self.cluster_queue = admission.cluster_queue
        self.demands = self._asked() if admission is None else self._held(workload)
        self.usage = _usage(self.demands)
        self.shape = self._shape()

    def is_condition(self, kind: str) -> bool:
        """Whether a condition is true."""
        return kind in self.conditions and self.conditions[kind].is_true

    def set_condition(self, kind: str, is_true: bool, reason: str, now: float) -> None:
        """Set a condition; its time changes with its status only."""
        old = self.conditions.get(kind)
        since = old.since if old is not None and old.is_true is is_true else now
        self.conditions[kind] = WorkloadCondition(is_true, reason, since)

    @property
    def holds_quota(self) -> bool:
        """Whether quota is reserved for it."""
        return self.is_condition(QUOTA_RESERVED)

    @property
    def has_failed_places(self) -> bool:
        """Whether it is admitted and has pods on nodes that failed."""
        return self.is_condition(ADMITTED) and any(
            one.places is not None and self.is_on_failed_node(one.places) for one in self.demands
        )

    def is_on_failed_node(self, places: PodSetPlaces) -> bool:
        """Whether one of the domains is a node that failed."""
        return any(values[-1] in self.unhealthy_nodes for values, _ in places.domains)

    def updates_of(self, pod_set: str) -> list[PodSetUpdate]:
        """What checks that are Ready add to a pod set."""
        return [one for one in self._updates if one.name == pod_set]

    @property
    def is_evicted(self) -> bool:
        """Whether it has to give up its quota."""
        return self.is_condition(EVICTED)

    @property
    def queued_since(self) -> float:
        """By what workloads of equal priority are ordered: creation, or a timed eviction."""
        evicted = self.conditions.get(EVICTED)
        rules = self.options.pods_ready
        is_by_creation = rules is not None and not rules.by_eviction
        if is_by_creation and evicted is not None and evicted.reason == "PodsReadyTimeout":
            return self.created
        if evicted is not None and evicted.is_true and evicted.reason in _TIMED_EVICTIONS:
            return evicted.since
        return self.created

    @property
    def has_closed_gate(self) -> bool:
        """Whether a gate keeps it from preempting."""
        return bool(self.workload.spec.preemption_gates)

    @property
    def is_shrinkable(self) -> bool:
        """Whether fewer pods would do."""
        return any(one.min_count is not None and one.count > one.min_count for one in self.pod_sets)

    def reserve(self, queue: str, demands: list[PodSetDemand], now: float) -> None:
        """Give it quota."""
        self.cluster_queue = queue
        self.demands = demands
        self.usage = _usage(demands)
        self.unhealthy_nodes = []
        self.set_condition(QUOTA_RESERVED, True, QUOTA_RESERVED, now)
        for kind in (EVICTED, PREEMPTED):
            if self.is_condition(kind):
                self.set_condition(kind, False, QUOTA_RESERVED, now)

    def release(self, now: float) -> None:
        """Take its quota away; it asks for it again."""
        self.demands = self._asked()
        self.usage = _usage(self.demands)
        self.tried = None
        self.unhealthy_nodes = []
        self.set_condition(QUOTA_RESERVED, False, "PendingEvaluation", now)
        if self.is_condition(ADMITTED):
            self.set_condition(ADMITTED, False, "NoReservation", now)

    def topology_request(self, index: int) -> PodSetTopologyRequest | None:
        """The topology request of a pod set."""
        return self.pod_sets[index].topology_request

    def _asked(self) -> list[PodSetDemand]:
        found = []
        for one, per_pod in zip(self.pod_sets, self._pod_requests, strict=True):
            count = self._count_left(one.name, one.count)
            counted = _transformed(_counted(per_pod, self.options), self.options.transformations)
            requests = {name: min(max(n, 0) * count, INT64_MAX) for name, n in counted.items()}
            found.append(PodSetDemand(one.name, count, requests, per_pod=per_pod))
        return found

    def _count_left(self, name: str, count: int) -> int:
        if "ReclaimablePods" not in self.options.gates:
            return count
        return count - min(self.reclaimed.get(name, 0), count)

    def _held(self, workload: Workload) -> list[PodSetDemand]:
        admission = workload.status.admission
        counts = {one.name: one.count for one in self.pod_sets}
        by_name = {one.name: n for one, n in zip(self.pod_sets, self._pod_requests, strict=True)}
        found = []
        for one in admission.pod_set_assignments if admission is not None else ():
            count = counts.get(one.name, 0) if one.count is None else one.count
            requests = {name: request_amount(name, q) for name, q in one.resource_usage.items()}
            left = self._count_left(one.name, counts.get(one.name, count))
            if left < count:
                requests = {name: n // count * left for name, n in requests.items()}
                count = left
            found.append(
                PodSetDemand(
                    one.name,
                    count,
                    requests,
                    dict(one.flavors),
                    _places(one),
                    one.delayed_topology_request,
                    by_name.get(one.name, {}),
                )
            )
        return found

    def _shape(self) -> bytes:
        """What workloads that fare alike have in common."""
        asked = self._asked()
        return _encoded((self.priority, [
            (
                one.name, _spec_shape(one.template.spec), demand.count, demand.requests,
                one.min_count, one.topology_request,
            )
            for one, demand in zip(self.pod_sets, asked, strict=True)
        ]))  # fmt: skip


def _places(one: PodSetAdmission) -> PodSetPlaces | None:
    if one.topology_assignment is None:
        return None
    held = one.topology_assignment
    return PodSetPlaces(held.levels, tuple(held.domains()))


def _spec_requests(spec: PodSpec) -> Requests:
    """Requests of a pod; an amount beyond int64 is int64's maximum."""
    found = pod_requests(Pod(spec=spec), use_status=False)
    for container in (*spec.init_containers, *spec.containers):
        for name, quantity in container.resources.requests.items():
            if request_amount(name, quantity) == INT64_MAX:
                found[name] = INT64_MAX
    return found


def _spec_shape(spec: PodSpec) -> object:
    containers = [
        [{name: str(nanos(q)) for name, q in one.resources.requests.items()} for one in containers]
        for containers in (spec.init_containers, spec.containers)
    ]
    return (
        containers, spec.node_selector, spec.affinity, spec.tolerations, spec.priority,
        spec.topology_spread_constraints, spec.overhead, spec.resources,
    )  # fmt: skip


def _counted(per_pod: Requests, options: KueueOptions) -> Requests:
    """Requests of a pod without resources that are excluded."""
    if not options.excluded:
        return per_pod
    return {name: n for name, n in per_pod.items() if not name.startswith(options.excluded)}


def _transformed(per_pod: Requests, rules: Iterable[ResourceTransformation]) -> Requests:
    """Requests of a pod after `resourceTransformations`."""
    by_name = {rule.resource: rule for rule in rules}
    found: Requests = {}
    for name, n in per_pod.items():
        rule = by_name.get(name)
        if rule is None or not rule.is_replaced:
            found[name] = plus(found.get(name, 0), n)
        for output, factor in rule.outputs.items() if rule is not None else ():
            scale = factor * (1000 if output == "cpu" else 1) / (1000 if name == "cpu" else 1)
            found[output] = plus(found.get(output, 0), int(n * scale))
    return found


def _usage(demands: Iterable[PodSetDemand]) -> Usage:
    """What holders use; nothing without flavors."""
    quota: dict[FlavorResource, int] = {}
    places = []
    for one in demands:
        for name, n in one.requests.items():
            if name in one.flavors:
                pair = (one.flavors[name], name)
                quota[pair] = plus(quota.get(pair, 0), n)
        if one.places is not None:
            places += [
                PlaceUse(flavor, values, one.per_pod, count)
                for flavor in sorted(set(one.flavors.values()))
                for values, count in one.places.domains
            ]
    return Usage(quota, tuple(places))


def group_key(pod_sets: tuple[PodSet, ...], index: int) -> str:
    """Pod sets with the same key get the same flavor."""
    request = pod_sets[index].topology_request
    name = request.pod_set_group_name if request is not None else None
    return str(index) if name is None else name
