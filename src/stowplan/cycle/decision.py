"""decide(): choose the node of one pod, or build the message when no node fits.

Source: kube-scheduler v1.36, schedule_one.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Ints
from stowplan.columns.engine.tie_break import TieBreakSource, draw_tie_break, tie_break_ranks
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.framework import Framework, PostFilterResult, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.diagnosis import NO_NODES
from stowplan.framework.status import OK, Status
from stowplan.objects.pod import Pod

SAMPLE_MIN = 100
"""Minimum number of feasible nodes to find when percentageOfNodesToScore is set."""


class SamplingState:
    """Start of the next search when only a share of the nodes is evaluated.

    Shared by all profiles of a scheduler. next_start: position in the snapshot's order.
    """

    def __init__(self, next_start: int = 0) -> None:
        self.next_start = next_start


def decide(
    pod: Pod,
    snapshot: Snapshot,
    framework: Framework,
    rng: TieBreakSource = None,
    sampling: SamplingState | None = None,
) -> Decision:
    """Choose a node for `pod`, or say why no node fits.

    Ties go to the first node in the snapshot's order, or to a random one if `rng` is given.
    Differs: in the original the winner of a tie depends on heap order and on worker timing.
    """
    draw = draw_tie_break(rng)
    return conclude(filter_pod(pod, snapshot, framework), draw, sampling)


def conclude(attempt: Attempt, draw: int | None, sampling: SamplingState | None = None) -> Decision:
    """Build the decision of an attempt whose nodes have been filtered. draw: tie-break number, see
    `decide`."""
    # Differs: where a filter fails with an error on any node the attempt ends, even if the pod is
    # nominated to another node that passes; the original looks at the nominated node first.
    if attempt.failure is not None:
        return failed(attempt)
    if attempt.passed.shape[0] == 0:
        return refused(attempt)
    nominated = nominated_row(attempt)
    if nominated is not None:
        return placed_decision(attempt, nominated)
    sampling = sampling or SamplingState()
    start = sampling.next_start
    rows = sample_rows(attempt, sampling)
    if rows.shape[0] > 1 and attempt.framework.at("score") and score_pod(attempt, rows) is None:
        return failed(attempt)
    return placed_decision(attempt, choose_row(attempt, rows, draw, start))


def nominated_row(attempt: Attempt) -> int | None:
    """The row that the pod is nominated to if it passed; it is then chosen without scoring."""
    name = attempt.pod.status.nominated_node_name
    row = attempt.snapshot.nodes.row(name) if name else -1
    return row if row >= 0 and (attempt.passed == row).any() else None


def sample_rows(attempt: Attempt, sampling: SamplingState) -> Ints:
    """int64, ascending: the rows to score; advances the sampling state.

    All rows that passed, unless the profile sets percentageOfNodesToScore. Differs: the original
    samples by default; here every node is evaluated unless a user asks for sampling, the start
    advances by the nodes up to the last one found, and a profile without Score plugins takes the
    first node instead of rotating.
    """
    percentage = attempt.framework.profile.percentage_of_nodes_to_score
    if not percentage or percentage >= 100 or attempt.verdicts is None:
        return attempt.passed
    rank = attempt.snapshot.nodes.rank
    considered = np.sort(rank[attempt.verdicts.rows])
    n_considered = considered.shape[0]
    if n_considered < SAMPLE_MIN:
        return attempt.passed
    n_sampled = max(n_considered * percentage // 100, SAMPLE_MIN)
    # Positions are counted among the considered nodes, as in the original's workers.
    places = np.searchsorted(considered, rank[attempt.passed])
    distance = (places - sampling.next_start % n_considered) % n_considered
    walk = np.argsort(distance)
    visited = n_considered
    if walk.shape[0] >= n_sampled:
        visited = int(distance[walk[n_sampled - 1]]) + 1
    sampling.next_start = (sampling.next_start + visited) % attempt.snapshot.nodes.n_nodes
    return np.sort(attempt.passed[walk[:n_sampled]])


def choose_row(attempt: Attempt, rows: Ints, draw: int | None = None, start: int = 0) -> int:
    """The row with the highest total among `rows` (ascending).

    Ties: the first in the snapshot's order, counted from position `start`; with a draw, a random
    one.
    """
    best = rows
    if attempt.scores is not None:
        best = rows[attempt.scores.total == attempt.scores.total.max()]
    return break_tie(attempt.snapshot.nodes, best, draw, start)


def break_tie(nodes: NodeTable, best: Ints, draw: int | None, start: int) -> int:
    """Choose one of the rows with equal totals; see `choose_row`."""
    ranks = nodes.rank[best]
    if draw is not None:
        return int(best[np.argmin(tie_break_ranks(draw, ranks))])
    return int(best[np.argmin((ranks - start) % nodes.n_nodes)])


def placed_decision(attempt: Attempt, row: int, score: int | None = None) -> Decision:
    """Decision for a node. score: total score, if extenders contributed to it."""
    if score is None and attempt.scores is not None:
        score = next(iter(attempt.scores.total[attempt.scores.rows == row].tolist()), None)
    return Decision(node_name=attempt.snapshot.nodes.names[row], state=attempt.state, score=score)


def failed(attempt: Attempt) -> Decision:
    """Decision of an attempt that ended with an error."""
    failure = attempt.failure
    assert failure is not None
    return Decision(
        refusal=failure,
        message=failure.message,
        reasons={failure.message: 1},
        nominated_node="",
    )


def refused(attempt: Attempt) -> Decision:
    """Decision when no node passed: run PostFilter and build the message."""
    if attempt.no_nodes:
        return Decision(
            refusal=attempt.diagnosis.absent,
            message=NO_NODES,
            reasons={NO_NODES: 1},
            nominated_node="",
        )
    return refusal(attempt, run_post_filters(attempt))


def refusal(attempt: Attempt, result: PostFilterResult | None) -> Decision:
    """Decision when no node passed and PostFilter has run."""
    diagnosis = attempt.diagnosis
    message = diagnosis.text("" if result is None else result.status.message)
    return Decision(
        refusal=attempt.pre_filter.status if attempt.verdicts is None else REFUSED,
        message=message,
        reasons=diagnosis.reasons(),
        near_misses=diagnosis.near_misses(),
        plugins=tuple(sorted(diagnosis.plugins)),
        pending=tuple(sorted(diagnosis.pending)),
        nominated_node="" if result is None else result.nominated_node,
        victims=() if result is None else result.victims,
        preempted_by="" if result is None else result.status.plugin,
    )


def run_post_filters(attempt: Attempt) -> PostFilterResult | None:
    """Result of PostFilter; None if the profile has no PostFilter plugin."""
    framework = attempt.framework
    if not framework.at("postFilter"):
        return None
    return framework.run_post_filter(
        attempt.pod, attempt.snapshot, attempt.diagnosis, attempt.state
    )


REFUSED = Status(code=OK.code.UNSCHEDULABLE)
