"""A rule of 1.13 asked about a small cluster, by rows and node by node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from stowplan.columns.nodetable import table_of
from stowplan.framework import (
    CycleState,
    FeatureGates,
    Framework,
    ObjectStore,
    PluginUse,
    Profile,
    Registry,
    Snapshot,
)
from stowplan.framework.extension_points import points_of
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.priority_sort import PrioritySort


def framework_of(plugin: type[Any], args: dict[str, Any] | None, *, columns: bool) -> Framework:
    points: dict[str, tuple[PluginUse, ...]] = {
        point: (PluginUse(plugin.name),) for point in points_of(plugin)
    }
    points["queueSort"] = (PluginUse(PrioritySort.name),)
    given = {} if args is None else {plugin.name: convert(args, plugin.Args)}
    profile = Profile("test", points, given)
    return Framework(profile, Registry([PrioritySort, plugin]), FeatureGates(), columns=columns)


class Rule:
    """A rule with its arguments, and the cluster it is asked about."""

    def __init__(
        self,
        plugin: type[Any],
        nodes: Iterable[Node],
        pods: Iterable[Pod] = (),
        objects: Iterable[Object] = (),
        **args: Any,
    ) -> None:
        self.name = plugin.name
        self.snapshot = Snapshot(table_of(nodes, pods), ObjectStore(objects))
        self.walks = [framework_of(plugin, args or None, columns=c) for c in (True, False)]

    def refusals(self, pod: Pod) -> dict[str, list[str]]:
        """Node -> its reasons, an error as ["error", text]; the same by both walks."""
        by_rows, by_node = (self._refusals(walk, pod) for walk in self.walks)
        assert by_rows == by_node
        return by_rows

    def _refusals(self, walk: Framework, pod: Pod) -> dict[str, list[str]]:
        state, nodes = CycleState(), self.snapshot.nodes
        assert walk.run_pre_filter(pod, self.snapshot, state).status.is_success
        verdicts = walk.filters_separately(pod, nodes, nodes.all_rows, state).get(self.name)
        if verdicts is None:
            return {}
        statuses = {
            name: verdicts.explain(code)
            for name, code in zip(nodes.names, verdicts.codes.tolist(), strict=True)
            if code
        }
        return {
            name: [*([] if s.is_rejected else ["error"]), *s.reasons]
            for name, s in statuses.items()
        }

    def codes(self, pod: Pod) -> set[str]:
        """The codes of the refusals, `Unschedulable` for what evictions may help with."""
        state, nodes = CycleState(), self.snapshot.nodes
        self.walks[0].run_pre_filter(pod, self.snapshot, state)
        verdicts = self.walks[0].filters_separately(pod, nodes, nodes.all_rows, state)[self.name]
        return {verdicts.explain(code).code.title for code in set(verdicts.codes.tolist()) if code}

    def mapped(self, pod: Pod) -> dict[str, int]:
        """Node -> score before the reduce; the same by both walks."""
        return self._scores(pod)[0]

    def scores(self, pod: Pod) -> dict[str, int]:
        """Node -> final score; the same by both walks."""
        return self._scores(pod)[1]

    def _scores(self, pod: Pod) -> tuple[dict[str, int], dict[str, int]]:
        nodes = self.snapshot.nodes
        found = []
        for walk in self.walks:
            state, rows = CycleState(), np.arange(nodes.n_nodes)
            status = walk.run_pre_score(pod, self.snapshot, rows, state)
            assert status.is_success, status
            given = walk.run_scores(pod, nodes, rows, state)
            found.append(
                tuple(
                    dict(zip(nodes.names, some[self.name].tolist(), strict=True))
                    for some in (given.raw, given.final)
                )
            )
        assert found[0] == found[1]
        return found[0]

    def failure(self, pod: Pod) -> str:
        """What PreScore fails with."""
        rows = np.arange(self.snapshot.nodes.n_nodes)
        return self.walks[0].run_pre_score(pod, self.snapshot, rows, CycleState()).message
