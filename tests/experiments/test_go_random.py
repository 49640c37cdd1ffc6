"""Numbers of Go's generator."""

from __future__ import annotations

import pytest

from stowplan.experiments.gpu_sharing.go_random import GoRandom, go_table

# From Go: rand.New(rand.NewSource(1)), Intn(100).
OF_SEED_1 = [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_the_first_numbers_of_seed_1() -> None:
    random = GoRandom(1)
    assert [random.below(100) for _ in OF_SEED_1] == OF_SEED_1


def test_the_table_begins_as_in_go() -> None:
    """Source: rngCooked of math/rand/rng.go."""
    assert go_table()[:3].view("int64").tolist() == [
        -4181792142133755926,
        -4576982950128230565,
        1395769623340756751,
    ]


def test_seeds_that_are_equal_modulo_2_to_the_31_less_1_give_the_same_numbers() -> None:
    first, second = GoRandom(42), GoRandom(42 + 2**31 - 1)
    assert [first.uint64() for _ in range(700)] == [second.uint64() for _ in range(700)]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 1000])
def test_permutations_and_shuffles_keep_every_number(n: int) -> None:
    random = GoRandom(n)
    assert sorted(random.permutation(n)) == list(range(n))
    values = list(range(n))
    random.shuffle(values)
    assert sorted(values) == list(range(n))
    assert all(0 <= random.below(n) < n for _ in range(50))
