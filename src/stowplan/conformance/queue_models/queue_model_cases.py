"""Queue model cases: cases of Volcano, KAI and Kueue, one format for all peers.

A case names its peer; the peer's module decodes the cluster and answers.
"""

from __future__ import annotations

from typing import Any

from stowplan.conformance.case_lines import case_reader
from stowplan.objects.meta import Value

UNLIMITED_FROM = 9e18
"""Amounts from here on are written as `unlimited`."""


class QueueModelCase(Value, frozen=True, gc=True):
    """One case; `config` and `cluster` are the peer's.

    config: a tree, or the text of the peer's own configuration file. steps, max_cycles: of Kueue.
    rounds: of KAI, sessions one after the other.
    """

    id: str
    peer: str
    area: str
    config: dict[str, Any] | str = {}
    cluster: dict[str, Any] = {}
    steps: tuple[dict[str, Any], ...] | None = None
    max_cycles: int | None = None
    rounds: int = 1


read_case = case_reader(QueueModelCase)


def amount_fact(amount: float) -> float | str:
    """An amount as facts have it."""
    return "unlimited" if amount >= UNLIMITED_FROM else amount
