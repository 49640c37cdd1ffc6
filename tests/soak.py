"""How long the property tests loop: STOWPLAN_SOAK=N asks for N times the examples."""

import os


def factor() -> int:
    """The multiplier in force: STOWPLAN_SOAK, 1 when unset or empty."""
    text = os.environ.get("STOWPLAN_SOAK") or "1"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"STOWPLAN_SOAK: got {text!r}, wanted a whole number of at least 1")
    return int(text)


def examples(count: int) -> int:
    """What a test passes as `max_examples`: `count` in `make test`, a multiple in `make soak`."""
    return count * factor()
