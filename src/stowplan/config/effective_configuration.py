"""The effective configuration, as the tree of a complete configuration file.

Reading the tree gives the same profiles. It disables multiPoint and lists every plugin at every
extension point, so that nothing depends on defaults.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from stowplan.config import policy as policies
from stowplan.config import session_configuration as batches
from stowplan.config.kube_scheduler import KIND
from stowplan.config.model import Configuration, Extender
from stowplan.config.plugin_args import API_VERSION, has_arguments
from stowplan.config.plugin_sets import ALL, MULTI_POINT
from stowplan.config.policy_document import ExtenderConfig, PredicatePolicy, PriorityPolicy
from stowplan.config.policy_profile import Policy
from stowplan.config.strict_decoder import encode
from stowplan.framework.profile import PluginUse, Profile

REDACTED = "REDACTED"
"""Replaces a private key in the output: base64, so that the tree can still be read."""


def effective(configuration: Configuration) -> dict[str, Any]:
    """The effective configuration as a tree, for printing: private keys are replaced."""
    tree = _configuration_tree(configuration)
    for extender in tree.get("extenders", ()):
        if extender.get("tlsConfig", {}).get("keyData"):
            extender["tlsConfig"]["keyData"] = REDACTED
    return tree


def digest(configuration: Configuration) -> str:
    """SHA-256 (hex) of the effective configuration; the same for all equivalent files."""
    text = msgspec.json.encode(_configuration_tree(configuration), order="sorted")
    return hashlib.sha256(text).hexdigest()


def _configuration_tree(c: Configuration) -> dict[str, Any]:
    if c.batch is not None and not c.profiles:
        return batches.configuration_tree(c.batch)
    block = {} if c.batch is None else {batches.OPTIONS: batches.configuration_block(c.batch)}
    if c.policy is not None:
        return _policy(c.policy) | block
    percentage = c.percentage_of_nodes_to_score
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "parallelism": c.parallelism,
        "leaderElection": encode(c.leader_election),
        "clientConnection": encode(c.client_connection),
        "enableProfiling": c.enable_profiling,
        "enableContentionProfiling": c.enable_contention_profiling,
        **({} if percentage is None else {"percentageOfNodesToScore": percentage}),
        "podInitialBackoffSeconds": c.pod_initial_backoff_seconds,
        "podMaxBackoffSeconds": c.pod_max_backoff_seconds,
        "delayCacheUntilActive": c.delay_cache_until_active,
        "profiles": [_profile(profile) for profile in c.profiles.values()],
        "extenders": [_extender_tree(extender) for extender in c.extenders],
        **block,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    predicates = (PredicatePolicy(p.name, p.argument) for p in policy.predicates)
    priorities = (PriorityPolicy(p.name, p.weight, p.argument) for p in policy.priorities)
    return {
        "apiVersion": policies.API_VERSION,
        "kind": policies.KIND,
        "predicates": [encode(predicate) for predicate in predicates],
        "priorities": [encode(priority) for priority in priorities],
        "extenders": [_extender_tree(ExtenderConfig.of(extender)) for extender in policy.extenders],
        "hardPodAffinitySymmetricWeight": policy.hard_pod_affinity_weight,
        "alwaysCheckAllPredicates": policy.checks_all_filters,
    }


def _profile(profile: Profile) -> dict[str, Any]:
    percentage = profile.percentage_of_nodes_to_score
    plugins: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": ALL}]}}
    for point, uses in profile.points.items():
        plugins[point] = {"enabled": [_entry(use, point) for use in uses]}
    return {
        "schedulerName": profile.scheduler_name,
        **({} if percentage is None else {"percentageOfNodesToScore": percentage}),
        "plugins": plugins,
        "pluginConfig": [
            {"name": name, "args": encode(profile.args[name])}
            for name in sorted(profile.args)
            if has_arguments(profile.args[name])
        ],
    }


def _entry(use: PluginUse, point: str) -> dict[str, Any]:
    return {"name": use.name, "weight": use.weight} if point == "score" else {"name": use.name}


def _extender_tree(extender: Extender | ExtenderConfig) -> dict[str, Any]:
    tree: dict[str, Any] = encode(extender)
    # Empty values are left out, except weights and switches.
    return {key: value for key, value in tree.items() if value not in ("", [])}
