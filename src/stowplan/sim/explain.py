"""explain(): why a pod of a cluster is where it is, or nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.cycle.explanation import Explanation
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.framework import Framework, Nominations, Snapshot
from stowplan.framework.problems import did_you_mean
from stowplan.objects.pod import Pod
from stowplan.sim.cluster import Cluster, read_cluster
from stowplan.sim.deciders import ConfigSource, read_deciders
from stowplan.sim.input_error import InputError
from stowplan.sim.plugins import PluginSource


def explain(
    pod: str,
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
) -> Explanation:
    """Explain a pod by `NAMESPACE/NAME`, node by node.

    cluster: what `read_cluster` reads, or a Cluster. config: configuration files. plugins:
    classes or files. profile: a scheduler name that decides instead of the pod's own. Pods that
    carry a nomination count as the original counts them. A placed pod is judged as if it were to
    be placed now. Raises InputError, ConfigError and ContractError.
    """
    world = cluster if isinstance(cluster, Cluster) else read_cluster(cluster)
    found = found_pod(pod, world)
    deciders = config if isinstance(config, Deciders) else read_deciders(config, plugins)
    built = frameworks_for(deciders.configuration, deciders.registry)
    framework = _framework(profile or found.spec.scheduler_name, built)
    table = world.table()
    if found.node_name and not found.is_finished:
        table.remove_pod(found.uid)
    nominated = (p for p in world.pending() if p.status.nominated_node_name)
    snapshot = Snapshot(table, world.world(), Nominations(nominated))
    return explain_attempt(found, snapshot, framework)


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
        raise InputError("profile", "", repr(name), f"one of {', '.join(sorted(built))}")
    return built[name]
