"""Counts in messages: `1 pod`, `3 pods`."""

from __future__ import annotations


def count_of(number: int, singular: str, plural: str = "") -> str:
    """A number and what is counted. plural: "" for `singular` with an s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
