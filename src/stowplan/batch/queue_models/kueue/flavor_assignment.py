"""What the search for flavors finds: per pod set and resource a flavor and how it could be had.

Source: Kueue, pkg/scheduler/flavorassigner: flavorassigner.go, flavor_assigner_attempts.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from stowplan.batch.queue_models.kueue.admission_queue import AdmissionQueue
from stowplan.batch.queue_models.kueue.admission_workload import (
    AdmissionWorkload,
    PlaceUse,
    PodSetDemand,
    PodSetPlaces,
    Requests,
    TriedFlavors,
    Usage,
)
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource, plus

NO_MATCHING_FLAVOR = "NoMatchingFlavor"
EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
WAITING_FOR_QUOTA = "WaitingForQuota"
TOPOLOGY_FAILED = "TopologyPlacementFailed"
_SEVERITY = ("", TOPOLOGY_FAILED, WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)


class Mode(IntEnum):
    """How an assignment could be had, the worst first."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


@dataclass(slots=True)
class FlavorChoice:
    """A flavor for a resource. height: see `borrowing_height`. tried: index of the last flavor
    that was tried, -1 if none is left."""

    flavor: str
    mode: Mode
    height: int = 0
    tried: int = 0


@dataclass(slots=True)
class FlavorAttempt:
    """A flavor that was tried, and why it has no quota."""

    mode: Mode
    reason: str = ""


@dataclass(slots=True)
class PodSetChoice:
    """Flavors of a pod set. is_short: something was short, even if a flavor was found; has_error:
    it cannot be had at all. requests: of all its pods, `pods` included if counted."""

    demand: PodSetDemand
    requests: Requests
    flavors: dict[str, FlavorChoice] = field(default_factory=dict)
    attempts: dict[str, FlavorAttempt] = field(default_factory=dict)
    is_short: bool = False
    has_error: bool = False
    places: PodSetPlaces | None = None
    delayed: str | None = None

    @property
    def name(self) -> str:
        """Name of the pod set."""
        return self.demand.name

    @property
    def mode(self) -> Mode:
        """The worst mode of its flavors."""
        if self.has_error:
            return Mode.NO_FIT
        if not self.is_short:
            return Mode.FIT
        return min((one.mode for one in self.flavors.values()), default=Mode.NO_FIT)

    def set_mode(self, mode: Mode) -> None:
        """Set the mode of all flavors."""
        for one in self.flavors.values():
            one.mode = mode


class FlavorAssignment:
    """Flavors of all pod sets, as far as the search came.

    height: the largest of all flavors. quota: requested amounts. places: in topologies.
    """

    def __init__(self) -> None:
        self.pod_sets: list[PodSetChoice] = []
        self.height = 0
        self.quota: dict[FlavorResource, int] = {}
        self.places: tuple[PlaceUse, ...] = ()
        self.no_fit_reason = ""
        self._tried: list[Mapping[str, int]] = []
        self._mode: Mode | None = None

    @property
    def mode(self) -> Mode:
        """The worst mode of all pod sets, or the mode set last."""
        if not self.pod_sets:
            return Mode.NO_FIT
        if self._mode is None:
            self._mode = min(one.mode for one in self.pod_sets)
        return self._mode

    def set_mode(self, mode: Mode, names: Iterable[str] | None = None) -> None:
        """Set the mode, of these pod sets and of the whole."""
        for name in [one.name for one in self.pod_sets] if names is None else names:
            self.pod_set(name).set_mode(mode)
            self._mode = mode

    def fail(self, name: str) -> None:
        """A pod set cannot be had at all."""
        self.pod_set(name).has_error = True
        self._mode = None

    def pod_set(self, name: str) -> PodSetChoice:
        """Of a name."""
        return next(one for one in self.pod_sets if one.name == name)

    def add(self, choice: PodSetChoice) -> None:
        """Add a pod set."""
        self.pod_sets.append(choice)
        tried = {}
        for resource, one in choice.flavors.items():
            self.height = max(self.height, one.height)
            pair = (one.flavor, resource)
            self.quota[pair] = plus(self.quota.get(pair, 0), choice.requests.get(resource, 0))
            tried[resource] = one.tried
        self._tried.append(tried)

    def tried(self, generation: int, cycle: int, shape: bytes) -> TriedFlavors:
        """How far the search came."""
        return TriedFlavors(tuple(self._tried), generation, cycle, shape)

    def needs_preemption(self) -> set[FlavorResource]:
        """(flavor, resource) pairs that others have to give up."""
        return {
            (one.flavor, resource)
            for pod_set in self.pod_sets
            for resource, one in pod_set.flavors.items()
            if one.mode is Mode.PREEMPT
        }

    def total_for(self, workload: AdmissionWorkload) -> dict[FlavorResource, int]:
        """What the workload asks for in these flavors, without the count of pods."""
        total: dict[FlavorResource, int] = {}
        for demand, choice in zip(workload.demands, self.pod_sets, strict=True):
            for resource, n in demand.scaled_to(choice.demand.count).requests.items():
                if n and resource in choice.flavors:
                    pair = (choice.flavors[resource].flavor, resource)
                    total[pair] = plus(total.get(pair, 0), n)
        return total

    def usage(self, *, holds_quota: bool) -> Usage:
        """What it takes beyond what the workload holds."""
        return Usage({} if holds_quota else dict(self.quota), self.places)

    def demands(self) -> list[PodSetDemand]:
        """What the workload holds with it."""
        found = []
        for one in self.pod_sets:
            flavors = {resource: choice.flavor for resource, choice in one.flavors.items()}
            requests = {resource: one.requests.get(resource, 0) for resource in flavors}
            found.append(
                PodSetDemand(
                    one.name,
                    one.demand.count,
                    requests,
                    flavors,
                    one.places,
                    one.delayed,
                    one.demand.per_pod,
                )
            )
        return found

    def set_no_fit_reason(self, queue: AdmissionQueue) -> None:
        """Why it does not fit: per group the mildest reason, of groups and pod sets the most
        severe."""
        if self.mode is not Mode.NO_FIT:
            return
        reasons = [""]
        for one in self.pod_sets:
            if one.mode is not Mode.NO_FIT:
                continue
            if not one.attempts:
                reasons.append(NO_MATCHING_FLAVOR)
            by_group: dict[int, list[str]] = {}
            for flavor, attempt in one.attempts.items():
                if attempt.mode is Mode.NO_FIT:
                    for i, group in enumerate(queue.groups):
                        if flavor in group.flavor_names:
                            by_group.setdefault(i, []).append(attempt.reason)
            reasons += [mildest(held) for held in by_group.values()]
        self.no_fit_reason = most_severe(reasons)


def most_severe(reasons: Iterable[str]) -> str:
    """The most severe reason; "" is none."""
    return max(reasons, key=_SEVERITY.index)


def mildest(reasons: Iterable[str]) -> str:
    """The mildest reason."""
    return min(reasons, key=_SEVERITY.index)
