"""Broken lines: their values at whole percentages, and what a drawn one may not be."""

import pytest

from stowplan.plugins.utilization_shape import (
    UtilizationShapePoint,
    piecewise_linear_scores,
    shape_problems,
)


def shape(*points: tuple[int, int]) -> tuple[UtilizationShapePoint, ...]:
    return tuple(UtilizationShapePoint(*point) for point in points)


@pytest.mark.parametrize(
    ("points", "values"),
    [
        # percentage -> score
        (((0, 0), (100, 10)), {0: 0, 1: 1, 50: 50, 99: 99, 100: 100}),
        (((0, 10), (100, 0)), {0: 100, 1: 99, 50: 50, 100: 0}),
        # Flat before the first point and after the last.
        (((40, 3), (60, 5)), {0: 30, 40: 30, 50: 40, 60: 50, 100: 50}),
        (((50, 7),), {0: 70, 50: 70, 100: 70}),
        # A falling piece is truncated toward its start: 100 - 33.3 is 67, not 66.
        (((0, 10), (3, 0), (100, 10)), {1: 67, 2: 34, 3: 0, 4: 1, 100: 100}),
    ],
)
def test_values(points: tuple[tuple[int, int], ...], values: dict[int, int]) -> None:
    line = piecewise_linear_scores(shape(*points))
    assert {percent: int(line[percent]) for percent in values} == values
    assert line.shape == (101,)


@pytest.mark.parametrize(
    ("points", "problems"),
    [
        (((0, 0), (100, 10)), []),
        ((), ["s: Invalid value: no point: expected at least one point"]),
        (((5, 0), (5, 1)), ["s[1].utilization: Invalid value: 5: expected more than 5"]),
        (((101, 0),), ["s[0].utilization: Invalid value: 101: expected 0 to 100"]),
        (((0, 11),), ["s[0].score: Invalid value: 11: expected 0 to 10"]),
        (
            ((0, -1), (-1, 0)),
            [
                "s[1].utilization: Invalid value: -1: expected more than 0",
                "s[0].score: Invalid value: -1: expected 0 to 10",
                "s[1].utilization: Invalid value: -1: expected 0 to 100",
            ],
        ),
    ],
)
def test_problems(points: tuple[tuple[int, int], ...], problems: list[str]) -> None:
    assert list(map(str, shape_problems(shape(*points), "s"))) == problems
