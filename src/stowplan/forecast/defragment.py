"""defragment(): which pods to move so that GPU cards are less fragmented."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.explanation import pending_form
from stowplan.forecast.capacity import Paths, trial_frameworks
from stowplan.framework import Framework
from stowplan.inputs.cluster_reader import Cluster, cluster_of, read_workload
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaler_notes import autoscaler_note
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.card_moves import (
    CardFigures,
    CardsOfNodes,
    DefragmentPlan,
    KeptPod,
    delete_commands,
    kept_pods,
    moves_of,
    within_budgets,
)
from stowplan.insight.capacity.count import SCHEMA
from stowplan.insight.gpu_fragmentation import (
    CardFragmentation,
    CardFragmentationMeter,
    chooses_cards,
    conventions_of,
    typical_of,
    typical_of_configuration,
)
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.gpu_share.descheduling import DeschedulingPolicy, victims
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.simulation.scheduler_configuration import ConfigSource, deciders_for
from stowplan.simulation.simulate import check_profile_of, fill_of

RATIO = 0.1
"""Pods to move at most, as a share of all."""

Homes = dict[str, tuple[str, tuple[str, ...]]]
"""Pod -> its node and its cards."""


def defragment(
    cluster: Cluster | Paths,
    workload: Cluster | Paths | None = None,
    *,
    policy: str = DeschedulingPolicy.FRAG_MULTI_POD.value,
    ratio: float = RATIO,
    typical: Sequence[TypicalPod] | None = None,
    force: bool = False,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
) -> DefragmentPlan:
    """Choose pods to evict so that typical pods can use more GPU cards, and place them again.

    workload: the pods that are expected; None for the workload of the plugin GpuShare in the
    configuration, or the cluster's own pods without one. policy: cosSim, fragOnePod or
    fragMultiPod. ratio: pods to move at most, as a share of all, more than 0 up to 1. typical:
    instead of those of the workload. force: also move pods without a controller.

    All chosen pods are evicted together, within PodDisruptionBudgets, then placed one by one in the
    order of the choice by the scheduler. Pods that would find no place stay. Raises InputError,
    ConfigError and ContractError.
    """
    known = [one.value for one in DeschedulingPolicy]
    if policy not in known:
        raise InputError("policy", "", repr(policy), f"one of {', '.join(known)}")
    if not 0 < ratio <= 1:
        raise InputError("ratio", "", f"{ratio:g}", "a number greater than 0, up to 1")
    cluster = cluster_of(cluster)
    deciders = deciders_for(cluster, config, plugins)
    if profile is not None:
        check_profile_of(profile, deciders.configuration)
    if typical is None:
        typical = _typical(cluster, workload, deciders)
    run = _Defragmentation(cluster, deciders, tuple(typical), profile)
    return run.plan(DeschedulingPolicy(policy), ratio, force=force)


def _typical(
    cluster: Cluster, workload: Cluster | Paths | None, deciders: Deciders
) -> list[TypicalPod]:
    conventions = conventions_of(deciders.configuration.profiles.values())
    if workload is not None:
        given = workload if isinstance(workload, Cluster) else read_workload(workload, cluster)
        return typical_of(given.pods, cluster.nodes, conventions)
    found = typical_of_configuration(deciders.configuration)
    return found or typical_of(cluster.pods, cluster.nodes, conventions)


class _Outcome(NamedTuple):
    """The cluster after the moves. homes: of the moved pods; "" for those without a place."""

    homes: Homes
    figures: CardFragmentation


class _Defragmentation:
    """One plan."""

    def __init__(
        self,
        cluster: Cluster,
        deciders: Deciders,
        typical: tuple[TypicalPod, ...],
        profile: str | None,
    ) -> None:
        self.cluster = cluster
        self.deciders = deciders
        self.profile = profile
        conventions = conventions_of(deciders.configuration.profiles.values())
        self.meter = CardFragmentationMeter(typical, conventions)
        self.bound = {pod.key: pod for pod in cluster.bound()}
        self.cards = CardsOfNodes(table_of(cluster.nodes, list(self.bound.values())), conventions)
        budgets = [one for one in cluster.objects if isinstance(one, PodDisruptionBudget)]
        self.budgets = Budgets(budgets, list(self.bound.values()))
        self.frameworks = trial_frameworks(deciders)
        if not any(map(_chooses_cards, self.frameworks.values())):
            have = "no profile with the plugin GpuShare"
            raise InputError("config", "", have, "one that has it: it chooses the cards of pods")

    def plan(self, policy: DeschedulingPolicy, ratio: float, *, force: bool) -> DefragmentPlan:
        """The plan of a policy."""
        table = table_of(self.cluster.nodes, list(self.bound.values()))
        before = self.meter.measure(table)
        if before is None:
            raise InputError("cluster", "", "no GPU cards", "nodes with GPU cards")
        kept = kept_pods(self.cards, self.budgets, force=force) | self._undecided()
        names = victims(policy, self.cards.nodes(), ratio, self.meter.typical, kept.keys())
        chosen, refused = within_budgets([self.bound[name] for name in names], self.budgets)
        kept |= refused
        outcome = self._placed_again(chosen)
        while without := [pod.key for pod in chosen if not outcome.homes[pod.key][0]]:
            kept |= {key: f"pod {key} would fit nowhere after its eviction" for key in without}
            chosen = [pod for pod in chosen if pod.key not in without]
            outcome = self._placed_again(chosen)
        moves = moves_of(chosen, self._homes(table, self.bound.keys()), outcome.homes)
        made = DefragmentPlan(
            SCHEMA,
            policy.value,
            len(self.bound),
            CardFigures.of(before),
            CardFigures.of(outcome.figures),
            moves,
            kept=tuple(KeptPod(key, kept[key]) for key in sorted(kept)),
            notes=tuple(filter(None, self._notes(moved={move.pod for move in moves}))),
        )
        if not made.lowers:
            return made
        moved = (self.bound[move.pod] for move in moves)
        return replace(made, commands=delete_commands(moved))

    def _undecided(self) -> dict[str, str]:
        """Pods that no profile with GpuShare decides, and why they stay."""
        found = {}
        for key, pod in self.bound.items():
            name = self.profile or pod.spec.scheduler_name
            framework = self.frameworks.get(name)
            if framework is None:
                found[key] = f"pod {key}: {no_profile(name)}"
            elif not _chooses_cards(framework):
                found[key] = f"profile {name!r} of pod {key} does not have the plugin GpuShare"
        return found

    def _placed_again(self, chosen: Sequence[Pod]) -> _Outcome:
        gone = {pod.key for pod in chosen}
        rest = [pod for key, pod in self.bound.items() if key not in gone]
        remaining = replace(self.cluster, pods=rest)
        run = fill_of(
            remaining,
            self.deciders.configuration,
            self.deciders.registry,
            None,
            len(chosen),
            self.deciders.gates,
        )
        for pod in chosen:
            run.place(self._successor(pod))
        table = table_of(self.cluster.nodes, list(run.cluster.pods.values()))
        figures = self.meter.measure(table)
        assert figures is not None
        homes = dict.fromkeys(gone, ("", tuple[str, ...]()))
        return _Outcome(homes | self._homes(table, gone), figures)

    def _successor(self, pod: Pod) -> Pod:
        """The pod that is created in place of an evicted one."""
        made = pending_form(pod)
        made = replace(made, metadata=replace(made.metadata, uid=f"{pod.uid}-moved"))
        if self.profile is None:
            return made
        return replace(made, spec=replace(made.spec, scheduler_name=self.profile))

    @staticmethod
    def _homes(table: NodeTable, keys: Collection[str]) -> Homes:
        cards = CardsOfNodes(table)
        return {
            info.pod.key: (
                node.name,
                tuple(name for _, name in cards.cards_of(node, info) or ()),
            )
            for node in cards.infos
            for info in node.pods
            if info.pod.key in keys
        }

    def _notes(self, moved: Collection[str]) -> list[str]:
        notes = [autoscaler_note(self.cluster.nodes)]
        if moved:
            notes.append(
                "the places are those after all pods of the plan are gone; a pod that comes back "
                "earlier may go elsewhere"
            )
        bare = sum(self.bound[key].controller is None for key in moved)
        if bare:
            what = count_of(bare, "moved pod")
            notes.append(f"{what} without a controller: create them again from their manifests")
        n_pending = len(self.cluster.pending())
        if n_pending:
            notes.append(f"{count_of(n_pending, 'pending pod')} not placed here")
        return notes


def _chooses_cards(framework: Framework) -> bool:
    return chooses_cards(framework.profile)
