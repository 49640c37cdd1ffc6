"""Scores of all feasible nodes of an attempt, by column or node by node."""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import SCORE_MAX
from stowplan.objects.devices.gpu_cards import GpuShareRequest
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.policies import (
    GpuPolicy,
    gpu_score,
    gpu_score_column,
    normalize_gpu_scores,
)


class AttemptScores(msgspec.Struct, frozen=True):
    """raw, normalized: int64 (n_rows,). is_refused: bool (n_rows,), True where the policy gives no
    score, and raw is 0."""

    raw: Ints
    is_refused: Bools
    normalized: Ints

    @property
    def is_out_of_range(self) -> Bools:
        """bool (n_rows,): normalized scores that kube-scheduler does not accept."""
        outside: Bools = (self.normalized < 0) | (self.normalized > SCORE_MAX)
        return outside & ~self.is_refused.any()

    @property
    def fails(self) -> bool:
        """True when the attempt fails; a single node is not scored."""
        wrong = self.is_refused | self.is_out_of_range
        return self.raw.shape[0] > 1 and bool(wrong.any())


def attempt_scores(
    policy: GpuPolicy,
    cards: GpuCardColumns,
    request: GpuShareRequest,
    options: CardChoiceOptions,
    *,
    columns: bool,
) -> AttemptScores:
    """Scores of these nodes. columns: by column, else node by node."""
    if columns:
        raw, refused = gpu_score_column(policy, cards, request, options)
    else:
        states = (cards.state(row) for row in range(cards.n_cards.shape[0]))
        found = [gpu_score(policy, state, request, options) for state in states]
        raw = np.array([score or 0 for score in found], dtype=np.int64)
        refused = np.array([score is None for score in found], dtype=np.bool_)
    normalized = raw if refused.any() else normalize_gpu_scores(policy, raw)
    return AttemptScores(raw, refused, normalized)
