"""Pods in columns: pods of one template are written as a reference to it and their own metadata.

A template is a spec without nodeName that pods share by identity, as decoders intern them (see
`objects.pod_templates`). Pods that share a spec share it again when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodSpec, PodStatus
from stowplan.objects.pod_templates import template_of, with_node_name
from stowplan.recording.metadata_rows import MetadataRows, rows_of


class PodColumns(msgspec.Struct, frozen=True, array_like=True):
    """Columns of `n_pods` pods.

    metas: (n_pods) in files of format 2, empty in later ones, which have `rows`. statuses:
    (n_pods), or one that all pods share. templates: distinct specs. codes: (n_pods) index in
    `templates`; empty if there is one template. nodes: (n_pods) nodeName, where the template has
    none; empty if no pod has one.
    """

    metas: list[ObjectMeta]
    statuses: list[PodStatus]
    templates: list[PodSpec]
    codes: list[int]
    nodes: list[str]
    rows: list[MetadataRows] = []

    def pods(self) -> list[Pod]:
        """The pods, in order; raises RecordingError and msgspec.DecodeError."""
        templates = self.templates
        metas = [*self.metas, *chain.from_iterable(part.metadata() for part in self.rows)]
        n_pods = len(metas)
        specs = [templates[code] for code in self.codes] if self.codes else templates * n_pods
        if self.nodes:
            pairs = zip(specs, self.nodes, strict=True)
            specs = [with_node_name(spec, node) if node else spec for spec, node in pairs]
        is_shared = len(self.statuses) == 1
        statuses = self.statuses * n_pods if is_shared else self.statuses
        return list(map(Pod, metas, specs, statuses))


def columns_of(pods: Sequence[Pod]) -> PodColumns:
    """The columns of pods."""
    if pods:
        spec, status = pods[0].spec, pods[0].status
        # The pods of one workload that is scaled up: one walk over them instead of four. Pods of
        # several templates seldom begin and end with the same one.
        if pods[-1].spec is spec:
            metas = [pod.metadata for pod in pods if pod.spec is spec and pod.status is status]
            if len(metas) == len(pods):
                return PodColumns([], [status], [spec], [], [], rows_of(metas))
    specs = [pod.spec for pod in pods]
    nodes = [spec.node_name for spec in specs]
    if any(nodes):
        owned, specs = specs, [template_of(spec) for spec in specs]
        # A spec that is its own template has its node in it.
        triples = zip(nodes, specs, owned, strict=True)
        nodes = ["" if spec is own else node for node, spec, own in triples]
    if not any(nodes):
        nodes = []
    templates, codes = _distinct(specs)
    statuses = [pod.status for pod in pods]
    if statuses and statuses[0] is statuses[-1] and statuses.count(statuses[0]) == len(statuses):
        statuses = statuses[:1]
    rows = rows_of([pod.metadata for pod in pods])
    return PodColumns([], statuses, templates, codes, nodes, rows)


def _distinct(specs: Sequence[PodSpec]) -> tuple[list[PodSpec], list[int]]:
    """The distinct objects, and the index of each among them; no indexes for a single one."""
    ids = list(map(id, specs))
    found = dict(zip(ids, specs, strict=True))
    if len(found) == 1:
        return list(found.values()), []
    index = dict(zip(found, range(len(found)), strict=True))
    return list(found.values()), list(map(index.__getitem__, ids))
