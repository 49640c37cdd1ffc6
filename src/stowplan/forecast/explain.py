"""explain(): why a pod of a cluster is where it is, or nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.extenders import extenders_of
from stowplan.config.session_configuration import SCHEDULER_NAMES
from stowplan.cycle.explanation import Explanation, SimulationOutcome
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.framework import ContractError, Framework, Nominations, Snapshot
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.gang_notes import LOAD_SESSIONS, gang_note
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenderFactory
from stowplan.simulation.pod_explanation import place_and_explain, position_of
from stowplan.simulation.scheduler_configuration import ConfigSource, read_deciders
from stowplan.simulation.simulate import assign_profile, fill_of

COMPARED_MAX = 1_000_000
"""Pods times nodes: with more before the pod, `explain` does not simulate what becomes of them
unless asked to."""


def explain(
    pod: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    after_simulation: bool = False,
    compare_max: int = COMPARED_MAX,
) -> Explanation:
    """Explain a pod by `NAMESPACE/NAME`, node by node.

    cluster: what `read_cluster` reads, or a Cluster. config: configuration files. plugins:
    classes or files. profile: a scheduler name that decides instead of the pod's own. Pods that
    carry a nomination count as the original counts them. A placed pod is judged as if it were to
    be placed now. Raises InputError, ConfigError and ContractError.

    A pending pod is judged on the cluster as given, and `simulation` says what `simulate` makes of
    it, whose pods before it take what there is. after_simulation: judge it on the cluster as that
    simulation has it when it comes to the pod. compare_max: without that, simulate only while
    pods before it times nodes are no more.
    """
    cluster = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod(pod, cluster)
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins)
    if after_simulation:
        return _simulated(found, cluster, deciders, profile)
    explanation = _as_given(found, cluster, deciders, profile)
    if explanation.state != "pending" or not any(pod is found for pod in cluster.pending()):
        return explanation
    outcome = _compared(found, cluster, deciders, profile, compare_max)
    if outcome is not None and profile:
        outcome = replace(outcome, profile=profile)
    return replace(explanation, simulation=outcome)


def _as_given(found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None) -> Explanation:
    built = frameworks_for(deciders.configuration, deciders.registry)
    framework = _framework(profile or found.spec.scheduler_name, built)
    table = cluster.table()
    if found.node_name and not found.is_finished:
        table.remove_pod(found.uid)
    nominated = (p for p in cluster.pending() if p.status.nominated_node_name)
    snapshot = Snapshot(table, cluster.object_store(), Nominations(nominated))
    told = explain_attempt(found, snapshot, framework)
    note = gang_note(found, deciders)
    return replace(told, notes=(note,)) if note else told


def _compared(
    found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None, compare_max: int
) -> SimulationOutcome | None:
    """What a simulation makes of the pod, or why there was none."""
    before = position_of(found.key, cluster.pending())
    if before * len(cluster.nodes) > compare_max:
        why = f"{before:,} pods come before it, on {len(cluster.nodes):,} nodes"
        return SimulationOutcome(before, not_run=why)
    try:
        return _simulated(found, cluster, deciders, profile).simulation
    except ContractError as fault:
        # The pod itself was explained: it is another one that a plugin fails on.
        return SimulationOutcome(before, not_run=str(fault))


def _simulated(
    found: Pod, cluster: Cluster, deciders: Deciders, profile: str | None
) -> Explanation:
    """The explanation from within a fill that ends with the pod."""
    if profile is not None:
        cluster = assign_profile(profile, cluster)
    configuration = deciders.configuration
    fill = fill_of(cluster, configuration, deciders.registry, np.random.default_rng(0))
    SimulatedExtenderFactory(extenders_of(configuration), ()).of(fill.instance)
    return place_and_explain(fill, cluster.pending(), found.key, rest=False).explanation


def found_pod(key: str, cluster: Cluster) -> Pod:
    """The pod of a cluster by key; raises InputError."""
    pod = next((p for p in cluster.pods if p.key == key), None)
    if pod is None and key in cluster.not_created:
        raise InputError.at(f"pod {key}", "not created", cluster.not_created[key])
    if pod is None:
        hint = did_you_mean(key, (p.key for p in cluster.pods))
        wanted = f"one of the cluster's {len(cluster.pods)} pods"
        raise InputError(f"pod {key}", "", "no such pod", f"{wanted}; {hint}" if hint else wanted)
    return pod


def _framework(name: str, built: dict[str, Framework]) -> Framework:
    if not built:
        wanted = "a profile; what sessions decide is explained by explain_job()"
        raise InputError("config", "", "actions and tiers only", wanted)
    if name not in built:
        wanted = f"one of {', '.join(sorted(built))}"
        if name in SCHEDULER_NAMES:
            wanted += f"; pods of {name} are decided by sessions: {LOAD_SESSIONS}"
        raise InputError("profile", "", repr(name), wanted)
    return built[name]
