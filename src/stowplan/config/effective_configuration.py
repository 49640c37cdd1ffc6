"""The effective configuration, as the tree of a complete configuration file.

Reading the tree gives the same profiles. It disables multiPoint and lists every plugin at every
extension point, so that nothing depends on defaults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stowplan.config import policy as policies
from stowplan.config import session_configuration as batches
from stowplan.config.batch_options import BatchOptions
from stowplan.config.kube_scheduler import KIND
from stowplan.config.model import Configuration, Extender
from stowplan.config.plugin_args import API_VERSION, has_arguments
from stowplan.config.plugin_sets import ALL, MULTI_POINT
from stowplan.config.policy_document import ExtenderConfig, PredicatePolicy, PriorityPolicy
from stowplan.config.policy_profile import Policy
from stowplan.config.queue_models.kai_configuration import complete_kai
from stowplan.config.queue_models.queue_model_choice import (
    KAI,
    KUBE_BATCH,
    SCHEDULER,
    VOLCANO,
    has_parts_of_volcano,
)
from stowplan.config.queue_models.volcano_configuration import complete_volcano
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
        return session_tree(c.batch)
    block = {} if c.batch is None else {batches.OPTIONS: _session_block(c.batch)}
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


_COMPLETE: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    KAI: complete_kai,
    VOLCANO: complete_volcano,
}
"""Queue model -> its file with the actions and tiers that are in force."""


def session_tree(configuration: batches.BatchConfiguration) -> dict[str, Any]:
    """The tree of a file: actions, tiers with the switches that are off, and all options."""
    return {**_what(configuration), batches.OPTIONS: _options(configuration)}


def _session_block(configuration: batches.BatchConfiguration) -> dict[str, Any]:
    """Same, as the block `batch` of another document."""
    return {**_options(configuration), **_what(configuration)}


def _options(configuration: batches.BatchConfiguration) -> dict[str, Any]:
    names = configuration.scheduler_names
    options = BatchOptions(
        names[0] if len(names) == 1 else None,
        names if len(names) > 1 else None,
        timedelta(seconds=configuration.period_s),
        configuration.default_queue,
        configuration.uses_priority_classes,
        configuration.bind_failures_max,
        configuration.bind_failure_policy,
    )
    tree: dict[str, Any] = encode(options)
    return {key: value for key, value in tree.items() if value is not None}


def _what(configuration: batches.BatchConfiguration) -> dict[str, Any]:
    if configuration.queue_model is not None:
        model = configuration.queue_model
        return {SCHEDULER: model.model, **_COMPLETE[model.model](model.tree)}
    tree: dict[str, Any] = {"actions": ", ".join(configuration.actions)}
    if configuration.tiers is not None:
        tree["tiers"] = [
            {"plugins": [_session_plugin(policy) for policy in tier]}
            for tier in configuration.tiers
        ]
    if configuration.action_arguments:
        tree[batches.CONFIGURATIONS] = [
            {"name": name, "arguments": dict(arguments)}
            for name, arguments in configuration.action_arguments.items()
        ]
    return {SCHEDULER: KUBE_BATCH, **tree} if has_parts_of_volcano(tree) else tree


def _session_plugin(policy: batches.PluginOption) -> dict[str, Any]:
    tree: dict[str, Any] = {"name": policy.name} | dict.fromkeys(policy.disabled, False)
    return tree | ({"arguments": dict(policy.arguments)} if policy.arguments else {})
