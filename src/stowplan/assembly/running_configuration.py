"""What a running scheduler decides by, as its status server shows it and commands read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.config import DEFAULT_SOURCE
from stowplan.framework.feature_gates import changed_gates, feature_gates_of

CONFIGURATION, OPTIONS = "kubescheduler.config.k8s.io", "stowplan.dev"
"""Keys of the tree: the configuration, as kube-scheduler names it, and the rest."""


class RunningOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What decides beside the configuration.

    source: name of the file of the configuration. compat: values of `--compat` of sessions and pod
    groups. feature_gates: those that differ from their defaults. plugin_files: absolute paths.
    kueue: options of Kueue's admission; None where nothing is admitted.
    """

    source: str = DEFAULT_SOURCE
    compat: tuple[str, ...] = ()
    feature_gates: dict[str, bool] = {}
    plugin_files: tuple[str, ...] = ()
    kueue: KueueOptions | None = None


def running_configuration(
    deciders: Deciders, configuration: dict[str, Any], plugin_files: Sequence[str] = ()
) -> dict[str, Any]:
    """The tree of what decides. configuration: the effective one, see `effective`."""
    names = deciders.compat, deciders.group_compat, deciders.model_compat
    options = RunningOptions(
        deciders.configuration.source,
        tuple(filter(None, names)),
        changed_gates(deciders.gates),
        tuple(plugin_files),
        deciders.kueue,
    )
    return {CONFIGURATION: configuration, OPTIONS: msgspec.to_builtins(options)}


def deciders_of_running(tree: dict[str, Any]) -> Deciders | None:
    """The deciders of a tree; None for the default configuration. Raises ConfigError,
    ContractError, FeatureGateError and msgspec's ValidationError."""
    options = msgspec.convert(tree.get(OPTIONS, {}), RunningOptions)
    if options == RunningOptions():
        return None
    text = msgspec.json.encode(tree.get(CONFIGURATION, {}))
    plugins = [plugin for file in options.plugin_files for plugin in plugins_of_file(file)]
    gates = feature_gates_of(options.feature_gates)
    found = deciders_of([ConfigText(text, options.source)], plugins, options.compat, gates)
    return msgspec.structs.replace(found, kueue=options.kueue)
