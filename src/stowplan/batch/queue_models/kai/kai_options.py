"""What a configuration of KAI-Scheduler says, as its sessions read it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stowplan.batch.queue_models.kai.state.kai_usage import FETCH_INTERVAL, UsageRules
from stowplan.batch.queue_models.kai.state.numa_zones import ZoneRules


class KaiOptions(msgspec.Struct, frozen=True):
    """Configuration. actions: in the order in which they run. plugins: that are on. placement:
    pack or spread by `gpu` and `cpu`. k, saturation: of the proportion plugin. Runtimes and grace
    in seconds. max_moved: jobs that consolidation may move, -1 for any number. skips_alike: a job
    with the constraints of one that found no victims is tried only if it asks for less.
    simulated_max: evictions that an action may simulate, 0 for any number. depths: action -> jobs
    of a queue that it tries. usage: how usage over time is counted, None where it is not.
    usage_interval: seconds after which sessions know more of it.
    shares_cards: whether pods that ask for a part of a card are decided. zones: arguments of the
    plugin numa, None where it is off, so that objects say nothing of zones. unknown_memory: MiB by
    which shares in memory count to what queues ask for where no node says how large its cards are,
    0 for not at all. evicts_once: the second eviction of a pod in a session fails, as it does where
    evicted pods are gone at once. keeps_minimum: elastic jobs that a minimum runtime protects keep
    what they need beside pods that are being released; KAI-Scheduler counts those as left."""

    actions: tuple[str, ...] = ()
    plugins: frozenset[str] = frozenset()
    placement: Mapping[str, str] = {}
    k: float = 1.0
    saturation: float = 1.0
    reclaim_min_runtime: float = 0.0
    preempt_min_runtime: float = 0.0
    reclaim_by_leaf: bool = False
    max_moved: int = -1
    grace: float = 60.0
    skips_alike: bool = True
    simulated_max: int = 0
    depths: Mapping[str, int] = {}
    usage: UsageRules | None = None
    usage_interval: float = FETCH_INTERVAL
    shares_cards: bool = True
    zones: ZoneRules | None = None
    unknown_memory: int = 0
    evicts_once: bool = False
    keeps_minimum: bool = False
