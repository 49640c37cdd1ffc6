"""Lots: the kernels' and NumPy's are the same numbers, and nobody is favoured."""

import numpy as np
import pytest

from stowplan.columns.engine.tie_break import draw_tie_break, draw_tie_breaks, tie_break_ranks

kernels = pytest.importorskip("stowplan.columns.engine.kernels")

RANKS = np.array([0, 1, 2, 3, 4999, 2**31, 2**40], dtype=np.int64)
DRAWS = (0, 1, 2**63 - 1, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_kernels_lot_is_numpys(draw: int) -> None:
    found = [int(kernels.tie_break_rank(np.uint64(draw), rank)) for rank in RANKS]
    assert found == tie_break_ranks(draw, RANKS).tolist()


def test_tie_breaks_of_one_draw_are_all_different() -> None:
    assert len(set(tie_break_ranks(7, np.arange(10_000)).tolist())) == 10_000


def test_every_row_wins_about_as_often_as_another() -> None:
    ranks = np.arange(5)
    wins = np.zeros(5, dtype=np.int64)
    for draw in draw_tie_breaks(np.random.default_rng(0), 5000).tolist():
        wins[np.argmin(tie_break_ranks(draw, ranks))] += 1
    assert wins.min() > 900


def test_who_wins_does_not_depend_on_who_else_is_there_but_the_winner() -> None:
    ranks = np.arange(20)
    winner = int(np.argmin(tie_break_ranks(11, ranks)))
    few = np.array([3, winner, 17])
    assert few[np.argmin(tie_break_ranks(11, few))] == winner


def test_random_numbers_of_a_batch_equal_those_of_single_calls() -> None:
    at_once, one_by_one = np.random.default_rng(5), np.random.default_rng(5)
    wanted = [draw_tie_break(one_by_one) for _ in range(6)]
    assert draw_tie_breaks(at_once, 6).tolist() == wanted
    assert draw_tie_break(at_once) == draw_tie_break(one_by_one)


def test_a_number_stands_for_itself_and_none_for_the_first_row() -> None:
    assert draw_tie_break(12) == 12
    assert draw_tie_break(None) is None
