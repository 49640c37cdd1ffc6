"""Counts in messages, singular and plural."""

import pytest

from stowplan.inputs.counts import count_of


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("pod",), "0 pods"),
        (1, ("pod",), "1 pod"),
        (2, ("pod",), "2 pods"),
        (12345, ("more error",), "12,345 more errors"),
        (1, ("pod has", "pods have"), "1 pod has"),
        (0, ("pod has", "pods have"), "0 pods have"),
    ],
)
def test_count_of(number: int, nouns: tuple[str, ...], text: str) -> None:
    assert count_of(number, *nouns) == text
