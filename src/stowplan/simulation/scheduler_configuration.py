"""Scheduler configuration as users name it: files, plugins, compat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, compat_names, deciders_of
from stowplan.config import DEFAULT_SOURCE, Configuration
from stowplan.config.session_configuration import (
    COMPAT_NAMES,
    DEFAULT_TEXT,
    KUBE_BATCH_0_5,
    is_session_configuration,
)
from stowplan.framework.feature_gates import FeatureGateError, FeatureGates, feature_gates_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.files import read_text
from stowplan.inputs.input_error import InputError
from stowplan.inputs.openb import CARDS_ADDED_UP, CARDS_COUNTED
from stowplan.inputs.plugin_sources import PluginSource, plugin_classes
from stowplan.insight.gpu_fragmentation import has_gpu_share

ConfigSource = str | Path | Iterable[str | Path]
"""A configuration file, or several: one with profiles, one with actions and tiers."""


CARDS_SOURCE = "default configuration with GpuShare"
CARDS_TEXT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: GpuShare}]}
    preScore: {disabled: [{name: GpuShare}]}
    score: {disabled: [{name: GpuShare}]}
"""
"""The default profile in which GPU cards are counted one by one: GpuShare filters and reserves, and
nodes get the scores that they get without it."""

FeatureGateSettings = Mapping[str, bool] | FeatureGates
"""Gates by name, or as they are read."""


def config_files(config: ConfigSource | None) -> tuple[str, ...]:
    """File names, in order."""
    if config is None:
        return ()
    named = [config] if isinstance(config, str | Path) else config
    return tuple(str(name) for name in named)


def read_deciders(
    config: ConfigSource | None = None,
    plugins: Iterable[PluginSource] | str | Path = (),
    compat: str | Iterable[str] = "",
    feature_gates: FeatureGateSettings | None = None,
    *,
    admits: bool = False,
) -> Deciders:
    """The deciders of files and plugins; raises InputError, ConfigError and ContractError.

    admits: whether Kueue may be chosen, which admits jobs before the deciders see their pods.

    compat: one name, "" for none, or several. With kube-batch's compat a missing file of actions
    and tiers means its default configuration; a missing file of profiles is an error.
    feature_gates: name -> enabled; None for the defaults.
    """
    compats = compat_names(compat)
    check_compat(*compats)
    gates = read_feature_gates(feature_gates)
    texts: list[ConfigText] = []
    missing: list[InputError] = []
    for file in config_files(config):
        try:
            texts.append(ConfigText(read_text(file), file))
        except InputError as unreadable:
            missing.append(unreadable)
    if missing:
        # The missing file is the session configuration if no other file has one.
        has_sessions = any(is_session_configuration(text.text) for text in texts)
        if KUBE_BATCH_0_5 not in compats or has_sessions or len(missing) > 1:
            raise missing[0]
        texts.append(ConfigText(DEFAULT_TEXT, "default configuration"))
    return deciders_of(texts, plugin_classes(plugins), compats, gates, admits=admits)


def deciders_for(
    cluster: Cluster,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] | str | Path = (),
    compat: str | Iterable[str] = "",
    feature_gates: FeatureGateSettings | None = None,
) -> Deciders:
    """The deciders of files and plugins for a cluster, see `counting_cards`; raises as
    `read_deciders`. config: Deciders have their plugins already."""
    if not isinstance(config, Deciders):
        config = read_deciders(config, plugins, compat, feature_gates)
    return counting_cards(config, cluster)


def counting_cards(deciders: Deciders, cluster: Cluster) -> Deciders:
    """The deciders; the default ones count the GPU cards of an OpenB cluster one by one. Raises
    ContractError."""
    is_default = not deciders.files and deciders.configuration.source == DEFAULT_SOURCE
    has_compat = deciders.compat or deciders.group_compat
    if CARDS_COUNTED not in cluster.notes or not is_default or has_compat:
        return deciders
    return deciders.with_file(CARDS_TEXT, CARDS_SOURCE)


def with_cards(config: object, deciders: Deciders, cluster: Cluster) -> tuple[Deciders, Cluster]:
    """The deciders, see `counting_cards`, and the cluster with a note on its GPU cards. config: as
    it was given; a Configuration is left as it is."""
    if not isinstance(config, Configuration):
        deciders = counting_cards(deciders, cluster)
    return deciders, _with_card_note(cluster, deciders)


def _with_card_note(cluster: Cluster, deciders: Deciders) -> Cluster:
    configuration = deciders.configuration
    if CARDS_COUNTED not in cluster.notes or configuration.source == CARDS_SOURCE:
        return cluster
    notes = [note for note in cluster.notes if note != CARDS_COUNTED]
    if not has_gpu_share(configuration):
        notes.append(CARDS_ADDED_UP)
    return replace(cluster, notes=notes)


def read_feature_gates(settings: FeatureGateSettings | None) -> FeatureGates:
    """The gates of settings; raises InputError."""
    if isinstance(settings, FeatureGates):
        return settings
    try:
        return feature_gates_of(settings or {})
    except FeatureGateError as problem:
        raise InputError.at("feature_gates", "", problem) from None


def check_compat(*names: str) -> None:
    """Raise InputError for an unknown compat name."""
    for name in names:
        if name in COMPAT_NAMES:
            continue
        hint = did_you_mean(name, COMPAT_NAMES)
        wanted = f"one of {', '.join(COMPAT_NAMES)}"
        raise InputError("compat", "", repr(name), f"{wanted} ({hint})" if hint else wanted)
