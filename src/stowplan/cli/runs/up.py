"""What `stowplan up` does: start the cluster, say where it is, and wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import click

from stowplan.driver import logs
from stowplan.driver.local_cluster import (
    ClusterService,
    LocalCluster,
    LocalClusterSettings,
    UpError,
    run,
)
from stowplan.driver.loopback import is_loopback
from stowplan.inputs.document_reader import documents
from stowplan.inputs.files import files_at
from stowplan.inputs.input_error import InputError
from stowplan.objects.pod import DEFAULT_SCHEDULER

PROBLEMS_SHOWN = 10

Files = tuple[tuple[str, ...], tuple[str, ...]]
"""Of configurations, and of plugins."""


def run_up(settings: LocalClusterSettings, paths: tuple[str, ...], scheduler: Files | None) -> None:
    """Run a cluster until it is stopped. scheduler: by what files pods are decided, None for by
    nobody. Raises InputError, ConfigError, ContractError and click's exceptions."""
    if not is_loopback(settings.host):
        click.echo(f"Listening on {settings.host}: others can reach this cluster.", err=True)
    try:
        logs.configure_logging("text", "warning")
        service = nullcontext if scheduler is None else _scheduler_service(*scheduler)
        run(settings, list(_documents(paths)), _print_started, service)
    except UpError as problem:
        raise click.ClickException(str(problem)) from None
    click.echo("Stopped.")


def _scheduler_service(
    config_files: tuple[str, ...], plugin_files: tuple[str, ...]
) -> ClusterService:
    # Imported here: a cluster without a scheduler does without all that schedulers need.
    from stowplan.driver.live.configuration_files import ConfigurationFileError, scheduler_names
    from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service

    try:
        deciders = local_deciders(config_files, plugin_files)
    except ConfigurationFileError as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    if DEFAULT_SCHEDULER not in scheduler_names(deciders):
        text = f"no profile is named {DEFAULT_SCHEDULER}: pods that name no scheduler stay pending"
        click.echo(f"Warning: {text}", err=True)
    return local_scheduler_service(deciders)


def _documents(paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Place and tree of every document in the files."""
    for file in files_at(paths):
        if file.suffix == ".csv":
            raise InputError(file.source, "", "a CSV file", "manifests in YAML or JSON")
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            yield ": ".join(filter(None, (document.source, document.place))), document.tree


def _print_started(cluster: LocalCluster) -> None:
    """What was loaded, and what to type."""
    loaded = cluster.loading
    for place, text in loaded.problems[:PROBLEMS_SHOWN]:
        click.echo(f"{place}: {text}", err=True)
    more = len(loaded.problems) - PROBLEMS_SHOWN
    if more > 0:
        click.echo(f"and {more} more that could not be created", err=True)
    if loaded.created or loaded.kept:
        click.echo(f"Created {loaded.created} objects, {loaded.kept} were there.")
    click.echo(f"Listening on {cluster.url}. Stop with Ctrl-C.")
    click.echo(f"kubectl --kubeconfig {cluster.kubeconfig} get nodes")
