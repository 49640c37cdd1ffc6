"""Scores as a piecewise linear function of utilization.

Source: kube-scheduler v1.36, plugins/helper shape_score and apis/config/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import SCORE_MAX, Problem
from stowplan.plugins.args_base import PluginArgs

UTILIZATION_MAX = 100
POINT_SCORE_MAX = 10


class UtilizationShapePoint(PluginArgs, frozen=True):
    """A point of the function. utilization: percent. score: 0 to 10."""

    utilization: int = 0
    score: int = 0


def shape_problems(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[Problem]:
    """Problems of a shape. path: its place in the configuration."""
    if not shape:
        yield Problem(path, "no point", "at least one point")
    for i, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            at = f"{path}[{i}].utilization"
            yield Problem(at, str(point.utilization), f"more than {before.utilization}")
    for i, point in enumerate(shape):
        if not 0 <= point.utilization <= UTILIZATION_MAX:
            yield Problem(f"{path}[{i}].utilization", str(point.utilization), "0 to 100")
        if not 0 <= point.score <= POINT_SCORE_MAX:
            yield Problem(f"{path}[{i}].score", str(point.score), "0 to 10")


def piecewise_linear_scores(shape: Sequence[UtilizationShapePoint]) -> Ints:
    """int64 (101,): the score, 0 to 100, at each whole percentage of utilization."""
    scale = SCORE_MAX // POINT_SCORE_MAX
    return np.array([score_at(p, shape, scale) for p in range(UTILIZATION_MAX + 1)], dtype=np.int64)


def score_at(percent: int, shape: Sequence[UtilizationShapePoint], scale: int = 1) -> int:
    """The score at a percentage of utilization, times `scale`."""
    if percent <= shape[0].utilization:
        return shape[0].score * scale
    for before, point in pairwise(shape):
        if percent <= point.utilization:
            rise = (point.score - before.score) * scale * (percent - before.utilization)
            run = point.utilization - before.utilization
            # Truncated toward zero, also where the function falls.
            return before.score * scale + (rise // run if rise >= 0 else -(-rise // run))
    return shape[-1].score * scale
