"""Pod templates: pods that differ only in name and node share one spec object and one labels dict.

A decoder creates a spec per pod. Replicas of one workload are equal in everything that plugins
read, so data derived from spec and labels is computed once and stored on the shared spec; and a
thousand replicas take the memory of one.

Templates that differ in the resources of containers alone have an outline in common. Those that
differ in the names of claims alone, as the pods of a StatefulSet do, share all but these: what is
read of such a pod beside its claims is read once, of a common spec whose claims have no names.

The API adds to every pod a volume for its service account's token, with a unique name. No plugin
reads a volume without a source that schedulers know, so such volumes lose their names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.objects.pod import (
    Container,
    Pod,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from stowplan.objects.pod_requests import plain_requests
from stowplan.objects.quantity import QuantityError
from stowplan.objects.volume import PVCVolumeSource, Volume

KEPT_MIN, KEPT_MAX = 1 << 10, 1 << 15
"""Minimum number of cached templates; the least recently used is evicted first."""

_TEMPLATE, _OUTLINE, _COMMON, _CLAIMS = "template", "outline", "common", "claims"
_PLAIN = Volume()
_UNNAMED = PVCVolumeSource()

# Labels in another order are equal.
_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


class PodTemplates:
    """Known templates, by spec without nodeName and labels."""

    def __init__(
        self, kept_max: int = KEPT_MAX, prepare: Callable[[Pod], object] = plain_requests
    ) -> None:
        """kept_max: number of cached templates. prepare: called with the first pod of a template
        that is pending, while it is in the processor's cache; keeps what it finds on the spec."""
        self._kept_max = kept_max
        self._prepare = prepare
        # By spec and labels; for pods with claims by those of the common spec, and the names.
        self._kept: OrderedDict[Hashable, tuple[PodSpec, dict[str, str]]] = OrderedDict()
        self._last_status = PodStatus()
        self._outlines = OutlineReader()

    def __len__(self) -> int:
        return len(self._kept)

    def keep_for(self, n_pods: int) -> None:
        """Set the cache size for `n_pods` pods."""
        self._kept_max = min(KEPT_MAX, max(KEPT_MIN, 2 * n_pods))
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)

    def intern(self, pod: Pod) -> Pod:
        """An equal pod, except for names of volumes that no plugin reads, that shares spec and
        labels with its template, and its status with the pod before, where that is equal.

        The spec of a pod on a node names that node, so it is an object of its own that shares its
        parts and refers to the common one: see `template_of`.
        """
        spec, labels = pod.spec, pod.metadata.labels
        node_name = spec.node_name
        if node_name:
            spec = replace(spec, node_name="")
        claims: tuple[str, ...] = ()
        if spec.volumes:
            spec, claims = _with_plain_volumes_nameless(spec)
        if claims and all(claims):
            spec, labels = self._with_claims(pod, spec, claims)
        else:
            spec, labels = self._shared(pod, spec)
        if node_name:
            spec = with_node_name(spec, node_name)
        if pod.status != self._last_status:
            self._last_status = pod.status
        return Pod(replace(pod.metadata, labels=labels), spec, self._last_status)

    def _shared(self, pod: Pod, spec: PodSpec) -> tuple[PodSpec, dict[str, str]]:
        """The spec and the labels of a pod's template. spec: the pod's, without its node."""
        labels = pod.metadata.labels
        key = _encoded((spec, labels))
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        self._keep(key, spec, labels)
        if not pod.spec.node_name:
            self._read(pod if spec is pod.spec else replace(pod, spec=spec))
        return spec, labels

    def _with_claims(
        self, pod: Pod, spec: PodSpec, names: tuple[str, ...]
    ) -> tuple[PodSpec, dict[str, str]]:
        """As `_shared`, for a pod with claims of these names, none empty."""
        common, labels = _without_claim_names(spec), pod.metadata.labels
        content = _encoded((common, labels))
        key = content, names
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        # Not the content alone: a pod may have claims whose names are empty.
        key_of_common: Hashable = content, ()
        known = self._kept.get(key_of_common)
        if known is not None:
            self._kept.move_to_end(key_of_common)
            common, labels = known
        else:
            self._keep(key_of_common, common, labels)
            if not pod.spec.node_name:
                self._prepare_quietly(replace(pod, spec=common))
        spec = replace(common, volumes=spec.volumes)
        spec.__dict__[_COMMON] = common
        spec.__dict__[_CLAIMS] = names
        self._keep(key, spec, labels)
        return spec, labels

    def _read(self, pod: Pod) -> None:
        """Keep what is asked of a new template on its spec."""
        self._outlines.keep(pod.spec)
        self._prepare_quietly(pod)

    def _prepare_quietly(self, pod: Pod) -> None:
        try:
            self._prepare(pod)
        except QuantityError:
            # Raised again where requests are needed.
            return

    def _keep(self, key: Hashable, spec: PodSpec, labels: dict[str, str]) -> None:
        self._kept[key] = spec, labels
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)


def _with_plain_volumes_nameless(spec: PodSpec) -> tuple[PodSpec, tuple[str, ...]]:
    """The spec, in which volumes that no plugin reads have no name, and the names of its claims."""
    volumes, names, is_same = [], [], True
    for volume in spec.volumes:
        claim = volume.persistent_volume_claim
        if claim is not None:
            names.append(claim.claim_name)
        elif volume == Volume(name=volume.name):
            is_same &= not volume.name
            volume = _PLAIN
        volumes.append(volume)
    return (spec if is_same else replace(spec, volumes=tuple(volumes))), tuple(names)


def _without_claim_names(spec: PodSpec) -> PodSpec:
    return replace(spec, volumes=tuple(map(_unnamed, spec.volumes)))


def _unnamed(volume: Volume) -> Volume:
    """The volume without the name of its claim."""
    claim = volume.persistent_volume_claim
    if claim is None:
        return volume
    if not claim.read_only:
        return replace(volume, persistent_volume_claim=_UNNAMED)
    return replace(volume, persistent_volume_claim=replace(claim, claim_name=""))


def kept_claim_names(spec: PodSpec) -> tuple[str, ...] | None:
    """The names of the claims of a spec, in the order of its volumes; None where no decoder has
    read them."""
    names: tuple[str, ...] | None = spec.__dict__.get(_CLAIMS)
    if names is None and spec.node_name:
        names = template_of(spec).__dict__.get(_CLAIMS)
    return names


def names_claims(spec: PodSpec) -> bool:
    """True for a spec with a volume that is backed by a named claim."""
    if kept_claim_names(spec) is not None:
        return True
    return any(volume.persistent_volume_claim is not None for volume in spec.volumes)


def common_spec_of(spec: PodSpec) -> PodSpec:
    """The spec without nodeName that pods share which differ in the names of their claims, none of
    them empty, and which names none itself; without claims `template_of`.

    Data that depends on neither is stored in its `__dict__`. A spec that no decoder has interned is
    its own.
    """
    common: PodSpec | None = spec.__dict__.get(_COMMON)
    if common is not None:
        return common
    template = template_of(spec)
    found: PodSpec = template.__dict__.get(_COMMON, template)
    return found


def without_claim_names(spec: PodSpec) -> PodSpec:
    """The common spec of a pending pod's spec, an equal one where it has none."""
    common: PodSpec | None = spec.__dict__.get(_COMMON)
    return _without_claim_names(spec) if common is None else common


def with_node_name(template: PodSpec, node_name: str) -> PodSpec:
    """The spec of a template's pod on a node."""
    spec = replace(template, node_name=node_name)
    spec.__dict__[_TEMPLATE] = template
    return spec


def template_of(spec: PodSpec) -> PodSpec:
    """The spec without nodeName that the pods of a template share; a spec without a template
    itself.

    Data that does not depend on the node is stored in its `__dict__`.
    """
    template: PodSpec = spec.__dict__.get(_TEMPLATE, spec) if spec.node_name else spec
    return template


class OutlineReader:
    """Reads the outlines of specs; one object for those that are equal and come one after the
    other."""

    def __init__(self) -> None:
        self._latest: tuple[PodSpec | None, bytes] = None, b""

    def outline_of(self, spec: PodSpec) -> tuple[bytes, bytes]:
        """What a spec says beside the resources of its containers, its outline, and these; together
        equal for equal specs. Which group it names does not count."""
        # In these, equal amounts may be written in ways that count.
        if spec.init_containers or spec.scheduling_group or spec.overhead or spec.resources:
            return outline_of(spec)
        containers, latest = spec.containers, self._latest
        bare = replace(spec, containers=tuple(map(_without_resources, containers)))
        if bare != latest[0]:
            latest = self._latest = bare, _encoded(bare)
        return latest[1], _encoded([one.resources for one in containers])

    def take_outline(self, spec: PodSpec) -> tuple[bytes, bytes]:
        """The outline that `keep` has kept, once; else the outline."""
        kept: tuple[bytes, bytes] | None = spec.__dict__.pop(_OUTLINE, None)
        return self.outline_of(spec) if kept is None else kept

    def keep(self, spec: PodSpec) -> None:
        """Read the outline of a spec for those who ask for it later."""
        spec.__dict__[_OUTLINE] = self.outline_of(spec)


def kept_outline(spec: PodSpec) -> bytes | None:
    """What a spec says beside the resources of its containers, if `OutlineReader.keep` has read
    it and no one has taken it: one object for equal ones that come one after the other."""
    kept: tuple[bytes, bytes] | None = spec.__dict__.get(_OUTLINE)
    return None if kept is None else kept[0]


def take_resources(spec: PodSpec, content: bytes) -> bytes | None:
    """The resources of the containers that `OutlineReader.keep` has kept with this outline, the
    same object, once; else None."""
    kept: tuple[bytes, bytes] | None = spec.__dict__.get(_OUTLINE)
    if kept is None or kept[0] is not content:
        return None
    del spec.__dict__[_OUTLINE]
    return kept[1]


def outline_of(spec: PodSpec) -> tuple[bytes, bytes]:
    """What a spec says beside the resources of its containers, and these; together equal for
    equal specs. Which group it names does not count."""
    parts: dict[str, Any] = {"containers": tuple(map(_without_resources, spec.containers))}
    resources = [one.resources for one in spec.containers]
    if spec.init_containers:
        parts["init_containers"] = tuple(map(_without_resources, spec.init_containers))
        resources += [one.resources for one in spec.init_containers]
    if spec.scheduling_group is not None:
        # Which group it is does not matter on any node; gangs of one template are of one class.
        parts["scheduling_group"] = _ANY_GROUP
    return _encoded(replace(spec, **parts)), _encoded(resources)


def _without_resources(container: Container) -> Container:
    return replace(container, resources=_NO_RESOURCES)


_ANY_GROUP = PodSchedulingGroup("")
_NO_RESOURCES = ResourceRequirements()
