"""Columns and one-node forms of filters, fragmentation and policies give equal answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.objects.devices.gpu_cards import CARD_MILLI, CardState, GpuShareRequest
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions
from stowplan.plugins.gpu_share.card_filter import (
    fits_cards,
    fits_cards_column,
    fits_distinct_cards,
    fits_distinct_cards_column,
)
from stowplan.plugins.gpu_share.fragmentation import (
    TypicalColumns,
    TypicalPod,
    milli_by_category,
    milli_by_category_column,
)
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.policies import GpuPolicy, gpu_score, gpu_score_column
from stowplan.plugins.gpu_share.scores.dot_product import DotProductExtension, DotProductNorm
from tests.plugins.gpu_share.gpu_cases import REQUESTS, STATES, TYPICAL
from tests.property.wrong import assert_caught

Scorer = Callable[
    [GpuPolicy, GpuCardColumns, GpuShareRequest, CardChoiceOptions], tuple[Ints, Bools]
]
FilterColumn = Callable[[GpuCardColumns, GpuShareRequest], Bools]

OPTIONS = st.builds(
    CardChoiceOptions,
    extension=st.sampled_from(DotProductExtension),
    norm=st.sampled_from(DotProductNorm),
    typical=TYPICAL,
)
POLICIES = st.sampled_from(GpuPolicy)


def check_scores(
    policy: GpuPolicy,
    states: list[CardState],
    request: GpuShareRequest,
    options: CardChoiceOptions,
    scorer: Scorer = gpu_score_column,
) -> None:
    scores, refused = scorer(policy, GpuCardColumns.of(states), request, options)
    for row, state in enumerate(states):
        if not fits_cards(state, request):
            continue
        want = gpu_score(policy, state, request, options)
        assert (None if refused[row] else int(scores[row])) == want, (policy, state, request)


@given(POLICIES, STATES, REQUESTS, OPTIONS)
def test_scores(
    policy: GpuPolicy, states: list[CardState], request: GpuShareRequest, options: CardChoiceOptions
) -> None:
    check_scores(policy, states, request, options)


def rounded_up(
    policy: GpuPolicy, columns: GpuCardColumns, request: GpuShareRequest, options: CardChoiceOptions
) -> tuple[Ints, Bools]:
    scores, refused = gpu_score_column(policy, columns, request, options)
    return np.where(columns.total_left() > CARD_MILLI, scores + 1, scores), refused


def test_a_score_that_is_one_higher_is_caught() -> None:
    def check(
        policy: GpuPolicy,
        states: list[CardState],
        request: GpuShareRequest,
        options: CardChoiceOptions,
    ) -> None:
        check_scores(policy, states, request, options, rounded_up)

    assert_caught(check, POLICIES, STATES, REQUESTS, OPTIONS)


def check_filter(
    states: list[CardState],
    request: GpuShareRequest,
    column: FilterColumn,
    one: Callable[[CardState, GpuShareRequest], bool],
) -> None:
    found = column(GpuCardColumns.of(states), request)
    assert found.tolist() == [one(state, request) for state in states]


@given(STATES, REQUESTS)
def test_filters(states: list[CardState], request: GpuShareRequest) -> None:
    check_filter(states, request, fits_cards_column, fits_cards)
    check_filter(states, request, fits_distinct_cards_column, fits_distinct_cards)


def test_a_filter_that_puts_parts_on_one_card_is_caught() -> None:
    def check(states: list[CardState], request: GpuShareRequest) -> None:
        check_filter(states, request, fits_cards_column, fits_distinct_cards)

    assert_caught(check, STATES, REQUESTS)


def check_milli(states: list[CardState], typical: tuple[TypicalPod, ...], *, swap: bool) -> None:
    columns = GpuCardColumns.of(states)
    pods = typical[::-1] if swap else typical
    found: Floats = milli_by_category_column(
        columns.cpu_left, columns.left, columns.model, TypicalColumns(pods, columns.models)
    )
    assert found.tolist() == [milli_by_category(state, typical) for state in states]


@given(STATES, TYPICAL)
def test_milli_by_category_to_the_bit(
    states: list[CardState], typical: tuple[TypicalPod, ...]
) -> None:
    check_milli(states, typical, swap=False)


def test_another_order_of_additions_is_caught() -> None:
    def check(states: list[CardState], typical: tuple[TypicalPod, ...]) -> None:
        check_milli(states, typical, swap=True)

    assert_caught(check, STATES, TYPICAL)


@pytest.mark.parametrize("row", range(3))
def test_a_row_is_its_state(row: int) -> None:
    states = [
        CardState(64_000, 1000, (1000, 0), "A", {"share": 2}),
        CardState(1000, 0, (), "", {}),
        CardState(64_000, 500, (1, 2, 3), "B", {"2-gpu": 1, "share": 1}),
    ]
    assert GpuCardColumns.of(states).state(row) == states[row]
