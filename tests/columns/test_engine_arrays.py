"""The places in the arrays: no two share one, and the kernels are compiled for those that are."""

import hashlib
from pathlib import Path

import stowplan.columns.engine
from stowplan.columns.engine import arrays as at

FOLDER = Path(stowplan.columns.engine.__file__).parent


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def stale(arrays: bytes, kernels: str, name: str = "ARRAYS") -> str:
    """What is to be done, "" for nothing."""
    line = f'\n{name} = "{digest(arrays)}"'
    return "" if line in kernels else f"kernels: wanted the line {line}"


def test_the_kernels_name_the_arrays_that_they_are_compiled_for() -> None:
    """Constants are compiled in, and Numba's cache on disk looks at `kernels.py` alone: without
    this line it would go on running kernels for arrays as they were."""
    arrays = (FOLDER / "arrays.py").read_bytes()
    kernels = (FOLDER / "kernels.py").read_text(encoding="utf-8")
    difference = stale(arrays, kernels)
    assert not difference, difference


def test_so_do_the_kernels_of_cards() -> None:
    kernels = (FOLDER / "card_kernels.py").read_text(encoding="utf-8")
    for name, file in (("ARRAYS", "arrays.py"), ("CARD_ARRAYS", "card_arrays.py")):
        difference = stale((FOLDER / file).read_bytes(), kernels, name)
        assert not difference, difference


def test_so_does_the_kernel_of_preemptors() -> None:
    kernels = (FOLDER / "preemption_kernels.py").read_text(encoding="utf-8")
    arrays = (FOLDER / "preemption_arrays.py").read_bytes()
    difference = stale(arrays, kernels, "PREEMPTION_ARRAYS")
    assert not difference, difference


def test_control_other_arrays_are_noticed() -> None:
    kernels = f'\nARRAYS = "{digest(b"A = 1")}"\n'
    assert not stale(b"A = 1", kernels)
    assert digest(b"A = 2") in stale(b"A = 2", kernels)


def test_no_two_things_share_a_column_of_classes() -> None:
    singles = [
        at.STATIC, at.LAYOUT, at.N_GROUPS, at.PODS, at.SEEN, at.N_WANTED, at.N_USED, at.N_EVEN,
        at.N_TAKEN, at.N_NORMALISED, at.USE_KIND, at.USE_WEIGHT, at.EVEN_WEIGHT, at.HAS_ROOM,
        at.CPU, at.MEMORY, at.FIRST_TERM, at.N_HOST_TERMS, at.N_TERMS, at.SPREAD_WEIGHT,
        at.AFFINITY_WEIGHT, at.REQUIRES_ALL, at.MATCHES_ITSELF, at.TREE, at.N_BLOCKS,
        at.INNER, at.N_CARDS, at.CARD_MILLI, at.CARD_ORDER, at.N_FEW,
        at.LINE,
    ]  # fmt: skip
    spans = {
        at.WANTED: 2 * at.AMOUNTS_MAX,
        at.USED: 4 * at.AMOUNTS_MAX,
        at.EVEN: 2 * at.AMOUNTS_MAX,
        at.TAKEN: 2 * at.AMOUNTS_MAX,
        at.NORMALISED: 2 * at.NORMALISED_MAX,
        at.HIGHEST: at.NORMALISED_MAX,
        at.N_HIGHEST: at.NORMALISED_MAX,
        at.FEW: at.FEW_MAX,
    }
    taken = singles + [first + i for first, width in spans.items() for i in range(width)]
    assert sorted(taken) == list(range(at.N_COLUMNS))


def test_no_two_things_share_a_column_of_terms() -> None:
    taken = [
        at.KIND, at.KEY, at.FIRST_COUNT, at.N_VALUES, at.SLOT, at.SKEW_MAX, at.DOMAINS_MIN,
        at.MATCHES, at.N_DOMAINS, at.MASK, at.TOTAL, at.LOWEST, at.N_LOWEST,
    ]  # fmt: skip
    assert sorted(taken) == list(range(at.N_TERM_COLUMNS))


def test_kinds_that_score_stand_behind_those_that_filter() -> None:
    assert max(at.APART, at.NEAR, at.EVEN_HARD) < min(at.EVEN_SOFT, at.WEIGHTED_AFFINITY)
