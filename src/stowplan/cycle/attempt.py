"""Attempt: the results of one pod's PreFilter, Filter, PreScore and Score.

Decisions, explanations and bulk answers read the same Attempt, so nothing is computed in two ways.

Source: kube-scheduler v1.36, schedule_one.go.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Ints
from stowplan.framework import CycleState, Framework, Snapshot
from stowplan.framework.cycle_state import MissingState
from stowplan.framework.diagnosis import NO_NODES, Diagnosis
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.outcomes import PreFilterOutcome, Scores
from stowplan.framework.status import OK, Status, error, unresolvable
from stowplan.objects.pod import Pod


class Attempt:
    """Results of one attempt so far.

    passed: int64, rows that passed, ascending. failure: set when the attempt ended with an error
    rather than a refusal; `errors` then holds every message that it may report.
    """

    def __init__(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, within: Ints | None = None
    ) -> None:
        """within: int64, rows of the only nodes that are considered; None: all."""
        self.pod = pod
        self.snapshot = snapshot
        self.framework = framework
        self.state = CycleState()
        n_nodes = snapshot.nodes.n_nodes
        if within is not None and within.shape[0] == n_nodes:
            within = None
        self.within = within
        self.diagnosis = Diagnosis(n_nodes, None, None if within is None else within.shape[0])
        self.pre_filter = PreFilterOutcome(OK)
        self.verdicts: NodeToStatus | None = None
        self.passed: Ints = np.zeros(0, dtype=np.int64)
        self.scores: Scores | None = None
        self.errors: list[Status] = []

    @property
    def failure(self) -> Status | None:
        """The error that ended the attempt, or None."""
        return self.errors[0] if self.errors else None

    @cached_property
    def feasible(self) -> Ints:
        """int64: rows that passed, in the snapshot's order."""
        nodes = self.snapshot.nodes
        if self.passed.shape[0] == nodes.n_nodes:
            return nodes.order
        ordered: Ints = self.passed[np.argsort(nodes.rank[self.passed])]
        return ordered

    @property
    def no_nodes(self) -> bool:
        """True if the cluster has no node; the original reports this as a separate error."""
        return self.snapshot.nodes.n_nodes == 0


def filter_pod(pod: Pod, snapshot: Snapshot, framework: Framework) -> Attempt:
    """Run PreFilter and Filter over all considered nodes.

    A plugin that breaks its contract ends the attempt with an error.
    """
    return run_filters_of(Attempt(pod, snapshot, framework))


def run_filters_of(attempt: Attempt) -> Attempt:
    """`filter_pod` for an attempt that was made before; returns it."""
    pod, snapshot, framework = attempt.pod, attempt.snapshot, attempt.framework
    if not run_pre_filters_of(attempt):
        return attempt
    rows = _allowed_rows(attempt)
    try:
        verdicts = framework.run_filters(pod, snapshot, attempt.state, rows)
    except MissingState as missing:
        # The profile disables a plugin's PreFilter and keeps its Filter.
        attempt.errors.append(error(f"running Filter plugins: {missing}"))
        return attempt
    except ContractError as fault:
        attempt.errors.append(error(str(fault)))
        return attempt
    attempt.verdicts = verdicts
    attempt.errors += verdicts.errors
    attempt.diagnosis.verdicts = verdicts
    attempt.passed = verdicts.passed()
    return attempt


def run_pre_filters_of(attempt: Attempt) -> bool:
    """Run PreFilter; False where that ends the attempt."""
    pod, snapshot, framework = attempt.pod, attempt.snapshot, attempt.framework
    diagnosis = attempt.diagnosis
    if attempt.no_nodes:
        diagnosis.absent = unresolvable(NO_NODES)
        return False
    try:
        outcome = framework.run_pre_filter(pod, snapshot, attempt.state)
    except ContractError as fault:
        outcome = PreFilterOutcome(error(str(fault)))
    attempt.pre_filter = outcome
    for plugin in outcome.restricted_by:
        diagnosis.blame(plugin)
    if not outcome.status.is_success:
        if outcome.status.is_rejected:
            diagnosis.absent = outcome.status
            diagnosis.pre_filter_message = outcome.status.message
            diagnosis.blame(outcome.status.plugin, outcome.status.code)
        else:
            attempt.errors.append(outcome.status)
        return False
    return True


def _allowed_rows(attempt: Attempt) -> Ints | None:
    """Rows that PreFilter allows, ascending; None for all."""
    restrict = attempt.pre_filter.restrict
    if restrict is None:
        return None if attempt.within is None else np.sort(attempt.within)
    names = " ".join(sorted(attempt.pre_filter.restricted_by))
    attempt.diagnosis.absent = unresolvable(f"node(s) didn't satisfy plugin(s) [{names}]")
    rows = (attempt.snapshot.nodes.row(name) for name in restrict)
    found = np.array(sorted(row for row in rows if row >= 0), dtype=np.int64)
    return found if attempt.within is None else np.intersect1d(found, attempt.within)


def run_filters_independently(attempt: Attempt) -> dict[str, PluginVerdicts]:
    """Verdicts of each filter, run independently of the others over all evaluated rows.

    A filter that breaks its contract on a row that it was not asked about before gets that error as
    its verdict.
    """
    verdicts, framework = attempt.verdicts, attempt.framework
    found: dict[str, PluginVerdicts] = {}
    if verdicts is None:
        return found
    for member in framework.at("filter"):
        if member.name in attempt.state.skip_filter:
            continue
        try:
            found[member.name] = member.verdicts(
                attempt.pod, attempt.snapshot.nodes, verdicts.rows, attempt.state
            )
        except ContractError as fault:
            failed = error(str(fault))
            codes = np.ones(verdicts.rows.shape[0], dtype=np.int64)
            found[member.name] = PluginVerdicts(codes, {1: failed}.__getitem__)
    return found


def score_pod(
    attempt: Attempt, rows: Ints | None = None, nodes: NodeTable | None = None
) -> Scores | None:
    """Run PreScore and Score over the rows that passed, or over `rows`, ascending.

    Stores the result in `scores`; stores None and adds to `errors` if a plugin failed or broke its
    contract. nodes: node states for Score, if not those of the snapshot.
    """
    pod, framework, state = attempt.pod, attempt.framework, attempt.state
    chosen = attempt.passed if rows is None else rows
    try:
        status = framework.run_pre_score(pod, attempt.snapshot, chosen, state)
        if not status.is_success:
            attempt.errors.append(status)
            return None
        scored = attempt.snapshot.nodes if nodes is None else nodes
        attempt.scores = framework.run_scores(pod, scored, chosen, state)
    except MissingState as missing:
        attempt.errors.append(error(f"running Score plugins: {missing}"))
        return None
    except ContractError as fault:
        attempt.errors.append(error(str(fault)))
        return None
    return attempt.scores
