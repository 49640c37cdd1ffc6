"""Cluster: a cluster that answers questions, for Python programs and notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stowplan.cycle.explanation import Explanation
from stowplan.forecast.capacity import Paths, capacity, compact, fit_nodes
from stowplan.forecast.defragment import defragment
from stowplan.forecast.eta import eta
from stowplan.forecast.expected_starts import ExpectedStarts
from stowplan.forecast.explain import explain
from stowplan.forecast.what_if.preempt_preview import preview
from stowplan.forecast.what_if.questions import Question, WhatIfOptions, answer, question_of
from stowplan.inputs import cluster_reader
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.capacity.card_moves import DefragmentPlan
from stowplan.insight.capacity.compact import CompactPlan
from stowplan.insight.capacity.count import CapacityCount
from stowplan.insight.capacity.node_fit import NodeFit
from stowplan.insight.what_if.application import NOT_OF_CLUSTER, apply_changes
from stowplan.insight.what_if.requested_changes import RequestSource, requests_of
from stowplan.insight.what_if.result import PreemptionPreview, WhatIf
from stowplan.simulation.scheduler_configuration import ConfigSource, config_files


class QueryableCluster(cluster_reader.Cluster):
    """A cluster that answers questions; `stowplan.Cluster`.

    config, plugins: files and classes of the scheduler that decides. Answers are computed on a
    scheduler that is loaded once; later questions, also those of copies, cost what differs. A
    cluster is not changed by a question; do not change its lists after the first one.
    """

    config: tuple[str, ...] = ()
    plugins: tuple[PluginSource, ...] = ()
    shared: list[Question] = []

    @classmethod
    def from_files(
        cls,
        *paths: str | Path,
        config: ConfigSource | None = None,
        plugins: Iterable[PluginSource] = (),
        orphans: str = "pending",
        validate: str = "auto",
    ) -> QueryableCluster:
        """A cluster of manifests, dumps, traces or directories of them; see `read_cluster`."""
        found = cluster_reader.read_cluster(paths, orphans=orphans, validate=validate)
        return cls.of(found, config, plugins)

    @classmethod
    def from_kubeconfig(
        cls,
        kubeconfig: str | Path | None = None,
        *,
        context: str = "",
        config: ConfigSource | None = None,
        plugins: Iterable[PluginSource] = (),
    ) -> QueryableCluster:
        """A live cluster, listed once and not modified.

        kubeconfig: None for $KUBECONFIG or ~/.kube/config. Kinds that may not be listed are left
        out with a note, except nodes and pods. Raises ServerUnreachable and CredentialError.
        """
        # Imported here: the client loads slower than most clusters of files.
        from stowplan.driver.client.kubeconfig_loading import load_client_config
        from stowplan.driver.client.one_shot_requests import list_once
        from stowplan.simulation.scheduler_configuration import read_deciders

        file = None if kubeconfig is None else str(kubeconfig)
        deciders = read_deciders(config, tuple(plugins))
        listed = list_once(
            load_client_config(file, context),
            deciders,
            partial=True,
            with_finished=True,
            with_workloads=True,
        )
        found = cluster_reader.Cluster(
            listed.nodes, listed.pods, listed.objects, notes=listed.notes
        )
        return cls.of(found, config, plugins)

    @classmethod
    def of(
        cls,
        found: cluster_reader.Cluster,
        config: ConfigSource | None = None,
        plugins: Iterable[PluginSource] = (),
    ) -> QueryableCluster:
        """A cluster that was read, with the scheduler that decides."""
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return cls(**fields, config=config_files(config), plugins=tuple(plugins), shared=[])

    def copy(self) -> QueryableCluster:
        """A copy whose lists may be changed; it shares the loaded scheduler, and costs little."""
        return msgspec.structs.replace(
            self,
            nodes=list(self.nodes),
            pods=list(self.pods),
            objects=list(self.objects),
            notes=list(self.notes),
            origins=dict(self.origins),
        )

    def with_changes(
        self, changes: Iterable[RequestSource], *, namespace: str = "default"
    ) -> QueryableCluster:
        """A copy after changes; see `what_if`. Changes of the scheduler are not allowed."""
        requested = requests_of(changes)
        for one in requested:
            if one.kind in NOT_OF_CLUSTER:
                raise one.error("changes the scheduler, not the cluster; use what_if()")
        submissions = {
            one.text: cluster_reader.read_addition(one.text, self)
            for one in requested
            if one.kind == "submit"
        }
        after = apply_changes(self, requested, namespace=namespace, submissions=submissions).cluster
        return msgspec.structs.replace(
            self, nodes=after.nodes, pods=after.pods, objects=after.objects, origins=after.origins
        )

    def explain(self, pod: str, *, changes: bool = True) -> Explanation:
        """Why a pod, by NAMESPACE/NAME, is on its node, or pending; see `stowplan.explain`."""
        return explain(pod, self, config=self.config, plugins=self.plugins, changes=changes)

    def what_if(
        self, changes: Iterable[RequestSource], *, options: WhatIfOptions | None = None
    ) -> WhatIf:
        """What changes would do: `cluster.what_if([{"drain": "zone-c"}])`.

        Raises InputError, ConfigError and ContractError.
        """
        return answer(self._question(options), requests_of(changes))

    def preempt_preview(
        self,
        pod: str = "",
        *,
        submit: str | Path | Iterable[str | Path] = (),
        options: WhatIfOptions | None = None,
    ) -> PreemptionPreview:
        """Who would have to go for a pod, by NAMESPACE/NAME, or for manifests of new pods."""
        return preview(self._question(options), pod, submit)

    def capacity(self, workload: cluster_reader.Cluster | Paths, **options: Any) -> CapacityCount:
        """How many more pods or gangs of a workload fit; options as for `stowplan.capacity`."""
        return capacity(workload, self, config=self.config, plugins=self.plugins, **options)

    def fit_nodes(
        self, workload: cluster_reader.Cluster | Paths | None = None, **options: Any
    ) -> NodeFit:
        """The cheapest nodes on which a workload runs; options as for `stowplan.fit_nodes`."""
        return fit_nodes(self, workload, config=self.config, plugins=self.plugins, **options)

    def compact(self, **options: Any) -> CompactPlan:
        """Nodes that can be emptied; options as for `stowplan.compact`."""
        return compact(self, config=self.config, plugins=self.plugins, **options)

    def defragment(self, **options: Any) -> DefragmentPlan:
        """Pods to move so that GPU cards are less fragmented; options as for
        `stowplan.defragment`."""
        return defragment(self, config=self.config, plugins=self.plugins, **options)

    def eta(self, pods: Iterable[str] | None = None, **options: Any) -> ExpectedStarts:
        """When pending pods are expected to start; options as for `stowplan.eta`."""
        return eta(self, pods, config=self.config, plugins=self.plugins, **options)

    def _question(self, options: WhatIfOptions | None) -> Question:
        """A question about this version; earlier ones have loaded the scheduler."""
        options = options or WhatIfOptions()
        for one in self.shared:
            is_same = one.cluster_given is self or _is_same(one.cluster_given, self)
            if is_same and one.options == options:
                return one
        for one in self.shared:
            if (one.options.seed, one.options.profile) == (options.seed, options.profile):
                new = question_of(self, config=self.config, plugins=self.plugins, options=options)
                new.deciders, new.loaded = one.deciders, one.loaded
                self._keep(new)
                return new
        new = question_of(self, config=self.config, plugins=self.plugins, options=options)
        self._keep(new)
        return new

    def _keep(self, question: Question) -> None:
        """Keep the latest questions: each holds what was decided before changes."""
        self.shared.append(question)
        del self.shared[:-QUESTIONS_MAX]


QUESTIONS_MAX = 8
"""Versions of a cluster for which the decisions before changes are kept."""

Cluster = QueryableCluster
"""The public name."""


def read_cluster(
    paths: str | Path | Iterable[str | Path],
    *,
    orphans: str = "pending",
    validate: str = "auto",
    keep_manifests: bool = False,
) -> QueryableCluster:
    """A cluster of manifests, dumps, OpenB CSVs, and directories of them.

    `-` is standard input. orphans: treatment of pods bound to nodes that are not in the input:
    `pending`, `ignore` or `error`. validate: `strict`, `warn` or `ignore` for all objects; `auto`:
    strict for objects that no API server has stored. keep_manifests: fill
    `Cluster.manifests`, which take several times the memory. Raises InputError.
    """
    found = cluster_reader.read_cluster(
        paths, orphans=orphans, validate=validate, keep_manifests=keep_manifests
    )
    return QueryableCluster.of(found)


def _is_same(one: cluster_reader.Cluster, other: cluster_reader.Cluster) -> bool:
    """True where both have the same nodes, pods and objects, one by one."""
    pairs = ((one.nodes, other.nodes), (one.pods, other.pods), (one.objects, other.objects))
    return all(
        len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
        for left, right in pairs
    )
