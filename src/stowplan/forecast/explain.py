"""explain(): why a pod is on its node, or pending."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.extenders import extenders_of
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.config.queue_models.scheduler_hints import SESSION_SCHEDULERS, no_sessions
from stowplan.cycle.change import PodChanges
from stowplan.cycle.explanation import Explanation, SimulationOutcome, StrandedCards
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.framework import ContractError, Framework, Nominations, Snapshot
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaler_notes import autoscaler_note
from stowplan.insight.changes.search import find_changes
from stowplan.insight.gang_notes import gang_note
from stowplan.insight.gpu_fragmentation import (
    CardFragmentationMeter,
    chooses_cards,
    conventions_of,
    expected_pods,
    largest_card,
    request_of,
)
from stowplan.insight.group_members import know_cluster
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions.counted_gpus import counted_gpu_notes
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.plugins.preemption.default_preemption import AssignedPodPriorities
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenderFactory
from stowplan.simulation.pod_explanation import place_and_explain, position_of
from stowplan.simulation.scheduler_configuration import ConfigSource, deciders_for
from stowplan.simulation.simulate import assign_profile, fill_of

COMPARED_MAX = 1_000_000
"""Limit of (pods before the pod) x nodes up to which `explain` simulates by default."""


def explain(
    pod: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    after_simulation: bool = False,
    compare_max: int = COMPARED_MAX,
    changes: bool = True,
) -> Explanation:
    """Explain a pod by `NAMESPACE/NAME`, node by node.

    cluster: paths for `read_cluster`, or a Cluster. config: configuration files. plugins: classes
    or files. profile: profile used instead of the pod's schedulerName. Nominated pods count as in
    kube-scheduler. A bound pod is evaluated as if it were pending. Raises InputError, ConfigError
    and ContractError.

    A pending pod is evaluated on the cluster as given; `simulation` has the result of `simulate`,
    in which earlier pods are placed first. after_simulation: evaluate the pod at its attempt in
    that simulation. compare_max: simulate only up to this number of (earlier pods x nodes).
    changes: search the smallest changes that let a pending pod run; not with after_simulation.
    """
    cluster = cluster_of(cluster)
    found = found_pod(pod, cluster)
    deciders = deciders_for(cluster, config, plugins)
    if after_simulation:
        return _simulated(found, cluster, deciders, profile)
    explanation = _as_given(found, cluster, deciders, profile, changes=changes)
    if explanation.state != "pending" or not any(pod is found for pod in cluster.pending()):
        return explanation
    outcome = _compared(found, cluster, deciders, profile, compare_max)
    if outcome is not None and profile:
        outcome = replace(outcome, profile=profile)
    return replace(explanation, simulation=outcome)


def explain_changes(
    pod: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
) -> PodChanges:
    """The smallest changes that let a pending pod run, by `NAMESPACE/NAME`; see `explain`."""
    cluster = cluster_of(cluster)
    found = found_pod(pod, cluster)
    deciders = deciders_for(cluster, config, plugins)
    snapshot = snapshot_for(found, cluster)
    framework = framework_for(found, deciders, profile)
    know_cluster(framework, cluster.pods, snapshot.object_store)
    return find_changes(found, snapshot, framework, cluster.sources())


def framework_for(found: Pod, deciders: Deciders, profile: str | None) -> Framework:
    """The profile of a pod; raises InputError."""
    built = frameworks_for(deciders.configuration, deciders.registry, deciders.gates)
    return _framework(profile or found.spec.scheduler_name, built)


def snapshot_for(found: Pod, cluster: Cluster) -> Snapshot:
    """The cluster as given, without the pod itself."""
    table = cluster.table()
    if found.node_name and not found.is_finished:
        table.remove_pod(found.uid)
    nominated = (p for p in cluster.pending() if p.status.nominated_node_name)
    # What a running scheduler counts beside its table.
    ExistingPodTerms.of(table)
    AssignedPodPriorities.of(table)
    return Snapshot(table, cluster.object_store(), Nominations(nominated))


def _as_given(
    found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None, *, changes: bool
) -> Explanation:
    framework = framework_for(found, deciders, profile)
    snapshot = snapshot_for(found, cluster)
    know_cluster(framework, cluster.pods, snapshot.object_store)
    explanation = explain_attempt(found, snapshot, framework)
    if changes and explanation.state == "pending" and not explanation.node:
        searched = find_changes(found, snapshot, framework, cluster.sources())
        explanation = replace(
            explanation, changes=searched.changes, not_searched=searched.not_searched
        )
    explanation = replace(explanation, stranded_cards=_stranded(found, snapshot, framework))
    notes = [gang_note(found, deciders), *counted_gpu_notes([found], cluster.nodes)]
    if explanation.state == "pending" and not explanation.node:
        notes.append(autoscaler_note(cluster.nodes))
    return replace(explanation, notes=tuple(filter(None, notes))) if any(notes) else explanation


def _stranded(found: Pod, snapshot: Snapshot, framework: Framework) -> tuple[StrandedCards, ...]:
    """What is of no use of the GPU cards of each node; nothing without the plugin GpuShare."""
    if not chooses_cards(framework.profile):
        return ()
    conventions = conventions_of([framework.profile])
    typical = expected_pods(framework.profile)
    if not typical:
        largest = largest_card(snapshot.nodes.nodes, conventions)
        request = request_of(found, largest, conventions)
        typical = (TypicalPod(request.cpu_milli, request.num, request.milli, request.models, 1.0),)
    return tuple(
        StrandedCards(
            name, idle, {why: round(milli, 3) for why, milli in by_cause.items() if milli > 0}
        )
        for name, idle, by_cause in CardFragmentationMeter(typical, conventions).by_node(
            snapshot.nodes
        )
    )


def _compared(
    found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None, compare_max: int
) -> SimulationOutcome | None:
    """The outcome of a simulation, or why it was not run."""
    before = position_of(found.key, cluster.pending())
    if before * len(cluster.nodes) > compare_max:
        pods = count_of(before, "pod precedes", "pods precede")
        why = f"{pods} it, on {count_of(len(cluster.nodes), 'node')}"
        return SimulationOutcome(before, not_run=why)
    try:
        return _simulated(found, cluster, deciders, profile).simulation
    except ContractError as fault:
        # The pod itself was explained; a plugin failed on another pod.
        return SimulationOutcome(before, not_run=str(fault))


def _simulated(
    found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None
) -> Explanation:
    """The explanation from a placement run that ends with the pod."""
    if profile is not None:
        cluster = assign_profile(profile, cluster)
    configuration = deciders.configuration
    fill = fill_of(
        cluster, configuration, deciders.registry, np.random.default_rng(0), gates=deciders.gates
    )
    SimulatedExtenderFactory(extenders_of(configuration), ()).of(fill.instance)
    return place_and_explain(fill, cluster.pending(), found.key, rest=False).explanation


def found_pod(key: str, cluster: Cluster) -> Pod:
    """The pod of a cluster by key; raises InputError."""
    pod = next((p for p in cluster.pods if p.key == key), None)
    if pod is None and key in cluster.not_created:
        raise InputError.at(f"pod {key}", "not created", cluster.not_created[key])
    if pod is None:
        hint = did_you_mean(key, (p.key for p in cluster.pods))
        wanted = f"one of the cluster's {count_of(len(cluster.pods), 'pod')}"
        raise InputError(f"pod {key}", "", "no such pod", f"{wanted}; {hint}" if hint else wanted)
    return pod


def _framework(name: str, built: dict[str, Framework]) -> Framework:
    if not built:
        wanted = "a profile; what sessions decide is explained by explain_job()"
        raise InputError("config", "", "actions and tiers only", wanted)
    if name not in built:
        wanted = f"one of {', '.join(sorted(built))}"
        if name in SESSION_SCHEDULERS:
            wanted += f"; pods of {name} are decided by sessions: {no_sessions([name])}"
        raise InputError("profile", "", repr(name), wanted)
    return built[name]
