"""Answers to queue model cases, by peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stowplan.conformance.queue_models import kai_cases, kueue_cases, volcano_cases
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase

PEERS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "kai": kai_cases.answer,
    "kueue": kueue_cases.answer,
    "volcano": volcano_cases.answer,
}
"""Peer -> the function that answers its cases."""


def answer(case: QueueModelCase, compat: str = "") -> dict[str, Any]:
    """The answer to one case; raises ValueError for a peer without a model."""
    if case.peer not in PEERS:
        known = ", ".join(PEERS)
        raise ValueError(f"{case.id}: peer: got {case.peer!r}, expected one of {known}")
    return PEERS[case.peer](case, compat)
