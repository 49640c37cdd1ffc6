"""Volcano's actions and plugins by name, and sessions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stowplan.batch.queue_models.volcano.actions.gang_eviction import gang_preempt, gang_reclaim
from stowplan.batch.queue_models.volcano.actions.volcano_allocate import allocate
from stowplan.batch.queue_models.volcano.actions.volcano_backfill import backfill
from stowplan.batch.queue_models.volcano.actions.volcano_enqueue import enqueue
from stowplan.batch.queue_models.volcano.actions.volcano_preempt import preempt
from stowplan.batch.queue_models.volcano.actions.volcano_reclaim import reclaim
from stowplan.batch.queue_models.volcano.actions.volcano_shuffle import shuffle
from stowplan.batch.queue_models.volcano.plugins.jobs.overcommit import Overcommit
from stowplan.batch.queue_models.volcano.plugins.jobs.pdb_victims import PdbVictims
from stowplan.batch.queue_models.volcano.plugins.jobs.sla import Sla
from stowplan.batch.queue_models.volcano.plugins.jobs.tdm import Tdm
from stowplan.batch.queue_models.volcano.plugins.jobs.volcano_conformance import VolcanoConformance
from stowplan.batch.queue_models.volcano.plugins.jobs.volcano_gang import VolcanoGang
from stowplan.batch.queue_models.volcano.plugins.jobs.volcano_priority import VolcanoPriority
from stowplan.batch.queue_models.volcano.plugins.nodes.device_share import VolcanoDeviceShare
from stowplan.batch.queue_models.volcano.plugins.nodes.network_topology import NetworkTopologyAware
from stowplan.batch.queue_models.volcano.plugins.nodes.node_group import NodeGroup
from stowplan.batch.queue_models.volcano.plugins.nodes.rescheduling import Rescheduling
from stowplan.batch.queue_models.volcano.plugins.nodes.resource_strategy_fit import (
    ResourceStrategyFit,
)
from stowplan.batch.queue_models.volcano.plugins.nodes.volcano_binpack import VolcanoBinpack
from stowplan.batch.queue_models.volcano.plugins.nodes.volcano_nodeorder import VolcanoNodeOrder
from stowplan.batch.queue_models.volcano.plugins.nodes.volcano_predicates import VolcanoPredicates
from stowplan.batch.queue_models.volcano.plugins.nodes.volcano_usage import VolcanoUsage
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import VolcanoCapacity
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_drf import VolcanoDrf
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_proportion import VolcanoProportion
from stowplan.batch.queue_models.volcano.volcano_defects import ALL_DEFECTS
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions, VolcanoPluginOption
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.config.queue_models.volcano_configuration import VolcanoConfiguration

VOLCANO_ACTIONS: Mapping[str, Callable[[VolcanoSession], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
    "gangpreempt": gang_preempt,
    "gangreclaim": gang_reclaim,
    "shuffle": shuffle,
}
"""Action -> what it does."""

_PLUGINS: Iterable[type[VolcanoPlugin]] = (
    VolcanoGang, VolcanoPriority, VolcanoConformance, VolcanoDrf, VolcanoProportion,
    VolcanoCapacity, Overcommit, Sla, Tdm, VolcanoBinpack, VolcanoNodeOrder, VolcanoPredicates,
    NodeGroup, ResourceStrategyFit, NetworkTopologyAware, PdbVictims,
    VolcanoDeviceShare, VolcanoUsage, Rescheduling,
)  # fmt: skip

VOLCANO_PLUGINS: Mapping[str, Callable[[Any], VolcanoPlugin]] = {one.name: one for one in _PLUGINS}
"""Plugin -> its class."""


def volcano_options(
    configuration: VolcanoConfiguration, mends: frozenset[str] = ALL_DEFECTS
) -> VolcanoOptions:
    """Options of sessions from a file. mends: see `volcano_defects`."""
    tiers = tuple(
        tuple(VolcanoPluginOption(one.name, one.enabled, one.arguments) for one in tier)
        for tier in configuration.tiers
    )
    return VolcanoOptions(configuration.actions, tiers, configuration.arguments, mends)


def run_actions(session: VolcanoSession) -> None:
    """Run the configured actions in order."""
    for name in session.options.actions:
        VOLCANO_ACTIONS[name](session)
