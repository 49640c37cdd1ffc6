"""Settings of Volcano without effect here: accepted, with a warning.

Each text describes what Volcano does, so that the warning tells what is missing.

Source: volcano v1.15, pkg/scheduler/conf/scheduler_conf.go, actions/factory.go, plugins/factory.go.
"""

from __future__ import annotations

from collections.abc import Mapping

ACTIONS: Mapping[str, str] = {
    "enqueue": "admit PodGroups whose minResources fit before their pods are looked at; here all "
    "PodGroups are looked at in every session",
    "gangpreempt": "preempt whole gangs within a queue; `preempt` does so pod by pod",
    "gangreclaim": "reclaim whole gangs from other queues; `reclaim` does so pod by pod",
    "shuffle": "evict pods that plugins such as rescheduling and tdm choose",
    "elect": "choose a job to reserve nodes for",
    "reserve": "reserve nodes for the elected job",
}
"""Action -> its effect in Volcano."""

PLUGINS: Mapping[str, str] = {
    "binpack": "score the nodes highest that have the most of the requested resources in use; here "
    "nodeorder's scores alone choose",
    "capacity": "order queues by deserved, capability, guarantee and parent; here capability is "
    "always enforced, and proportion shares by weight",
    "cdp": "protect pods that have started lately from eviction",
    "deviceshare": "share GPUs between pods (volcano.sh/gpu-memory, volcano.sh/vgpu-number)",
    "extender": "ask a scheduler extender over HTTP",
    "network-topology-aware": "place gangs close together in the network (HyperNode)",
    "nodegroup": "keep queues to groups of nodes (spec.affinity of a Queue)",
    "numa-aware": "choose nodes and NUMA cells by the pod's NUMA topology policy",
    "overcommit": "let `enqueue` admit PodGroups for up to overcommit-factor times the cluster",
    "pdb": "spare pods that a PodDisruptionBudget protects",
    "quota": "enforce quotas of queues and of their parents",
    "rescheduling": "have `shuffle` evict pods from nodes with low utilization",
    "resource-strategy-fit": "score nodes by a strategy per resource (sra.weight)",
    "resourcequota": "let `enqueue` admit PodGroups for which the ResourceQuota has room",
    "sla": "put jobs first that have waited for longer than sla-waiting-time",
    "task-topology": "place tasks of a job together or apart (volcano.sh/task-topology-affinity)",
    "tdm": "use revocable nodes in their time windows",
    "usage": "filter and score nodes by measured load",
}
"""Plugin -> its effect in Volcano."""

SWITCHES: Mapping[str, str] = {
    "enableHierarchy": "share between queues by their hierarchy; here queues are flat",
    "enablePreemptive": "ask the plugin which queues may reclaim",
    "enableBestNode": "let the plugin choose among nodes of equal score",
    "enableTargetJob": "let the plugin choose the job to reserve nodes for",
    "enableReservedNodes": "let the plugin reserve nodes",
    "enableJobEnqueued": "let the plugin count the jobs that `enqueue` admits",
    "enableJobStarving": "let the plugin say which jobs may preempt",
    "enabledAllocatable": "let the plugin refuse pods of a queue; here capability always holds",
    "enabledClusterOrder": "let the plugin order clusters",
    "enabledHyperNodeGradient": "let the plugin try HyperNodes in steps",
    "enabledHyperNodeOrder": "let the plugin order HyperNodes",
    "enabledOverused": "let the plugin say which queues are overused",
    "enabledSubJobOrder": "let the plugin order subgroups of a job",
    "enabledSubJobPipelined": "let the plugin say which subgroups of a job wait for room",
    "enabledSubJobReady": "let the plugin say which subgroups of a job are ready",
    "enabledVictim": "let the plugin choose the pods that `shuffle` evicts",
}
"""Switch of a plugin -> its effect in Volcano."""

FIELDS: Mapping[str, str] = {
    "configurations": "give arguments to actions",
    "metrics": "read measured load from a metrics server",
}
"""Top-level field -> its effect in Volcano."""

_WEIGHT = "weigh this score; here it weighs what kube-scheduler's default profile has it weigh"
_FILTER = "turn this filter on or off; here the filters of kube-scheduler's default profile hold"

ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "nodeorder": dict.fromkeys(
        (
            "imagelocality.weight", "mostrequested.weight", "podtopologyspread.weight",
            "selectorspread.weight", "tainttoleration.weight", "volumebinding.weight",
        ),
        _WEIGHT,
    ),
    "predicates": dict.fromkeys(
        (
            "predicate.DynamicResourceAllocationEnable", "predicate.GPUNumberEnable",
            "predicate.GPUSharingEnable", "predicate.NodeAffinityEnable",
            "predicate.NodePortsEnable", "predicate.NodeVolumeLimitsEnable",
            "predicate.PodAffinityEnable", "predicate.PodTopologySpreadEnable",
            "predicate.ProportionalEnable", "predicate.TaintTolerationEnable",
            "predicate.VolumeBindingEnable", "predicate.VolumeZoneEnable",
        ),
        _FILTER,
    )
    | {"predicate.CacheEnable": "keep what predicates answer; here that is always done"},
}  # fmt: skip
"""Supported plugin -> argument -> its effect in Volcano."""

_OPEN = {"predicates": ("predicate.resources", "volumebinding.", "dynamicresources.")}
"""Supported plugin -> prefix of further arguments."""


def argument(plugin: str, name: str) -> str:
    """Effect in Volcano of an argument of a supported plugin, "" for an unknown one."""
    known = ARGUMENTS.get(plugin, {}).get(name)
    if known is not None:
        return known
    is_open = any(name.startswith(start) for start in _OPEN.get(plugin, ()))
    return "configure a filter" if is_open else ""
