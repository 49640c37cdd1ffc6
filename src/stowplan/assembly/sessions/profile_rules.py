"""Today's rules for sessions: the filters and scores of a profile, asked through its framework.

Resources are the session's own business: it must tell what is idle from what is being released.
So the filter that looks at them is left out; their scores count. Rows of the session are those of
its ledger, rows of the framework those of the table of nodes; names join them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.assembly.in_tree import DEFAULT_PLUGINS, NODEORDER_WEIGHTS, registry
from stowplan.batch.session_rules import NodeScoreWeights, PressureChecks, ScoringError
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.session_state import SessionState
from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.config import default
from stowplan.framework import CycleState, FeatureGates, Framework, PluginUse, Snapshot
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.handle_state import HandleState
from stowplan.framework.node_to_status import PASSED
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import Status

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW_ROWS = 4
"""Of so many rows each is looked up by itself."""


def session_framework(
    gates: FeatureGates | None = None,
    own: Iterable[type[Any]] = (),
    shared: HandleState | None = None,
) -> Framework:
    """The default profile without the filter on resources. own: plugins that take part too.

    shared: with profiles beside.
    """
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
    profile = msgspec.structs.replace(profile, points=points)
    return Framework(profile, full, gates or FeatureGates(), shared)


def table_of_session(state: SessionState) -> NodeTable:
    """A table of the session's nodes with the pods that it holds on them."""
    table, nodes = NodeTable(), state.nodes
    for node in nodes.nodes:
        if node is not None:
            table.add_node(node)
    for row in range(nodes.n_nodes):
        for held in nodes.tasks_on(row):
            table.add_pod(held.task.pod, nodes.names[row])
    table.refresh()
    return table


class ProfileRules:
    """Filters and scores of a framework, for the nodes of a session."""

    def __init__(self, state: SessionState, framework: Framework, snapshot: Snapshot) -> None:
        """snapshot: of the same nodes and pods as the session's."""
        self._framework = framework
        self._snapshot = snapshot
        self._table = snapshot.nodes
        self._overlay = Overlay(self._table)
        names = state.nodes.names
        self._rows: Ints | None = None
        if names != self._table.names:
            found = (self._table.row(name) for name in names)
            self._rows = np.fromiter(found, dtype=np.int64, count=len(names))
        self._views: dict[Hashable, _TaskView] = {}
        self._still: dict[Hashable, _StaticAnswers | None] = {}

    # What is asked.

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Equal for tasks of which rows are said the same, None where others bear on a row."""
        view = self._view(task)
        return None if view.still is None else view.key

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """bool (n_rows,): rows that pass every filter.

        Differs: pressures keep pods away by their taints, whether the file asks for it or not.
        """
        view = self._view(task)
        if view.still is None:
            view = self._view(task, anew=True)
        return view.passing(self._mapped(rows))

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """The refusals of the filters, each node counted once."""
        return self._view(task, anew=True).reasons()

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): the weighted sum of the scores."""
        return self._view(task).scores(self._mapped(rows), weights)

    def placed(self, task: TaskInfo, row: int) -> None:
        """Let the pod be on the node for the rest of the session."""
        mapped = row if self._rows is None else int(self._rows[row])
        self._overlay.place(PodInfo.of(task.pod), mapped)

    def unplaced(self, task: TaskInfo, row: int) -> None:
        """Take the pod placed last off again."""
        self._overlay.rollback(self._overlay.mark() - 1)

    def close(self) -> None:
        """Leave the table as it was."""
        self._overlay.rollback(0)

    def _mapped(self, rows: Ints) -> Ints:
        return rows if self._rows is None else self._rows[rows]

    def _view(self, task: TaskInfo, *, anew: bool = False) -> _TaskView:
        view = self._views.get(task.kind)
        if view is None or anew:
            view = _TaskView(task, self._framework, self._snapshot)
            if view.key is not None:
                if view.key not in self._still:
                    self._still[view.key] = view.stand_still()
                view.still = self._still[view.key]
            self._views[task.kind] = view
        return view


class _StaticAnswers(msgspec.Struct, frozen=True):
    """What pods that come and go do not change of the answers to one kind of task.

    mask: bool (n_nodes,), the rows that pass; None where that may change. scores: plugin -> int64
    (n_nodes,), normalised. moving: the other scores. said: amounts of a node -> their sum.
    """

    mask: Bools | None
    scores: dict[str, Ints]
    moving: tuple[RegisteredPlugin, ...]
    said: dict[tuple[object, ...], float]


class _TaskView:
    """What the framework says to the tasks of one kind.

    key: equal for kinds that are told the same of each row; None where what is said of a row may
    depend on others. still: what stands still; None likewise.
    """

    def __init__(self, task: TaskInfo, framework: Framework, snapshot: Snapshot) -> None:
        self._pod = task.pod
        self._framework = framework
        self._snapshot = snapshot
        self._state = CycleState()
        self.still: _StaticAnswers | None = None
        outcome = framework.run_pre_filter(self._pod, snapshot, self._state)
        self._refusal: Status | None = None if outcome.status.is_success else outcome.status
        self._restrict = outcome.restrict
        self._filters: list[RegisteredPlugin] | None = None
        if self._refusal is None and self._restrict is None:
            self._filters = framework.filters_by_row(self._state)
        self._totals: tuple[NodeScoreWeights, Floats] | None = None
        self.key = self._key()

    def passing(self, rows: Ints) -> Bools:
        """bool (n_rows,): rows of the table that pass."""
        if self.still is not None and self.still.mask is not None:
            mask: Bools = self.still.mask[rows]
            return mask
        if self._refusal is not None:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        result = self._filtered(rows)
        if self._restrict is not None:
            names = self._snapshot.nodes.names
            result &= np.array([names[row] in self._restrict for row in rows], dtype=np.bool_)
        return result

    def reasons(self) -> Mapping[str, int]:
        """Reason -> how many nodes are refused for it."""
        diagnosis = Diagnosis(self._snapshot.nodes.n_nodes)
        if self._refusal is not None:
            diagnosis.absent = self._refusal
        else:
            diagnosis.verdicts = self._framework.run_filters(self._pod, self._snapshot, self._state)
        return diagnosis.reasons()

    def scores(self, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): weighted sums for rows of the table."""
        nodes, framework = self._snapshot.nodes, self._framework
        if self.still is not None:
            standing = self._standing(self.still, weights)
            if rows.shape[0] <= FEW_ROWS:
                moving = [self._moving_at(row, self.still, weights) for row in rows.tolist()]
                return standing[rows] + np.array(moving, dtype=np.float64)
            return standing[rows] + self._moving(rows, self.still, weights)
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

    def _moving(self, rows: Ints, still: _StaticAnswers, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): the sum of the scores that pods move."""
        nodes = self._snapshot.nodes
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for member in still.moving:
            raw = member.call("score_column", self._pod, nodes, rows, self._state)
            total += raw * _weight(member, weights)
        return total

    def _moving_at(self, row: int, still: _StaticAnswers, weights: NodeScoreWeights) -> float:
        """The same of one row. Nodes are much alike: what was said of such a node is kept."""
        allocatable, requested, nonzero, _ = self._snapshot.nodes.amounts
        state = (
            weights,
            allocatable[:, row].tobytes(),
            requested[:, row].tobytes(),
            nonzero[:, row].tobytes(),
        )
        found = still.said.get(state)
        if found is None:
            rows = np.array([row], dtype=np.int64)
            found = still.said[state] = float(self._moving(rows, still, weights)[0])
        return found

    def stand_still(self) -> _StaticAnswers | None:
        """What no pod that comes or goes will change; None where others bear on a row's score."""
        nodes, state, pod = self._snapshot.nodes, self._state, self._pod
        scores: dict[str, Ints] = {}
        moving = []
        for member in self._scores():
            if member.declaration.scores_by_amounts:
                moving.append(member)
                continue
            raw = member.scores(pod, nodes, nodes.all_rows, state)
            normal = member.normalized(raw, pod, nodes, nodes.all_rows, state)
            # Measured against the highest: only equal scores are the same among any rows.
            if normal is not raw and raw.min() != raw.max():
                return None
            scores[member.name] = normal
        mask = None
        if all(member.node_only for member in self._filters or ()):
            mask = self._filtered(np.arange(nodes.n_nodes))
        return _StaticAnswers(mask, scores, tuple(moving), {})

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
        """The scores in force."""
        state = self._state
        return [
            m
            for m in self._framework.at("score")
            if m.name not in state.skip_score and not m.is_idle(state)
        ]

    def _standing(self, still: _StaticAnswers, weights: NodeScoreWeights) -> Floats:
        """float64 (n_nodes,): the sum of the scores that stand still."""
        if self._totals is None or self._totals[0] != weights:
            total = np.zeros(self._snapshot.nodes.n_nodes, dtype=np.float64)
            for name, normal in still.scores.items():
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
    """What a score weighs: as the configuration of sessions says, else as the profile does."""
    stated: int | None = None
    if member.name in NODEORDER_WEIGHTS:
        stated = getattr(weights, NODEORDER_WEIGHTS[member.name])
    return member.weight if stated is None else stated
