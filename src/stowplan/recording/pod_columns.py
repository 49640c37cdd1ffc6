"""Pods in columns: pods of one template are written as a reference to it and their own metadata.

A template is a spec without nodeName that pods share by identity, as decoders intern them (see
`objects.pod_templates`). Pods that share a spec share it again when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodSpec, PodStatus
from stowplan.objects.pod_templates import template_of, with_node_name


class PodColumns(msgspec.Struct, frozen=True, array_like=True):
    """Columns of `n_pods` pods.

    statuses: (n_pods), or one that all pods share. templates: distinct specs. codes: (n_pods) index
    in `templates`; empty if there is one template. nodes: (n_pods) nodeName, where the template has
    none; empty if no pod has one.
    """

    metas: list[ObjectMeta]
    statuses: list[PodStatus]
    templates: list[PodSpec]
    codes: list[int]
    nodes: list[str]

    def pods(self) -> list[Pod]:
        """The pods, in order."""
        templates = self.templates
        specs = [templates[code] for code in self.codes] if self.codes else templates * len(self)
        if self.nodes:
            pairs = zip(specs, self.nodes, strict=True)
            specs = [with_node_name(spec, node) if node else spec for spec, node in pairs]
        is_shared = len(self.statuses) == 1
        statuses = self.statuses * len(self) if is_shared else self.statuses
        return list(map(Pod, self.metas, specs, statuses))

    def __len__(self) -> int:
        return len(self.metas)


def columns_of(pods: Sequence[Pod]) -> PodColumns:
    """The columns of pods."""
    specs = [pod.spec for pod in pods]
    templates = specs[:1]
    codes: list[int] = []
    nodes: list[str] = []
    # The pods of one workload that is scaled up, which take a fifth of the time of others.
    if not _is_one(specs):
        nodes = [spec.node_name for spec in specs]
        if any(nodes):
            owned, specs = specs, [template_of(spec) for spec in specs]
            # A spec that is its own template has its node in it.
            triples = zip(nodes, specs, owned, strict=True)
            nodes = ["" if spec is own else node for node, spec, own in triples]
        if not any(nodes):
            nodes = []
        templates, codes = _distinct(specs)
    metas, statuses = [pod.metadata for pod in pods], [pod.status for pod in pods]
    if _is_one(statuses):
        statuses = statuses[:1]
    return PodColumns(metas, statuses, templates, codes, nodes)


def _is_one(values: list[Any]) -> bool:
    """True if all values are equal, which `count` finds out fast where they are one object; specs
    of several templates seldom begin and end with the same one."""
    return not values or (values[0] is values[-1] and values.count(values[0]) == len(values))


def _distinct(specs: Sequence[PodSpec]) -> tuple[list[PodSpec], list[int]]:
    """The distinct objects, and the index of each among them; no indexes for a single one."""
    ids = list(map(id, specs))
    found = dict(zip(ids, specs, strict=True))
    if len(found) == 1:
        return list(found.values()), []
    index = dict(zip(found, range(len(found)), strict=True))
    return list(found.values()), list(map(index.__getitem__, ids))
