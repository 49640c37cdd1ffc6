"""Pod classes: pods that are identical to every rule share one class and its cached results.

A rule may read a pending pod's spec, namespace, labels and controller, and the annotations that its
plugin declares. Pods of one template are
found by the identity of their shared spec object; pods decoded one by one are found by the content
of their specs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from stowplan.columns.pods.podcounts import LabelIndex, anchor
from stowplan.columns.pods.podinfo import Footprint, footprint_of, reports_resources
from stowplan.columns.pods.podterms import TermRole, WeightedTerm, terms_of
from stowplan.framework import CycleState, Framework, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.deciders.kernel_terms import OwnClaims, RunLimit
from stowplan.objects.pod import Pod, PodSpec, PodStatus
from stowplan.objects.pod_templates import (
    OutlineReader,
    kept_outline,
    names_claims,
    take_resources,
    without_claim_names,
)

CLASSES_MAX = 4096
SPECS_MAX = 65_536
"""Maximum number of classes, and of specs mapped to a class, before all are forgotten."""
KEPT_MAX, KEPT_CELLS_MAX = 256, 1 << 20
"""Number of classes or specs, and of these times nodes, up to which idle classes are kept: plans
made anew would cost more than their memory does."""

LOOKED_AHEAD = 64
"""Pods among which the search of another class is looked for."""

NO_STATE = CycleState()
"""Of a class without a plan; nothing is written into it."""


class CachedRefusal(Protocol):
    """An attempt's refusal that stays valid as long as the next attempt would repeat it."""

    def lacks_resources_only(self, snapshot: Snapshot) -> frozenset[str] | None:
        """The plugins that refused, if the pod only lacks resources; else None."""

    def in_force(self, snapshot: Snapshot) -> Decision | None:
        """The decision, or None if the next attempt may differ."""


class KeptSearch(Protocol):
    """What is kept of a class whose pods preempt; see `cycle.preemptor_attempts`."""

    def is_decided_alone(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PodClass.is_decided_alone`."""

    def decide(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, draw: int | None
    ) -> Decision | None:
        """The decision for a pod of the class; None where it has to be walked."""

    def nominated_row(self, pod: Pod, snapshot: Snapshot) -> int:
        """See `PodClass.nominated_row`."""

    def nominated_decision(
        self, pod: Pod, one: EnginePodClass, snapshot: Snapshot, draw: Callable[[], int | None]
    ) -> Decision | None:
        """See `PodClass.nominated_decision`. one: the class."""

    def decide_in_turn(
        self, pods: Sequence[Pod], classes: Sequence[EnginePodClass], snapshot: Snapshot
    ) -> Iterator[Decision]:
        """See `PodClass.decide_in_turn`."""


class PodOutline:
    """What pods of a profile have in common that differ in the resources of their containers at
    most, and in what no rule reads.

    content: of their specs without these, equal for equal ones; empty for a class alone. prefix: of
    the keys of its classes, equal for equal outlines. number: see `__init__`.
    """

    __slots__ = (
        "annotations", "content", "framework", "labels", "namespace", "number", "owners", "prefix",
    )  # fmt: skip

    def __init__(
        self, pod: Pod, framework: Framework, content: bytes = b"", number: bytes = b""
    ) -> None:
        """number: of content and framework, in as many bytes for each."""
        meta = pod.metadata
        self.content, self.number = content, number
        self.framework = framework
        self.labels = meta.labels
        self.namespace = meta.namespace
        self.owners = meta.owner_references
        self.annotations = framework.annotations_of(pod)
        read = _encoded((self.labels, self.namespace, self.owners, self.annotations))
        # With its length, since the resources of containers follow in a key.
        self.prefix = number + len(read).to_bytes(8, "big") + read

    def holds(self, pod: Pod) -> bool:
        """True for a pod that has it in common, given that the spec does."""
        meta = pod.metadata
        return (
            (self.labels is meta.labels or self.labels == meta.labels)
            and self.namespace == meta.namespace
            and (self.owners is meta.owner_references or self.owners == meta.owner_references)
            and (not self.annotations or self.annotations == self.framework.annotations_of(pod))
        )


class EnginePodClass(msgspec.Struct, eq=False):
    """Pods of one template in one profile.

    number: index in the kernel arrays, -1 for none. made_for: static revision for which its plan
    was made, -1 for none. is_fast: whether it has a plan. was_placed: whether a pod of it has been
    placed before. state: cycle state that the plugins leave behind. counted_at: journal generation
    up to which the terms' counts are valid. refused: the last refused attempt. claims: see
    `Framework.claims_signature`; None where each pod's claims are its own. run_limits: of the
    length of runs. card_filter: the plugin that compares its request with GPU cards, "" for none.
    mark: the spec under which it is kept from being forgotten. search: of its pods that preempt.
    """

    # A struct, since many pods make a class each: it is made in one step.

    pod: Pod
    outline: PodOutline
    framework: Framework
    footprint: Footprint
    mark: PodSpec
    claims: Hashable | None = None
    run_limits: tuple[RunLimit, ...] = ()
    card_filter: str = ""
    number: int = -1
    made_for: int = -1
    counted_at: int = -1
    is_fast: bool = False
    was_placed: bool = False
    state: CycleState = NO_STATE
    terms: tuple[int, ...] = ()
    refused: CachedRefusal | None = None
    search: KeptSearch | None = None

    @classmethod
    def of(cls, pod: Pod, outline: PodOutline, claims: Hashable | None = None) -> EnginePodClass:
        """The class of a pod, without a plan. Its status reports no resources."""
        footprint = footprint_of(pod)
        return cls(pod, outline, outline.framework, footprint, pod.spec, claims)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return self.outline.labels

    def refusal_in(self, snapshot: Snapshot) -> Decision | None:
        """The refusal that the next attempt would repeat; None if an attempt is needed."""
        return None if self.refused is None else self.refused.in_force(snapshot)

    def is_decided_alone(self, pod: Pod, snapshot: Snapshot) -> bool:
        """See `PodClass.is_decided_alone`."""
        return self.search is not None and self.search.is_decided_alone(pod, snapshot)

    def nominated_row(self, pod: Pod, snapshot: Snapshot) -> int:
        """See `PodClass.nominated_row`."""
        return -1 if self.search is None else self.search.nominated_row(pod, snapshot)

    def nominated_decision(
        self, pod: Pod, snapshot: Snapshot, draw: Callable[[], int | None]
    ) -> Decision | None:
        """See `PodClass.nominated_decision`."""
        search = self.search
        return None if search is None else search.nominated_decision(pod, self, snapshot, draw)

    def decide_in_turn(
        self, pods: Sequence[Pod], classes: Sequence[EnginePodClass], snapshot: Snapshot
    ) -> Iterator[Decision]:
        """See `PodClass.decide_in_turn`."""
        search = self.search
        if search is None:
            # That of a class whose pods come soon may serve this one.
            others = (one.search for one in classes[:LOOKED_AHEAD])
            search = next((other for other in others if other is not None), None)
        return iter(()) if search is None else search.decide_in_turn(pods, classes, snapshot)

    def lacks_resources_by(self, snapshot: Snapshot) -> frozenset[str] | None:
        """See `PodClass.lacks_resources_by`."""
        return None if self.refused is None else self.refused.lacks_resources_only(snapshot)


SpecClasses = EnginePodClass | tuple[PodSpec, list[EnginePodClass]]
"""The classes of a spec. A class alone stands for itself where the spec is its mark: of many such
classes, a tuple and a list for each are much for the garbage collector."""


class AffinityTermIndex:
    """Affinity terms of all classes and of existing pods, indexed by the labels that they may
    select."""

    def __init__(self) -> None:
        self._terms: set[WeightedTerm] = set()
        self._by_label: dict[TermRole, LabelIndex[WeightedTerm]] = {
            r: LabelIndex() for r in TermRole
        }

    def add(self, terms: Iterable[WeightedTerm]) -> bool:
        """Add terms; returns True if one of them is new."""
        fresh = [one for one in terms if one not in self._terms]
        for weighted in fresh:
            self._terms.add(weighted)
            requirements = weighted.term.requirements
            if requirements is not None:
                self._by_label[weighted.role].add(weighted, anchor(requirements))
        return bool(fresh)

    @property
    def have_terms(self) -> bool:
        """True if a class or an existing pod has a term."""
        return bool(self._terms)

    def terms(self, role: TermRole, pod: Pod) -> list[WeightedTerm]:
        """Terms in a role that may select `pod`."""
        return list(self._by_label[role].found_by(pod.labels.items()))


class PodClassIndex:
    """All classes, indexed by the specs of their pods.

    has_new_terms: terms were added that may concern existing classes.
    """

    def __init__(self) -> None:
        self.has_new_terms = False
        self.peers = AffinityTermIndex()
        self.all: list[EnginePodClass] = []
        # A spec is kept with its classes, so that no other object can reuse its identity; `_idle`
        # holds those not used since the last call of `forget_idle`, or longer.
        self._by_spec: dict[int, SpecClasses] = {}
        self._idle: dict[int, SpecClasses] = {}
        # By the prefix of the outline and the resources of the containers. Not by a tuple of them:
        # of many classes, these are much for the garbage collector.
        self._by_content: dict[bytes, EnginePodClass] = {}
        # A number for each content of an outline in a framework.
        self._numbers: dict[tuple[bytes, Framework], bytes] = {}
        self._n_numbers = 0
        self._latest_outline: PodOutline | None = None
        self._reader = OutlineReader()
        # Of pods with claims, by what the spec says beside their names.
        self._by_claims: dict[Hashable, list[EnginePodClass]] = {}
        # The latest spec without the names of its claims, what its claims are like, and classes:
        # pods of a template come together.
        self._latest: tuple[PodSpec, Hashable, list[EnginePodClass]] = PodSpec(), None, []

    def __iter__(self) -> Iterator[EnginePodClass]:
        return iter(self.all)

    def find(
        self,
        pod: Pod,
        framework: Framework,
        *,
        with_devices: bool = False,
        with_nominated: bool = False,
    ) -> EnginePodClass | None:
        """Return the pod's class, creating it if needed; None for a pod whose status or own claims
        affect decisions. with_devices: pods with claims of their own may have a class, too.
        with_nominated: so may those whose status names a node."""
        status = pod.status
        if status.nominated_node_name and not with_nominated:
            return None
        if status.container_statuses and reports_resources(pod):
            return None
        if status.resources or status.allocated_resources or status.init_container_statuses:
            return None
        spec = pod.spec
        if spec.resource_claims:
            return self._of_devices(pod, framework) if with_devices else None
        if spec.volumes and names_claims(spec):
            claims = framework.claims_signature(pod)
            if claims is not None and (with_devices or not isinstance(claims, OwnClaims)):
                return self._of_claims(pod, framework, claims)
        known = self._by_spec.get(id(spec))
        if known is None and self._idle:
            known = self._reactivated(spec)
        if known is None:
            if spec.volumes and has_own_claims(spec):
                return None
            return self._of_content(pod, framework)
        if isinstance(known, EnginePodClass):
            if known.framework is framework and known.outline.holds(pod):
                return known
            return self._of_content(pod, framework)
        classes = known[1]
        for place, one in enumerate(classes):
            if one.framework is framework and one.outline.holds(pod):
                if place:
                    # Pods of an owner come together: the next one is of this class, too.
                    classes.insert(0, classes.pop(place))
                return one
        return self._of_content(pod, framework)

    def find_all(
        self, pods: Iterable[Pod], frameworks: Mapping[str, Framework]
    ) -> list[EnginePodClass]:
        """The classes that `find` returns, with devices, for the first of these pods, up to one
        that has none. frameworks: by scheduler name."""
        found: list[EnginePodClass] = []
        # Of the pod before, where its class is that of each pod with the same metadata.
        spec: PodSpec | None = None
        status: PodStatus | None = None
        one: EnginePodClass | None = None
        chosen = pods if isinstance(pods, Sequence) else [*pods]
        place = 0
        while place < len(chosen):
            pod = chosen[place]
            if (
                pod.spec is not spec
                or pod.status is not status
                or one is None
                or not one.outline.holds(pod)
            ):
                is_same_status = status is pod.status and one is not None
                spec, status = pod.spec, pod.status
                framework = frameworks[spec.scheduler_name]
                # Each of many pods that are alike but for requests and labels has a spec of its
                # own, which is new: that `find` would make a class of its outline is known.
                latest = self._latest_outline
                if (
                    is_same_status
                    and latest is not None
                    and latest.framework is framework
                    and kept_outline(spec) is latest.content
                    and not spec.volumes
                ):
                    alike = self._find_alike(chosen, place, latest)
                    found += alike
                    one, place = alike[-1], place + len(alike)
                    spec = chosen[place - 1].spec
                    continue
                one = self.find(pod, framework, with_devices=True)
                if one is None:
                    break
                if spec.resource_claims or spec.volumes:
                    spec = None
            found.append(one)
            place += 1
        return found

    def _find_alike(
        self, pods: Sequence[Pod], start: int, outline: PodOutline
    ) -> list[EnginePodClass]:
        """The classes of the first pods from `start` on that have the same status, and new specs
        with the content of this outline, without volumes, as the first has one, in its profile."""
        found: list[EnginePodClass] = []
        content, framework, number = outline.content, outline.framework, outline.number
        status, annotations, prefix = pods[start].status, outline.annotations, outline.prefix
        labels, namespace, owners = outline.labels, outline.namespace, outline.owners
        by_content, by_spec, every = self._by_content, self._by_spec, self.all
        for pod in islice(pods, start, None):
            spec, meta = pod.spec, pod.metadata
            if pod.status is not status or spec.volumes:
                break
            resources = take_resources(spec, content)
            if resources is None:
                break
            # As `PodOutline.holds`, without a call for each pod.
            if not (
                meta.labels == labels
                and meta.namespace == namespace
                and meta.owner_references == owners
                and (not annotations or annotations == framework.annotations_of(pod))
            ):
                outline = PodOutline(pod, framework, content, number)
                annotations, prefix = outline.annotations, outline.prefix
                labels, namespace, owners = outline.labels, outline.namespace, outline.owners
            key = prefix + resources
            one = by_content.get(key)
            if one is None:
                footprint = footprint_of(pod)
                one = EnginePodClass(pod, outline, framework, footprint, spec)
                by_content[key] = one
                if footprint.has_affinity:
                    self.learn(terms_of(pod).all)
                every.append(one)
            if id(spec) in by_spec or one.mark is not spec or len(by_spec) >= SPECS_MAX:
                self._note_spec(spec, one)
            else:
                by_spec[id(spec)] = one
            found.append(one)
        self._latest_outline = outline
        return found

    def _of_claims(self, pod: Pod, framework: Framework, claims: Hashable) -> EnginePodClass:
        """The class of a pod whose claims are alike those of others of its template."""
        spec = without_claim_names(pod.spec)
        known, latest, classes = self._latest
        if claims is not latest or (spec is not known and spec != known):
            classes = self._by_claims.setdefault((_encoder.encode(spec), claims), [])
            self._latest = spec, claims, classes
        for one in classes:
            if one.framework is framework and one.outline.holds(pod):
                break
        else:
            one = EnginePodClass.of(pod, PodOutline(pod, framework), claims)
            # No pod has this spec, so nothing else is found by it.
            one.mark = spec
            self.learn(terms_of(pod).all)
            self.all.append(one)
            classes.append(one)
        # Plans are made of its latest pod: claims of an earlier one may be gone.
        one.pod = pod
        self._by_spec[id(one.mark)] = one.mark, classes
        return one

    def _of_devices(self, pod: Pod, framework: Framework) -> EnginePodClass | None:
        """The class of a pod whose resource claims ask for the same as those of others of its
        template; None where they have to be looked at by name."""
        spec = pod.spec
        if any(v.persistent_volume_claim is not None or v.ephemeral is not None
               for v in spec.volumes):  # fmt: skip
            return None
        claims = framework.claims_signature(pod)
        if claims is None:
            return None
        known = self._by_spec.get(id(spec))
        if known is None and self._idle:
            known = self._reactivated(spec)
        if known is not None:
            classes = _classes_in(known)
        else:
            content = "devices", _encoder.encode(replace(spec, resource_claims=()))
            classes = self._by_claims.setdefault(content, [])
            if len(self._by_spec) >= SPECS_MAX:
                self._by_spec.clear()
            self._by_spec[id(spec)] = spec, classes
        for one in classes:
            if one.framework is framework and one.claims == claims and one.outline.holds(pod):
                # As for claims of volumes.
                one.pod = pod
                return one
        one = EnginePodClass.of(pod, PodOutline(pod, framework), claims)
        self.learn(terms_of(pod).all)
        self.all.append(one)
        classes.append(one)
        return one

    def learn(self, terms: Iterable[WeightedTerm]) -> None:
        """Add terms of existing pods or of pods that may be placed."""
        self.has_new_terms |= self.peers.add(terms)

    def forget_all(self) -> None:
        """Forget all classes; classes handed out before are invalid."""
        for one in self.all:
            one.number = one.made_for = -1
        self.__init__()  # type: ignore[misc]

    def forget_idle(self, n_nodes: int) -> bool:
        """Forget classes of specs not used since the call before the last one, unless they are few
        for this number of nodes; True if any were forgotten."""
        over, self._idle, self._by_spec = self._idle, self._by_spec, {}
        if not over:
            return False
        n_kept = max(len(self.all), len(over) + len(self._idle))
        if n_kept <= KEPT_MAX and n_kept * n_nodes <= KEPT_CELLS_MAX and not _have_terms(over):
            self._idle = over | self._idle
            return False
        idle = [*map(_classes_in, self._idle.values())]
        lists = {id(classes): classes for classes in idle}
        left = dict.fromkeys(one for classes in lists.values() for one in classes)
        self._by_claims = {c: one for c, one in self._by_claims.items() if id(one) in lists}
        self._by_content = {c: one for c, one in self._by_content.items() if one in left}
        read = {(one.outline.content, one.framework) for one in left}
        self._numbers = {k: number for k, number in self._numbers.items() if k in read}
        self._latest, self._latest_outline = (PodSpec(), None, []), None
        self.all = list(left)
        self.peers = AffinityTermIndex()
        for one in self.all:
            self.peers.add(terms_of(one.pod).all)
        return True

    def _reactivated(self, spec: PodSpec) -> SpecClasses | None:
        """Classes of an idle spec, made active again; or None."""
        known = self._idle.pop(id(spec), None)
        if known is not None:
            self._by_spec[id(spec)] = known
        return known

    def _of_content(self, pod: Pod, framework: Framework) -> EnginePodClass:
        """The class of a pod whose spec has none of its labels and profile yet."""
        content, resources = self._reader.take_outline(pod.spec)
        latest = self._latest_outline
        if latest is None or latest.content != content or latest.framework is not framework:
            latest = self._outline_of(pod, framework, content)
        return self._of_outline(pod, latest, resources)

    def _of_outline(self, pod: Pod, outline: PodOutline, resources: bytes) -> EnginePodClass:
        """As `_of_content`. outline: with the content and the framework of the pod's. resources:
        of its containers."""
        if not outline.holds(pod):
            outline = PodOutline(pod, outline.framework, outline.content, outline.number)
        self._latest_outline = outline
        spec, key = pod.spec, outline.prefix + resources
        one = self._by_content.get(key)
        if one is None:
            one = self._by_content[key] = EnginePodClass.of(pod, outline)
            if one.footprint.has_affinity:
                # New terms may concern pods of classes that already have a plan.
                self.learn(terms_of(pod).all)
            self.all.append(one)
        self._note_spec(spec, one)
        return one

    def _note_spec(self, spec: PodSpec, one: EnginePodClass) -> None:
        """Have a class found by a spec."""
        known = self._by_spec.get(id(spec))
        if known is None:
            if len(self._by_spec) >= SPECS_MAX:
                self._by_spec.clear()
            self._by_spec[id(spec)] = one if one.mark is spec else (spec, [one])
        elif one not in _classes_in(known):
            self._by_spec[id(spec)] = spec, [one, *_classes_in(known)]

    def _outline_of(self, pod: Pod, framework: Framework, content: bytes) -> PodOutline:
        """The outline of a pod. content: of its spec."""
        number = self._numbers.get((content, framework))
        if number is None:
            self._n_numbers += 1
            number = self._numbers[content, framework] = self._n_numbers.to_bytes(8, "big")
        return PodOutline(pod, framework, content, number)


def _have_terms(by_spec: Mapping[int, SpecClasses]) -> bool:
    """True if a class has terms of affinity, which plans of other classes count as well."""
    return any(terms_of(one.pod).all for known in by_spec.values() for one in _classes_in(known))


def _classes_in(known: SpecClasses) -> list[EnginePodClass]:
    """The classes of a spec."""
    return [known] if isinstance(known, EnginePodClass) else known[1]


def has_own_claims(spec: PodSpec) -> bool:
    """True if each pod of the template has claims of its own, looked up by name."""
    return bool(spec.resource_claims) or any(v.ephemeral is not None for v in spec.volumes)


_encoder: Any = msgspec.msgpack.Encoder(order="deterministic")
_encoded = _encoder.encode
