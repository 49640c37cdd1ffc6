"""kube-batch v0.5 from a configuration of sessions."""

from __future__ import annotations

from stowplan.config.session_configuration import BatchConfiguration
from stowplan.kube_batch_v05.decider import KubeBatchPlan
from stowplan.kube_batch_v05.session import KubeBatchOptions
from stowplan.kube_batch_v05.tiers import KubeBatchPluginOption


def kube_batch_options(configuration: BatchConfiguration) -> KubeBatchOptions:
    """Actions and tiers of a configuration that was read leniently."""
    tiers = configuration.tiers or ()
    return KubeBatchOptions(
        configuration.actions,
        tuple(
            tuple(KubeBatchPluginOption(p.name, frozenset(p.disabled), p.arguments) for p in tier)
            for tier in tiers
        ),
    )


def kube_batch_plan(configuration: BatchConfiguration) -> KubeBatchPlan:
    """Settings of a decider. What becomes of a gang with a failed bind is not among them: the
    original tries again."""
    return KubeBatchPlan(
        configuration.scheduler_names,
        configuration.default_queue,
        configuration.period_s,
        configuration.uses_priority_classes,
        kube_batch_options(configuration),
    )
