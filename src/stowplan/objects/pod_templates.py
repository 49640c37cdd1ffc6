"""Templates: pods that differ in name and node only share one spec object and one labels dict.

A decoder gives every pod a spec of its own. Replicas of one workload are alike in all that rules
read of them, so what follows from spec and labels is worked out once and kept on the spec that
they share; and a thousand replicas take the memory of one.

The API gives every pod a volume for its service account's token, under a name that no other has.
No rule reads a volume without a source that schedulers know, so such volumes lose their names.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec
from msgspec.structs import replace

from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.volume import Volume

KEPT_MIN, KEPT_MAX = 1 << 10, 1 << 15
"""Templates remembered, however few or many pods there are; the one that came up least recently
goes first."""

_TEMPLATE = "template"
_PLAIN = Volume()

# Labels in another order are the same labels.
_encoded = msgspec.msgpack.Encoder(order="deterministic").encode


class PodTemplates:
    """The templates that came up so far, by the content of spec without nodeName and labels."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        """kept_max: templates remembered. One that was forgotten begins anew when it comes up."""
        self._kept_max = kept_max
        self._kept: OrderedDict[bytes, tuple[PodSpec, dict[str, str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep_for(self, n_pods: int) -> None:
        """There are so many pods now: templates of those that have gone are of little use."""
        self._kept_max = min(KEPT_MAX, max(KEPT_MIN, 2 * n_pods))
        while len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)

    def intern(self, pod: Pod) -> Pod:
        """A pod that is equal, names of volumes that no rule reads apart, and shares spec and
        labels with the others of its template.

        The spec of a pod on a node names that node, so it is of its own, shares its parts, and
        leads to the common one: see `template_of`.
        """
        spec, labels = pod.spec, pod.metadata.labels
        node_name = spec.node_name
        if node_name:
            spec = replace(spec, node_name="")
        if spec.volumes:
            spec = _with_plain_volumes_nameless(spec)
        key = _encoded((spec, labels))
        kept = self._kept.get(key)
        if kept is None:
            self._keep(key, spec, labels)
        else:
            self._kept.move_to_end(key)
            spec, labels = kept
        if node_name:
            spec = with_node_name(spec, node_name)
        return Pod(replace(pod.metadata, labels=labels), spec, pod.status)

    def _keep(self, key: bytes, spec: PodSpec, labels: dict[str, str]) -> None:
        self._kept[key] = spec, labels
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)


def _with_plain_volumes_nameless(spec: PodSpec) -> PodSpec:
    volumes = tuple(
        _PLAIN if volume == Volume(name=volume.name) else volume for volume in spec.volumes
    )
    return spec if volumes == spec.volumes else replace(spec, volumes=volumes)


def with_node_name(template: PodSpec, node_name: str) -> PodSpec:
    """The spec of a template's pod on a node."""
    spec = replace(template, node_name=node_name)
    spec.__dict__[_TEMPLATE] = template
    return spec


def template_of(spec: PodSpec) -> PodSpec:
    """The spec without nodeName that a template's pods share; a spec of no template is its own.

    What does not depend on the node is kept in its `__dict__`.
    """
    template: PodSpec = spec.__dict__.get(_TEMPLATE, spec) if spec.node_name else spec
    return template
