"""Scheduler configuration as users name it: files, plugins, compat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from stowplan.assembly.deciders import ConfigText, Deciders, compat_names, deciders_of
from stowplan.config.session_configuration import (
    COMPAT_NAMES,
    DEFAULT_TEXT,
    KUBE_BATCH_0_5,
    is_session_configuration,
)
from stowplan.framework.feature_gates import FeatureGateError, FeatureGates, feature_gates_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.files import read_text
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource, plugin_classes

ConfigSource = str | Path | Iterable[str | Path]
"""A configuration file, or several: one with profiles, one with actions and tiers."""


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
) -> Deciders:
    """The deciders of files and plugins; raises InputError, ConfigError and ContractError.

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
    return deciders_of(texts, plugin_classes(plugins), compats, gates)


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
