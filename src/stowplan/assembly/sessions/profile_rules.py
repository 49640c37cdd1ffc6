"""ProfileRules: the filters and scores of the default profile as session rules.

The session accounts for resources itself, since it distinguishes idle from releasing resources; the
resource filter is therefore left out, while resource scores count. Rows are those of the node
table, on which the session's placements are an overlay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from stowplan.assembly.in_tree import DEFAULT_PLUGINS, NODEORDER_WEIGHTS, registry
from stowplan.batch.session_rules import NodeScoreWeights, PressureChecks, ScoringError
from stowplan.batch.state.jobs import TaskInfo
from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.config import default
from stowplan.framework import CycleState, FeatureGates, Framework, PluginUse, Snapshot
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.handle_state import HandleState
from stowplan.framework.node_to_status import PASSED
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import Status
from stowplan.plugins.gpu_share.card_plugin import CardPlugin
from stowplan.plugins.gpu_share.gpu_share import GpuShareArgs

FEW_ROWS = 4
"""Up to this many rows are looked up one by one."""


def session_framework(
    gates: FeatureGates | None = None,
    own: Iterable[type[Any]] = (),
    shared: HandleState | None = None,
    cards: GpuShareArgs | None = None,
) -> Framework:
    """The default profile without the resource filter. own: additional custom plugins. shared:
    handle state shared with the profiles. cards: arguments of GpuShare, which filters and reserves
    GPU cards and does not score; None for sessions that count no cards."""
    full, given = registry(), tuple(own)
    for plugin in given:
        full.register(plugin)
    uses = (PluginUse(plugin.name, full[plugin.name].weight) for plugin in given)
    (profile,) = default(full, (*DEFAULT_PLUGINS, *uses)).profiles.values()
    points = {
        point: tuple(
            use
            for use in uses
            if point not in ("preFilter", "filter")
            or not full[use.name].declaration.filters_resources
        )
        for point, uses in profile.points.items()
    }
    args = dict(profile.args)
    if cards is not None:
        args[CardPlugin.name] = cards
        for point in ("preFilter", "filter", "reserve"):
            points[point] = (*points.get(point, ()), PluginUse(CardPlugin.name))
    profile = msgspec.structs.replace(profile, points=points, args=args)
    return Framework(profile, full, gates or FeatureGates(), shared)


class ProfileRules:
    """Filters and scores of a framework for the nodes of a session."""

    def __init__(self, framework: Framework, snapshot: Snapshot) -> None:
        """snapshot: of the session's node table."""
        self._framework = framework
        self._snapshot = snapshot
        self._views: dict[Hashable, _TaskView] = {}
        self._static: dict[Hashable, _StaticAnswers | None] = {}

    # Session rules.

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Key of the task's results: tasks with equal keys get equal results on every row; None if
        results depend on other rows."""
        view = self._view(task)
        return None if view.static is None else view.key

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """bool (n_rows,): rows that pass every filter.

        Differs: pressure conditions keep pods away through their taints, whatever the file says.
        """
        view = self._view(task)
        if view.static is None:
            view = self._view(task, is_new=True)
        return view.passing(rows)

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """Reasons of the filters' refusals; each node is counted once."""
        return self._view(task, is_new=True).reasons()

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): weighted sum of the scores."""
        return self._view(task).scores(rows, weights)

    def _view(self, task: TaskInfo, *, is_new: bool = False) -> _TaskView:
        key = task.kind, self._framework.annotations_of(task.pod)
        view = self._views.get(key)
        if view is None or is_new:
            view = _TaskView(task, self._framework, self._snapshot)
            if view.key is not None:
                if view.key not in self._static:
                    self._static[view.key] = view.static_answers()
                view.static = self._static[view.key]
            self._views[key] = view
        return view


class _StaticAnswers(msgspec.Struct, frozen=True):
    """Results for one kind of task that do not depend on pods on nodes.

    mask: bool (n_nodes,), rows that pass; None if it may change. scores: plugin -> int64
    (n_nodes,), normalised. dynamic: the other scores. sums: amounts of a node -> sum of the dynamic
    scores.
    """

    mask: Bools | None
    scores: dict[str, Ints]
    dynamic: tuple[RegisteredPlugin, ...]
    sums: dict[tuple[object, ...], float]


class _TaskView:
    """Filter and score results for the tasks of one kind.

    key: equal for kinds with equal results on every row; None if the result for a row depends on
    others. static: the constant part; None likewise.
    """

    def __init__(self, task: TaskInfo, framework: Framework, snapshot: Snapshot) -> None:
        self._pod = task.pod
        self._framework = framework
        self._snapshot = snapshot
        self._state = CycleState()
        self.static: _StaticAnswers | None = None
        outcome = framework.run_pre_filter(self._pod, snapshot, self._state)
        # A session tells idle cards from those that are being released.
        self._state.skip_filter.add(CardPlugin.name)
        self._refusal: Status | None = None if outcome.status.is_success else outcome.status
        self._restrict = outcome.restrict
        self._filters: list[RegisteredPlugin] | None = None
        if self._refusal is None and self._restrict is None:
            self._filters = framework.filters_by_row(self._state)
        self._totals: tuple[NodeScoreWeights, Floats] | None = None
        self.key = self._key()

    def passing(self, rows: Ints) -> Bools:
        """bool (n_rows,): rows of the table that pass."""
        if self.static is not None and self.static.mask is not None:
            mask: Bools = self.static.mask[rows]
            return mask
        if self._refusal is not None:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        result = self._filtered(rows)
        if self._restrict is not None:
            names = self._snapshot.nodes.names
            result &= np.array([names[row] in self._restrict for row in rows], dtype=np.bool_)
        return result

    def reasons(self) -> Mapping[str, int]:
        """Reason -> number of nodes refused for it."""
        diagnosis = Diagnosis(self._snapshot.nodes.n_nodes)
        if self._refusal is not None:
            diagnosis.absent = self._refusal
        else:
            diagnosis.verdicts = self._framework.run_filters(self._pod, self._snapshot, self._state)
        return diagnosis.reasons()

    def scores(self, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): weighted sums for rows of the table."""
        nodes, framework = self._snapshot.nodes, self._framework
        if self.static is not None:
            static_sum = self._static_sum(self.static, weights)
            if rows.shape[0] <= FEW_ROWS:
                dynamic = [self._dynamic_at(row, self.static, weights) for row in rows.tolist()]
                return static_sum[rows] + np.array(dynamic, dtype=np.float64)
            return static_sum[rows] + self._dynamic(rows, self.static, weights)
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        status = framework.run_pre_score(self._pod, self._snapshot, ascending, self._state)
        if not status.is_success:
            raise ScoringError(status.message)
        scores = framework.run_scores(self._pod, nodes, ascending, self._state)
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for name, final in scores.final.items():
            member = framework.members[name]
            total[order] += final // member.weight * _weight(member, weights)
        return total

    def _dynamic(self, rows: Ints, static: _StaticAnswers, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): sum of the scores that depend on pods."""
        nodes = self._snapshot.nodes
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for member in static.dynamic:
            raw = member.call("score_column", self._pod, nodes, rows, self._state)
            total += raw * _weight(member, weights)
        return total

    def _dynamic_at(self, row: int, static: _StaticAnswers, weights: NodeScoreWeights) -> float:
        """The same for one row. Results are cached by the node's amounts, as many nodes are
        equal."""
        allocatable, requested, nonzero, _ = self._snapshot.nodes.amounts
        state = (
            weights,
            allocatable[:, row].tobytes(),
            requested[:, row].tobytes(),
            nonzero[:, row].tobytes(),
        )
        found = static.sums.get(state)
        if found is None:
            rows = np.array([row], dtype=np.int64)
            found = static.sums[state] = float(self._dynamic(rows, static, weights)[0])
        return found

    def static_answers(self) -> _StaticAnswers | None:
        """The constant part of the results; None if the score of a row depends on other rows."""
        nodes, state, pod = self._snapshot.nodes, self._state, self._pod
        scores: dict[str, Ints] = {}
        dynamic = []
        for member in self._scores():
            if member.declaration.scores_by_amounts:
                dynamic.append(member)
                continue
            raw = member.scores(pod, nodes, nodes.all_rows, state)
            normal = member.normalized(raw, pod, nodes, nodes.all_rows, state)
            # Scores are normalised by the highest, so only equal scores are independent of which
            # rows pass.
            if normal is not raw and raw.min() != raw.max():
                return None
            scores[member.name] = normal
        mask = None
        if all(member.node_only for member in self._filters or ()):
            mask = self._filtered(np.arange(nodes.n_nodes))
        return _StaticAnswers(mask, scores, tuple(dynamic), {})

    def _key(self) -> Hashable:
        nodes, state, pod = self._snapshot.nodes, self._state, self._pod
        if self._filters is None or nodes.n_nodes == 0:
            return None
        rows = np.arange(nodes.n_nodes)
        status = self._framework.run_pre_score(pod, self._snapshot, rows, state)
        if not status.is_success:
            return None
        members = [*self._filters, *self._scores()]
        if not all(m.calls["signature"] is not None for m in members):
            return None
        if not all(m.node_only or m.declaration.scores_by_amounts for m in self._scores()):
            return None
        return tuple((m.name, m.call("signature", pod)) for m in members)

    def _scores(self) -> list[RegisteredPlugin]:
        """The enabled scores."""
        state = self._state
        return [
            m
            for m in self._framework.at("score")
            if m.name not in state.skip_score and not m.is_idle(state)
        ]

    def _static_sum(self, static: _StaticAnswers, weights: NodeScoreWeights) -> Floats:
        """float64 (n_nodes,): sum of the constant scores."""
        if self._totals is None or self._totals[0] != weights:
            total = np.zeros(self._snapshot.nodes.n_nodes, dtype=np.float64)
            for name, normal in static.scores.items():
                total += normal * _weight(self._framework.members[name], weights)
            self._totals = weights, total
        return self._totals[1]

    def _filtered(self, rows: Ints) -> Bools:
        order = np.argsort(rows, kind="stable")
        verdicts = self._framework.run_filters(self._pod, self._snapshot, self._state, rows[order])
        result = np.zeros(rows.shape[0], dtype=np.bool_)
        result[order] = verdicts.by == PASSED
        return result


def _weight(member: RegisteredPlugin, weights: NodeScoreWeights) -> int:
    """Weight of a score: from the session configuration, otherwise from the profile."""
    stated: int | None = None
    if member.name in NODEORDER_WEIGHTS:
        stated = getattr(weights, NODEORDER_WEIGHTS[member.name])
    return member.weight if stated is None else stated
