"""Extenders of a configuration, in the scheduler's form."""

from __future__ import annotations

from stowplan.config import Configuration
from stowplan.messages.extender_api import ExtenderVerb, HTTPExtender

SCALE, POLICY_SCALE = 10, 1
"""Score scales: extenders return at most 10, plugins 100; Policy priorities 10."""


def extenders_of(configuration: Configuration) -> tuple[HTTPExtender, ...]:
    """Each extender with its configuration, which holds further settings for the driver."""
    scale = SCALE if configuration.policy is None else POLICY_SCALE
    found = []
    for place, one in enumerate(configuration.extenders):
        paths = {
            ExtenderVerb.FILTER: one.filter_verb,
            ExtenderVerb.PRIORITIZE: one.prioritize_verb,
            ExtenderVerb.PREEMPT: one.preempt_verb,
            ExtenderVerb.BIND: one.bind_verb,
        }
        found.append(
            HTTPExtender(
                place=place,
                url_prefix=one.url_prefix,
                verbs={verb: path for verb, path in paths.items() if path},
                weight=one.weight,
                scale=scale,
                timeout_s=one.http_timeout.total_seconds(),
                node_cache_capable=one.node_cache_capable,
                managed_resources=frozenset(resource.name for resource in one.managed_resources),
                ignorable=one.ignorable,
            )
        )
    return tuple(found)
