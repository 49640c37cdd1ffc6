"""What an attempt decided about devices: allocations per node, and claims that PostFilter frees."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.cycle.attempt import Attempt
from stowplan.plugins.devices.claim_search import ClaimSearch
from stowplan.plugins.devices.dynamic_resources import DynamicResources

Answer = dict[str, Any]


def _search_of(attempt: Attempt) -> ClaimSearch | None:
    found = attempt.state.find(DynamicResources.name)
    return found if isinstance(found, ClaimSearch) else None


def _tree(value: Any) -> Any:
    """A value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def allocations_of(attempt: Attempt, names: list[str]) -> Answer:
    """Per feasible node, each claim without an allocation and what Reserve would allocate."""
    search = _search_of(attempt)
    if search is None:
        return {}
    found: Answer = {}
    for name in names:
        answer = search.known(name)
        if answer is None or not answer.results:
            continue
        found[name] = [
            {"claim": claim.name, "allocation": {"devices": {}, **_tree(result)}}
            for claim, result in zip(search.to_allocate, answer.results, strict=True)
        ]
    return found


def extended_claims_of(attempt: Attempt, names: list[str]) -> Answer:
    """Per feasible node, the claim made up for extended resources."""
    search = _search_of(attempt)
    if search is None:
        return {}
    found: Answer = {}
    for name in names:
        answer = search.known(name)
        if answer is None or answer.extended is None:
            continue
        requests = answer.extended.spec.devices.requests
        found[name] = {
            "requests": _tree(requests) or None,
            "requestMappings": _tree(answer.mappings) or None,
        }
    return found


def post_filter_claims(attempt: Attempt) -> Answer:
    """The claims that PostFilter deallocates or deletes."""
    search = _search_of(attempt)
    if search is None:
        return {}
    unused = attempt.state.find(DynamicResources.UNUSED)
    if unused:
        return {"deallocatedOneOf": [claim.name for claim in unused]}
    if search.has_left_over_claim and search.extended is not None:
        return {"deletedClaims": [search.extended.name]}
    return {}
