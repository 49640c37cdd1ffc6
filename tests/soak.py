"""How long the property tests loop: STOWPLAN_SOAK=N asks for N times the examples."""

import os

SAMPLE = 0.1
"""The share of the examples that `make test` draws, so that it ends within 8 minutes."""
LEAST = 2


def factor() -> int:
    """The multiplier in force: STOWPLAN_SOAK, 1 when unset or empty."""
    text = os.environ.get("STOWPLAN_SOAK") or "1"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"STOWPLAN_SOAK: got {text!r}, wanted a whole number of at least 1")
    return int(text)


def examples(count: int) -> int:
    """What a test passes as `max_examples`: a sample of `count` in `make test`, a multiple in
    `make soak`."""
    if factor() > 1:
        return count * factor()
    return min(count, max(LEAST, round(count * SAMPLE)))


def seeds(count: int, *known: int) -> list[int]:
    """0 to `count - 1`, in which a wrong variant is searched. known: where it was found before;
    these come first, the others only where none of these finds it any more."""
    return [*known, *(seed for seed in range(count) if seed not in known)]


def found_within(count: int) -> int:
    """Examples within which a wrong variant is found: the search ends with the first."""
    return count * factor()
