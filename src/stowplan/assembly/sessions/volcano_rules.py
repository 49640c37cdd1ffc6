"""FrameworkPodRules: filters and scores of kube-scheduler's plugins as Volcano's pod rules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from stowplan.assembly.in_tree import registry
from stowplan.assembly.sessions.volcano_scores import NO_SCORES, KindScores, NoScores
from stowplan.batch.queue_models.volcano.pod_rules import (
    PASSES,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    NodeScoreUse,
)
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints
from stowplan.columns.overlay import Overlay
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.framework import CycleState, FeatureGates, Framework, PluginUse, Profile, Snapshot
from stowplan.framework.node_to_status import PluginVerdicts
from stowplan.framework.plugin import RestrictTo
from stowplan.framework.status import Code
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinityArgs
from stowplan.plugins.resources.balanced_allocation import NodeResourcesBalancedAllocationArgs
from stowplan.plugins.resources.fit import NodeResourcesFitArgs
from stowplan.plugins.resources.resource_allocation import ResourceSpec
from stowplan.plugins.resources.scoring_strategy import ScoringStrategy

PROFILE = "volcano"
ON_NODES = frozenset({"NodeUnschedulable", "NodeAffinity", "TaintToleration"})
"""Filters whose answer no other pod changes."""

_SORT = {"queueSort": (PluginUse("PrioritySort"),)}
_BALANCED = ("cpu", "memory", "nvidia.com/gpu")

FILTERS: Mapping[str, str] = {
    "predicate.NodeUnschedulableEnable": "NodeUnschedulable",
    "predicate.NodeAffinityEnable": "NodeAffinity",
    "predicate.TaintTolerationEnable": "TaintToleration",
    "predicate.NodePortsEnable": "NodePorts",
    "predicate.PodAffinityEnable": "InterPodAffinity",
    "predicate.NodeVolumeLimitsEnable": "NodeVolumeLimits",
    "predicate.VolumeZoneEnable": "VolumeZone",
    "predicate.PodTopologySpreadEnable": "PodTopologySpread",
    "predicate.VolumeBindingEnable": "VolumeBinding",
    "predicate.DynamicResourceAllocationEnable": "DynamicResources",
}
"""Argument of Volcano -> plugin of kube-scheduler."""

SCORES: Mapping[str, str] = {
    **FILTERS,
    "leastrequested.weight": "NodeResourcesFit",
    "mostrequested.weight": "NodeResourcesFit",
    "balancedresource.weight": "NodeResourcesBalancedAllocation",
    "nodeaffinity.weight": "NodeAffinity",
    "podaffinity.weight": "InterPodAffinity",
    "tainttoleration.weight": "TaintToleration",
    "podtopologyspread.weight": "PodTopologySpread",
    "imagelocality.weight": "ImageLocality",
}
"""Argument of Volcano -> plugin whose score it weighs."""

STRATEGIES = {"leastrequested.weight": "LeastAllocated", "mostrequested.weight": "MostAllocated"}
"""Argument of Volcano -> strategy of the score."""


def _framework(
    points: Mapping[str, tuple[PluginUse, ...]],
    args: Mapping[str, Any] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Framework:
    profile = Profile(PROFILE, {**_SORT, **points}, dict(args or {}), aliases=dict(aliases or {}))
    return Framework(profile, registry(), FeatureGates())


def _defined(names: Sequence[str], method: str) -> tuple[PluginUse, ...]:
    plugins = registry()
    return tuple(PluginUse(name) for name in names if hasattr(plugins[name].plugin, method))


class FrameworkPodRules:
    """Filters and scores over the table of a snapshot, which an overlay changes.

    n_affine: number of placed or removed pods so far that may keep others away. keeps_scores: False
    computes every score anew.
    """

    def __init__(self, snapshot: Snapshot, *, keeps_scores: bool = True) -> None:
        self.snapshot = snapshot
        self.keeps_scores = keeps_scores
        self.n_affine = 0
        self._overlay = Overlay(snapshot.nodes)

    def filters(self, names: Sequence[str]) -> FrameworkFilters:
        """The filters that these arguments of Volcano turn on."""
        return FrameworkFilters(self, tuple(FILTERS[name] for name in names))

    def scores(self, uses: Sequence[NodeScoreUse]) -> FrameworkScores:
        """The weighted sum of these scores."""
        return FrameworkScores(self, uses)

    def pod_counts(self, rows: Ints) -> Ints:
        """int64 (n_rows,): pods on each node."""
        counts: Ints = self.snapshot.nodes.pod_count[rows]
        return counts

    def place(self, task: VolcanoTask, row: int) -> None:
        """A pod is on a node from now on."""
        if task.pod.spec.affinity is not None:
            self.n_affine += 1
        self._overlay.place(PodInfo.of(task.pod), row)

    def take(self, task: VolcanoTask, row: int) -> None:
        """A pod is no longer on a node, if it was."""
        if task.pod.spec.affinity is not None:
            self.n_affine += 1
        if any(info.uid == task.uid for info in self.snapshot.nodes.pods[row]):
            self._overlay.take(task.uid, row)

    def close(self) -> None:
        """The table is as before."""
        self._overlay.rollback(0)


class FrameworkFilters:
    """Filters. State is kept by pod from one `prepare` to the next.

    Pods of one kind of which only filters on nodes themselves are left share state and codes.
    """

    def __init__(self, rules: FrameworkPodRules, names: tuple[str, ...]) -> None:
        self._rules = rules
        points = {
            "preFilter": _defined(names, "pre_filter"),
            "filter": _defined(names, "filter"),
            "reserve": _defined(names, "reserve"),
        }
        self._framework = _framework(points)
        self._states: dict[str, CycleState] = {}
        self._reserved: set[str] = set()
        self._filtering = frozenset(member.name for member in self._framework.at("filter"))
        # By kind of pod, until a pod with affinity is placed or removed.
        self._shared: dict[Hashable, tuple[CycleState, Ints]] = {}
        self._shared_at = -1
        # By spec: no label of a pod matters to filters on nodes.
        self._on_nodes: dict[int, Ints] = {}

    def _kept(self, task: VolcanoTask) -> tuple[CycleState, Ints] | None:
        if self._shared_at != self._rules.n_affine:
            self._shared.clear()
            self._shared_at = self._rules.n_affine
        return self._shared.get(task.kind)

    def _keep(self, task: VolcanoTask, state: CycleState) -> None:
        """Share what was computed for a pod that only filters on nodes themselves can refuse."""
        if not self._filtering - state.skip_filter <= ON_NODES:
            return
        nodes, spec = self._rules.snapshot.nodes, id(task.pod.spec)
        codes = self._on_nodes.get(spec)
        if codes is None:
            rows = np.arange(nodes.n_nodes, dtype=np.int64)
            codes = self._on_nodes[spec] = self._codes_of(task, rows, state)
        self._shared[task.kind] = state, codes

    def prepare(self, task: VolcanoTask) -> bool:
        """Run the PreFilters; what they restrict nodes to is ignored, as Filter decides it too."""
        kept = self._kept(task)
        if kept is not None:
            self._states[task.uid] = kept[0]
            return True
        state = self._states[task.uid] = CycleState()
        snapshot = self._rules.snapshot
        for member in self._framework.at("preFilter"):
            answer = member.call("pre_filter", task.pod, snapshot, state)
            if isinstance(answer, RestrictTo):
                continue
            if answer.is_skip:
                state.skip_filter.add(member.name)
            elif not answer.is_success:
                return False
        self._keep(task, state)
        return True

    def codes(self, task: VolcanoTask, rows: Ints) -> Ints:
        """int64 (n_rows,): UNRESOLVABLE if one filter says so or fails, else UNSCHEDULABLE if
        one refuses."""
        state = self._states.get(task.uid)
        if state is None or rows.shape[0] == 0:
            return np.zeros(rows.shape[0], dtype=np.int64)
        kept = self._kept(task)
        if kept is not None and kept[0] is state:
            found: Ints = kept[1][rows]
            return found
        return self._codes_of(task, rows, state)

    def constant_codes(self, task: VolcanoTask) -> Ints | None:
        """int64 (n_rows of the table,): codes that pods of a kind share; None where they share
        none. `prepare` was called for the task."""
        kept = self._kept(task)
        return None if kept is None else kept[1]

    def _codes_of(self, task: VolcanoTask, rows: Ints, state: CycleState) -> Ints:
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        nodes = self._rules.snapshot.nodes
        found = self._framework.filters_separately(task.pod, nodes, rows[order], state)
        for verdicts in found.values():
            codes[order] = np.maximum(codes[order], _codes(verdicts))
        return codes

    def codes_without(self, task: VolcanoTask, row: int, gone: Sequence[VolcanoTask]) -> Ints:
        """The codes of pod affinity for one row without some tasks on it."""
        state = self._states.get(task.uid)
        member = self._framework.members.get("InterPodAffinity")
        if state is None or member is None or member.name in state.skip_filter:
            return np.zeros(1, dtype=np.int64)
        without, node = state.clone(), self._rules.snapshot.nodes.info(row).copy()
        for other in gone:
            info = PodInfo.of(other.pod)
            node.remove_pod(info.uid)
            member.call("remove_pod", task.pod, info, node, without)
        status = member.call("filter", task.pod, node, without)
        return np.array([_code(status.code)], dtype=np.int64)

    def reserve(self, task: VolcanoTask) -> bool:
        """Run the Reserves."""
        state = self._states.get(task.uid)
        if state is None or not self._framework.at("reserve"):
            return True
        self._reserved.add(task.uid)
        return self._framework.run_reserve(task.pod, task.node, state).is_success

    def unreserve(self, task: VolcanoTask) -> None:
        """Run the Unreserves of a pod for which Reserve ran."""
        if task.uid in self._reserved:
            self._reserved.discard(task.uid)
            self._framework.run_unreserve(task.pod, task.node, self._states[task.uid])


class FrameworkScores:
    """Scores. Weights are applied to normalised scores."""

    def __init__(self, rules: FrameworkPodRules, uses: Sequence[NodeScoreUse]) -> None:
        self._rules = rules
        args: dict[str, Any] = {}
        aliases: dict[str, str] = {}
        scoring = []
        for use in uses:
            plugin = SCORES[use.name]
            if not hasattr(registry()[plugin].plugin, "score"):
                continue
            # One plugin may score twice, by two strategies.
            aliases[use.name] = plugin
            scoring.append(PluginUse(use.name, use.weight))
            if use.name in STRATEGIES:
                specs = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))
                strategy = ScoringStrategy(type=STRATEGIES[use.name], resources=specs)
                args[use.name] = NodeResourcesFitArgs(scoring_strategy=strategy)
            elif use.name == "balancedresource.weight":
                balanced = tuple(ResourceSpec(resource, 1) for resource in _BALANCED)
                args[use.name] = NodeResourcesBalancedAllocationArgs(resources=balanced)
            elif use.name == "podaffinity.weight":
                args[use.name] = InterPodAffinityArgs(hard_pod_affinity_weight=0)
        before = tuple(
            use for use in scoring if hasattr(registry()[SCORES[use.name]].plugin, "pre_score")
        )
        points = {"preScore": before, "score": tuple(scoring)}
        self._framework = _framework(points, args, aliases) if scoring else None
        # By kind of pod, and by what their scores depend on, until a pod with affinity is placed.
        self._kinds: dict[Hashable, KindScores] = {}
        self._alike: dict[Hashable, KindScores] = {}
        self._kinds_at = -1

    def totals(self, task: VolcanoTask, rows: Ints) -> Floats | None:
        """float64 (n_rows,): weighted sums; None if a plugin fails."""
        totals: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        if self._framework is None or rows.shape[0] == 0:
            return totals
        kept = self._kept(self._framework, task) if self._rules.keeps_scores else None
        if kept is not None:
            return kept.totals(rows)
        state, snapshot = CycleState(), self._rules.snapshot
        order = np.argsort(rows, kind="stable")
        status = self._framework.run_pre_score(task.pod, snapshot, rows[order], state)
        if not status.is_success:
            return None
        scores = self._framework.run_scores(task.pod, snapshot.nodes, rows[order], state)
        totals[order] = scores.total
        return totals

    def column(self, task: VolcanoTask) -> KindScores | NoScores | None:
        """The sums by row; None if a sum depends on other rows."""
        if self._framework is None:
            return NO_SCORES
        if not self._rules.keeps_scores:
            return None
        found = self._kept(self._framework, task)
        return found if found is not None and found.is_by_row else None

    def _kept(self, framework: Framework, task: VolcanoTask) -> KindScores | None:
        """Scores of the task's kind; None where they are computed anew each time."""
        if self._kinds_at != self._rules.n_affine:
            self._kinds.clear()
            self._alike.clear()
            self._kinds_at = self._rules.n_affine
        kind = task.kind
        found = self._kinds.get(kind)
        if found is None:
            found = KindScores(framework, task.pod, self._rules.snapshot, FILTERS)
            if found.is_kept:
                if found.key not in self._alike:
                    found.fill()
                    self._alike[found.key] = found
                found = self._alike[found.key]
            self._kinds[kind] = found
        return found if found.is_kept else None


def _codes(verdicts: PluginVerdicts) -> Ints:
    """int64 (n_rows,): our codes for the verdicts of a plugin."""
    known = {0: PASSES}
    for code in np.unique(verdicts.codes).tolist():
        if code != 0:
            known[code] = _code(verdicts.explain(int(code)).code)
    return np.array([known[code] for code in verdicts.codes.tolist()], dtype=np.int64)


def _code(code: Code) -> int:
    if code == Code.SUCCESS:
        return PASSES
    return UNSCHEDULABLE if code == Code.UNSCHEDULABLE else UNRESOLVABLE
