"""A Replica that follows now and then is equal to its source each time it has."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeTable, Replica
from stowplan.columns.invariants import validate
from stowplan.testing import contents, differences
from stowplan.testing.generators.table_changes import Step
from stowplan.testing.strategies import histories
from tests.property.wrong import assert_caught

LONG = histories(24)
LOOKS = st.lists(st.integers(0, 24), max_size=6)


def followed(make: type[Replica], steps: list[Step], looks: list[int]) -> None:
    """Follow after the steps whose numbers `looks` has, and after the last."""
    source = NodeTable()
    replica = make(source)
    places = sorted({0, *(look for look in looks if look < len(steps)), len(steps)})
    for start, stop in pairwise(places):
        before, generation = source.n_nodes, source.journal.generation
        for step in steps[start:stop]:
            step.apply(source)
        touched = source.journal.since(generation)
        assert touched is not None
        n_copied = replica.follow()
        assert n_copied <= len(touched)
        assert source.n_nodes <= before + n_copied
        wrong = differences(contents(replica.table), contents(source))
        assert not wrong, wrong
        validate(replica.table)


@given(LONG, LOOKS)
def test_a_replica_equals_its_source(steps: list[Step], looks: list[int]) -> None:
    followed(Replica, steps, looks)


class OffByOne(Replica):
    """Believes to have seen one change more than it has."""

    def follow(self) -> int:
        n_copied = super().follow()
        self._marks = self._marks[0] + 1, self._marks[1]
        return n_copied


class CopiesNumbersOnly(Replica):
    """Takes over sums and counts, and forgets the labels."""

    def follow(self) -> int:
        known = self.table.labels.column("disk").codes.copy()
        n_copied = super().follow()
        codes = self.table.labels.column("disk").codes
        codes[: known.shape[0]] = known[: codes.shape[0]]
        return n_copied


@pytest.mark.parametrize("wrong", [OffByOne, CopiesNumbersOnly])
def test_control_wrong_replicas(wrong: type[Replica]) -> None:
    assert_caught(lambda steps, looks: followed(wrong, steps, looks), LONG, LOOKS)
