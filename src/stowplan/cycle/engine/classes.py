"""Classes of pods: those that read the same to every rule share one, and all that it was given.

A rule may read of a pending pod its spec, namespace, labels and controller. So pods of one
template are one class, which is found by the identity of the spec object they share; pods that
were decoded one by one are found by the content of their specs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from stowplan.columns.pods.podcounts import LabelIndex, anchor
from stowplan.columns.pods.podinfo import Footprint, PodInfo, reports_resources
from stowplan.columns.pods.podterms import TermRole, WeightedTerm, terms_of
from stowplan.framework import CycleState, Framework, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.objects.pod import Pod, PodSpec

CLASSES_MAX = 4096
SPECS_MAX = 65_536
"""How many classes, and specs that stand for one, are known before all are forgotten."""


class CachedRefusal(Protocol):
    """What an attempt came to, as long as the next one would come to the same."""

    def lacks_resources_only(self, snapshot: Snapshot) -> frozenset[str] | None:
        """The plugins that refused, where the pod lacks nothing but room; else None."""

    def in_force(self, snapshot: Snapshot) -> Decision | None:
        """The decision, None where the next attempt may come to another."""


class EnginePodClass:
    """Pods of one template in one profile.

    number: its place in the kernels' arrays, -1 for none. made_for: the state of the world that
    its plan was made for, -1 for none. is_fast: whether there is a plan. was_asked: whether a pod
    of it has been placed before. state: what the plugins of an attempt leave behind. counted_at:
    since which change by others its terms' counts are true. refused: the last refused attempt.
    """

    __slots__ = (
        "counted_at",
        "footprint",
        "framework",
        "is_fast",
        "labels",
        "made_for",
        "namespace",
        "number",
        "owners",
        "pod",
        "refused",
        "state",
        "terms",
        "was_asked",
    )

    def __init__(self, pod: Pod, framework: Framework) -> None:
        self.pod = pod
        self.framework = framework
        self.labels = pod.metadata.labels
        self.namespace = pod.metadata.namespace
        self.owners = pod.metadata.owner_references
        self.footprint: Footprint = PodInfo.of(pod).footprint
        self.number = -1
        self.made_for = -1
        self.counted_at = -1
        self.is_fast = False
        self.was_asked = False
        self.state = CycleState()
        self.terms: tuple[int, ...] = ()
        self.refused: CachedRefusal | None = None

    def refusal_in(self, snapshot: Snapshot) -> Decision | None:
        """The refusal that the next attempt would end in as well; None where it has to be made."""
        return None if self.refused is None else self.refused.in_force(snapshot)

    def lacks_resources_by(self, snapshot: Snapshot) -> frozenset[str] | None:
        """See the protocol."""
        return None if self.refused is None else self.refused.lacks_resources_only(snapshot)

    def holds(self, pod: Pod) -> bool:
        """True for a pod of the same spec that is of this class."""
        meta = pod.metadata
        return (
            (self.labels is meta.labels or self.labels == meta.labels)
            and self.namespace == meta.namespace
            and (self.owners is meta.owner_references or self.owners == meta.owner_references)
        )


class AffinityTermIndex:
    """The affinity terms of all classes, and of pods that others have placed, found by the labels
    of pods that they may be about."""

    def __init__(self) -> None:
        self._terms: set[WeightedTerm] = set()
        self._by_label: dict[TermRole, LabelIndex[WeightedTerm]] = {
            r: LabelIndex() for r in TermRole
        }

    def add(self, terms: Iterable[WeightedTerm]) -> bool:
        """Enter terms; True when one of them was not here before."""
        fresh = [one for one in terms if one not in self._terms]
        for weighted in fresh:
            self._terms.add(weighted)
            requirements = weighted.term.requirements
            if requirements is not None:
                self._by_label[weighted.role].add(weighted, anchor(requirements))
        return bool(fresh)

    @property
    def have_terms(self) -> bool:
        """True when a pod of some class has a term, or one that others have placed."""
        return bool(self._terms)

    def terms(self, role: TermRole, pod: Pod) -> list[WeightedTerm]:
        """Terms in a role whose labels may be about `pod`."""
        return list(self._by_label[role].found_by(pod.labels.items()))


class PodClassIndex:
    """All classes, by the specs of their pods. has_news: terms have come that may concern the
    classes that were there before."""

    def __init__(self) -> None:
        self.has_new_terms = False
        self.peers = AffinityTermIndex()
        self.all: list[EnginePodClass] = []
        # A spec is kept with its classes, so that no other object can get its identity; in the
        # second place those that have not been asked for since `forget_idle` was called last.
        self._by_spec: dict[int, tuple[PodSpec, list[EnginePodClass]]] = {}
        self._idle: dict[int, tuple[PodSpec, list[EnginePodClass]]] = {}
        self._by_content: dict[bytes, list[EnginePodClass]] = {}

    def __iter__(self) -> Iterator[EnginePodClass]:
        return iter(self.all)

    def find(self, pod: Pod, framework: Framework) -> EnginePodClass | None:
        """The class of a pod, new if need be; None for a pod whose status, or claims of its own,
        bear on decisions."""
        status = pod.status
        if status.nominated_node_name or (status.container_statuses and reports_resources(pod)):
            return None
        if status.resources or status.allocated_resources or status.init_container_statuses:
            return None
        spec = pod.spec
        if (spec.volumes or spec.resource_claims) and has_own_claims(spec):
            return None
        known = self._by_spec.get(id(spec)) or self._woken(spec)
        classes = self._classes_of(spec) if known is None else known[1]
        for one in classes:
            if one.holds(pod) and one.framework is framework:
                return one
        return self._start(pod, framework, classes)

    def learn(self, terms: Iterable[WeightedTerm]) -> None:
        """Terms of pods that may be, or have been, placed."""
        self.has_new_terms |= self.peers.add(terms)

    def forget_all(self) -> None:
        """Begin anew: no class that was given out is known any more."""
        for one in self.all:
            one.number = one.made_for = -1
        self.__init__()  # type: ignore[misc]

    def forget_idle(self) -> bool:
        """Forget the classes of specs that nobody has asked for since the call before the last
        one; True when there were any."""
        over, self._idle, self._by_spec = self._idle, self._by_spec, {}
        if not over:
            return False
        left = {id(classes): classes for _, classes in self._idle.values()}
        self._by_content = {c: one for c, one in self._by_content.items() if id(one) in left}
        self.all = [one for classes in left.values() for one in classes]
        self.peers = AffinityTermIndex()
        for one in self.all:
            self.peers.add(terms_of(one.pod).all)
        return True

    def _woken(self, spec: PodSpec) -> tuple[PodSpec, list[EnginePodClass]] | None:
        """What is known of a spec that has been idle."""
        known = self._idle.pop(id(spec), None)
        if known is not None:
            self._by_spec[id(spec)] = known
        return known

    def _classes_of(self, spec: PodSpec) -> list[EnginePodClass]:
        content = _encoder.encode(spec)
        classes = self._by_content.setdefault(content, [])
        if len(self._by_spec) >= SPECS_MAX:
            self._by_spec.clear()
        self._by_spec[id(spec)] = spec, classes
        return classes

    def _start(
        self, pod: Pod, framework: Framework, classes: list[EnginePodClass]
    ) -> EnginePodClass:
        fresh = EnginePodClass(pod, framework)
        # Terms that nobody had before may be about the pods of classes that have a plan.
        self.learn(terms_of(pod).all)
        self.all.append(fresh)
        classes.append(fresh)
        return fresh


def has_own_claims(spec: PodSpec) -> bool:
    """True where pods of one template have claims of their own, which decisions ask for by name."""
    return bool(spec.resource_claims) or any(v.ephemeral is not None for v in spec.volumes)


_encoder: Any = msgspec.msgpack.Encoder(order="deterministic")
