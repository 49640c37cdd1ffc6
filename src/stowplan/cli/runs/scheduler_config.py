"""The scheduler configuration that a command uses: its files, or kube-batch's default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import ValidationError
from msgspec.structs import replace

from stowplan.assembly.deciders import (
    MODEL_OF_COMPAT,
    ConfigText,
    Deciders,
    compat_names,
    deciders_of,
)
from stowplan.cli.errors import reported
from stowplan.config.queue_models.queue_model_choice import KUEUE
from stowplan.config.session_configuration import DEFAULT_TEXT
from stowplan.framework import ConfigError, ContractError
from stowplan.framework.feature_gates import FeatureGateError, FeatureGates
from stowplan.inputs.plugin_sources import plugin_classes
from stowplan.simulation.scheduler_configuration import check_compat, read_deciders

if TYPE_CHECKING:
    from stowplan.cli.runs.cluster_source import ClusterSource


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
    source: ClusterSource,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | tuple[str, ...] | None = None,
    gates: FeatureGates | None = None,
    *,
    admits: bool = False,
) -> Deciders:
    """The scheduler that answers about a cluster: what the options name, else that of the recording
    or that of `stowplan up`, else the default one. Raises as `read_command_deciders`, and
    CommandError."""
    if source.record_file is not None and not config_files:
        # Imported here: only questions about recordings need it.
        from stowplan.cli.runs.recordings.record_and_open import deciders_of_recording

        return deciders_of_recording(source.record_file, plugin_files)
    if not (config_files or plugin_files or compat or gates is not None):
        running = running_deciders(source)
        if running is not None and running.kueue is not None and not admits:
            return scheduler_behind(running)
        if running is not None:
            return running
    return read_command_deciders(config_files, plugin_files, compat, gates, admits=admits)


def read_profile_deciders(
    source: ClusterSource,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | tuple[str, ...] | None,
    *,
    profile: str | None,
    admits: bool,
) -> Deciders:
    """As `read_asked_deciders`, where a profile may be named: then the default scheduler where the
    one of `stowplan up` has sessions only."""
    asked = config_files, plugin_files, compat
    found = read_asked_deciders(source, *asked, admits=admits)
    if not profile or any(asked) or found.configuration.profiles:
        return found
    return read_command_deciders(*asked)


def running_deciders(source: ClusterSource) -> Deciders | None:
    """What the scheduler of a `stowplan up` cluster decides by; None for its default, for other
    clusters, and with a warning where it cannot be read. Raises CommandError."""
    if not source.is_live:
        return None
    # Imported here: only questions about live clusters need it.
    from stowplan.assembly.running_configuration import deciders_of_running
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.client.one_shot_requests import ServerUnreachable
    from stowplan.driver.status_address import published_configuration

    with reported(CredentialError):
        client_config = load_client_config(source.kubeconfig, source.context)
        try:
            tree = published_configuration(client_config)
            return None if tree is None else deciders_of_running(tree)
        except (
            ServerUnreachable, ConfigError, ContractError, FeatureGateError, ValidationError
        ) as problem:  # fmt: skip
            text = "the configuration of the running scheduler cannot be read"
            click.echo(f"Warning: {text} (name it with --config): {problem}", err=True)
            return None


def scheduler_behind(deciders: Deciders) -> Deciders:
    """The scheduler that decides about what Kueue admits, with a note on standard error."""
    click.echo("Note: this is the scheduler's answer: Kueue admits no jobs in it", err=True)
    return without_kueue(deciders)


def without_kueue(deciders: Deciders) -> Deciders:
    """The same scheduler, with nothing in front of it."""
    return deciders if deciders.kueue is None else replace(deciders, kueue=None)


def read_queue_deciders(
    source: ClusterSource,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: tuple[str, ...],
) -> Deciders:
    """The scheduler whose queues are shown: what the options name, else that of `stowplan up`
    where it has queues, else kube-batch's default sessions. Raises as `read_command_deciders`."""
    if config_files or _chooses_queue_model(compat):
        return read_command_deciders(config_files, plugin_files, compat, admits=True)
    running = None if plugin_files or compat else running_deciders(source)
    if running is not None and (running.batch is not None or running.kueue is not None):
        return running
    return default_session_deciders(plugin_files, compat)


def _chooses_queue_model(compat: tuple[str, ...]) -> bool:
    """True where --compat alone has another scheduler's queues decide, by its own defaults."""
    return any(name == KUEUE or name in MODEL_OF_COMPAT for name in compat)


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
