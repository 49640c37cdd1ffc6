"""The extenders of a configuration, as the machine knows them."""

from __future__ import annotations

from stowplan.config import Configuration
from stowplan.messages.extender_api import ExtenderVerb, HTTPExtender

SCALE, POLICY_SCALE = 10, 1
"""What a score of 1 counts: extenders give 10 at most, plugins 100; priorities of a Policy 10."""


def extenders_of(configuration: Configuration) -> tuple[HTTPExtender, ...]:
    """Each with its place in the configuration, which has more that a caller must know."""
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
