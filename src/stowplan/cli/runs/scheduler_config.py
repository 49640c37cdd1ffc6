"""The scheduler configuration that a command uses: its files, or kube-batch's default."""

from __future__ import annotations

from pathlib import Path

import click

from stowplan.assembly.deciders import (
    MODEL_OF_COMPAT,
    ConfigText,
    Deciders,
    compat_names,
    deciders_of,
)
from stowplan.config.queue_models.queue_model_choice import KUEUE
from stowplan.config.session_configuration import DEFAULT_TEXT
from stowplan.framework.feature_gates import FeatureGates
from stowplan.inputs.plugin_sources import plugin_classes
from stowplan.simulation.scheduler_configuration import check_compat, read_deciders


def read_command_deciders(
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | tuple[str, ...] | None,
    feature_gates: FeatureGates | None = None,
    *,
    admits: bool = False,
) -> Deciders:
    """What --config, --plugin, --compat and --feature-gates amount to; settings without effect are
    warned about. admits: see `read_deciders`.

    Raises InputError, ConfigError and ContractError.
    """
    deciders = read_deciders(config_files, plugin_files, compat or "", feature_gates, admits=admits)
    batch = deciders.batch
    if batch is not None:
        for warning in batch.warnings:
            click.echo(f"Warning: {batch.source}: {warning}", err=True)
    for text in () if deciders.kueue is None else deciders.kueue.warnings:
        click.echo(f"Warning: configuration of Kueue: {text}", err=True)
    return deciders


def read_asked_deciders(
    record_file: Path | None,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | tuple[str, ...] | None = None,
    gates: FeatureGates | None = None,
    *,
    admits: bool = False,
) -> Deciders:
    """The scheduler that answers about a cluster: --config, else that of the recording, else the
    default one. Raises as `read_command_deciders`, and CommandError."""
    if record_file is None or config_files:
        return read_command_deciders(config_files, plugin_files, compat, gates, admits=admits)
    # Imported here: only questions about recordings need it.
    from stowplan.cli.runs.recordings.record_and_open import deciders_of_recording

    return deciders_of_recording(record_file, plugin_files)


def chooses_queue_model(compat: str | tuple[str, ...] | None) -> bool:
    """True where --compat alone has another scheduler's queues decide, by its own defaults."""
    return any(name == KUEUE or name in MODEL_OF_COMPAT for name in compat_names(compat or ""))


def default_session_deciders(
    plugin_files: tuple[str, ...], compat: str | tuple[str, ...]
) -> Deciders:
    """Sessions by kube-batch's own default configuration."""
    check_compat(*compat_names(compat))
    return deciders_of(
        [ConfigText(DEFAULT_TEXT, "default configuration")],
        plugin_classes(plugin_files),
        compat,
    )
