"""Scheduler configuration as users name it: files, plugins, compat."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.config.session_configuration import COMPATS, DEFAULT_TEXT, is_session_configuration
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.files import read_text
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource, plugin_classes

ConfigSource = str | Path | Iterable[str | Path]
"""A configuration file, or several: one with profiles, one with actions and tiers."""


def config_files(config: ConfigSource | None) -> tuple[str, ...]:
    """File names, in order."""
    if config is None:
        return ()
    named = [config] if isinstance(config, str | Path) else config
    return tuple(str(name) for name in named)


def read_deciders(
    config: ConfigSource | None = None,
    plugins: Iterable[PluginSource] | str | Path = (),
    compat: str = "",
) -> Deciders:
    """The deciders of files and plugins; raises InputError, ConfigError and ContractError.

    compat: "" for none. With kube-batch's compat a missing file of actions and tiers means its
    default configuration; a missing file of profiles is an error.
    """
    check_compat(compat)
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
        if not compat or has_sessions or len(missing) > 1:
            raise missing[0]
        texts.append(ConfigText(DEFAULT_TEXT, "default configuration"))
    return deciders_of(texts, plugin_classes(plugins), compat)


def check_compat(name: str) -> None:
    """Raise InputError for an unknown compat name; "" stands for none."""
    if name and name not in COMPATS:
        hint = did_you_mean(name, COMPATS)
        wanted = f"one of {', '.join(COMPATS)}"
        raise InputError("compat", "", repr(name), f"{wanted} ({hint})" if hint else wanted)
