"""Volcano's cases: runs one session on the cluster of a case."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from stowplan.assembly.sessions.volcano_rules import FrameworkPodRules
from stowplan.assembly.sessions.volcano_sessions import (
    VOLCANO_PLUGINS,
    run_actions,
    volcano_options,
)
from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode, resolved
from stowplan.batch.queue_models.volcano.volcano_defects import ALL_DEFECTS
from stowplan.batch.queue_models.volcano.volcano_objects import VolcanoObjects, cluster_of
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions, VolcanoPluginOption
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.columns.nodetable import table_of
from stowplan.config.queue_models.volcano_configuration import parse_volcano
from stowplan.config.session_configuration import VOLCANO_1_15
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.conformance.queue_models.vgpu_cases import answer_cards
from stowplan.conformance.queue_models.volcano_facts import (
    node_fits,
    node_scores,
    outcome,
    session_facts,
)
from stowplan.framework import ObjectStore, Snapshot
from stowplan.objects import storage, workload
from stowplan.objects.devices import device
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue

Answer = dict[str, Any]

NOW = datetime.datetime(2026, 8, 20, 12, tzinfo=datetime.UTC).timestamp()
NOON = 12 * 60


class HyperNodeTreeCase(Value, frozen=True, gc=True):
    """`hyperNodeTree` of a case."""

    nodes: dict[str, tuple[str, ...]] = {}
    tiers: dict[str, int] = {}
    parents: dict[str, str] = {}
    tier_names: dict[str, Any] = {}


class VolcanoCaseCluster(Value, frozen=True, gc=True):
    """`cluster` of a case."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[workload.PriorityClass, ...] = ()
    persistent_volumes: tuple[storage.PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[storage.PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[storage.StorageClass, ...] = ()
    resource_slices: tuple[device.ResourceSlice, ...] = ()
    device_classes: tuple[device.DeviceClass, ...] = ()
    hyper_nodes: tuple[dict[str, Any], ...] = ()
    hyper_node_tree: HyperNodeTreeCase | None = None
    resource_claims: tuple[dict[str, Any], ...] = ()


def answer(case: QueueModelCase, compat: str = "") -> Answer:
    """The answer to one case. compat: VOLCANO_1_15, or "" for sessions without its defects."""
    mends = frozenset[str]() if compat == VOLCANO_1_15 else ALL_DEFECTS
    if case.area == "vgpu":
        return answer_cards(case, mends)
    cluster = msgspec.convert(case.cluster, VolcanoCaseCluster)
    pods = [pod for pod in cluster.pods if not pod.is_finished]
    table = table_of(cluster.nodes, (pod for pod in pods if pod.node_name))
    store = ObjectStore((
        *cluster.persistent_volumes, *cluster.persistent_volume_claims, *cluster.storage_classes,
        *cluster.resource_slices, *cluster.device_classes,
    ))  # fmt: skip
    objects = VolcanoObjects(
        pods=cluster.pods,
        groups=cluster.pod_groups,
        queues=cluster.queues,
        priority_classes=cluster.priority_classes,
        hyper_nodes=_hyper_nodes(cluster),
        device_requests=_device_requests(cluster),
        now=NOW,
        time_of_day=NOON,
    )
    rules = FrameworkPodRules(Snapshot(table, store))
    session = VolcanoSession(
        cluster_of(table, objects), _options(case.config, mends), rules, VOLCANO_PLUGINS
    )
    result: Answer = {"scores": node_scores(session), "fits": node_fits(session)}
    before = session_facts(session, suffix="Open")
    run_actions(session)
    after = session_facts(session, suffix="")
    return {**result, "sessions": [{**outcome(session), **before, **after}]}


def _options(config: dict[str, Any] | str, mends: frozenset[str]) -> VolcanoOptions:
    if isinstance(config, str):
        return volcano_options(parse_volcano(config, "config"), mends)
    tiers = tuple(
        tuple(
            VolcanoPluginOption(
                entry["name"], frozenset(entry.get("enabled", ())), entry.get("arguments") or {}
            )
            for entry in tier["plugins"]
        )
        for tier in config["tiers"]
    )
    stated = {
        entry["name"]: entry.get("arguments") or {} for entry in config.get("configurations", ())
    }
    return VolcanoOptions(tuple(config["actions"]), tiers, stated, mends)


def _hyper_nodes(cluster: VolcanoCaseCluster) -> list[HyperNode]:
    """HyperNodes of the tree, with the parents that members of objects name."""
    tree = cluster.hyper_node_tree
    if tree is None:
        return []
    parents = {}
    for one in cluster.hyper_nodes:
        for member in one["spec"].get("members", ()):
            exact = member.get("selector", {}).get("exactMatch")
            if member.get("type") == "HyperNode" and exact:
                parents[exact["name"]] = one["metadata"]["name"]
    names = {}
    for key, value in tree.tier_names.items():
        # Either HyperNode -> name of its tier, or name -> tier.
        if isinstance(value, str):
            names[key] = value
        else:
            names |= {name: key for name, tier in tree.tiers.items() if tier == value}
    objects = {one["metadata"]["name"] for one in cluster.hyper_nodes}
    return resolved(tree.tiers, tree.nodes, parents | tree.parents, names, objects)


def _device_requests(
    cluster: VolcanoCaseCluster,
) -> dict[str, dict[str, dict[tuple[str, str], int]]]:
    """Task -> claim -> (device class, "") -> number of devices."""
    claims = {}
    for claim in cluster.resource_claims:
        amounts: dict[tuple[str, str], int] = {}
        for request in claim.get("spec", {}).get("devices", {}).get("requests", ()):
            exactly = request.get("exactly") or {}
            name = exactly.get("deviceClassName")
            if name and exactly.get("allocationMode") != "All":
                amounts[name, ""] = amounts.get((name, ""), 0) + (exactly.get("count") or 1)
        meta = claim["metadata"]
        claims[f"{meta.get('namespace', 'default')}/{meta['name']}"] = amounts
    found: dict[str, dict[str, dict[tuple[str, str], int]]] = {}
    for pod in cluster.pods:
        for one in pod.spec.resource_claims:
            key = f"{pod.namespace}/{one.resource_claim_name}"
            if claims.get(key):
                found.setdefault(pod.uid, {})[key] = claims[key]
    return found
