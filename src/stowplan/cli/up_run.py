"""What `stowplan up` does: start the cluster, say where it is, and wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import click

from stowplan.driver import logs
from stowplan.driver.local_cluster import Beside, Running, Settings, UpError, is_loopback, run
from stowplan.objects.pod import DEFAULT_SCHEDULER
from stowplan.sim.documents import documents
from stowplan.sim.files import files_at
from stowplan.sim.input_error import InputError

PROBLEMS_SHOWN = 10

Files = tuple[tuple[str, ...], tuple[str, ...]]
"""Of configurations, and of plugins."""


def started(settings: Settings, paths: tuple[str, ...], scheduler: Files | None) -> None:
    """Run a cluster until it is stopped. scheduler: by what files pods are decided, None for by
    nobody. Raises InputError, ConfigError, ContractError and click's exceptions."""
    if not is_loopback(settings.host):
        click.echo(f"Listening on {settings.host}: others can reach this cluster.", err=True)
    try:
        logs.set_up("text", "warning")
        beside = nullcontext if scheduler is None else _beside(*scheduler)
        run(settings, list(_documents(paths)), _tell, beside)
    except UpError as problem:
        raise click.ClickException(str(problem)) from None
    click.echo("Stopped.")


def _beside(config_files: tuple[str, ...], plugin_files: tuple[str, ...]) -> Beside:
    # Imported here: a cluster without a scheduler does without all that schedulers need.
    from stowplan.driver.scheduling import FileError, scheduler_names
    from stowplan.driver.up_scheduler import deciders_of_up, scheduling_by

    try:
        deciders = deciders_of_up(config_files, plugin_files)
    except FileError as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    if DEFAULT_SCHEDULER not in scheduler_names(deciders):
        text = f"no profile is named {DEFAULT_SCHEDULER}: pods that name no scheduler stay pending"
        click.echo(f"Warning: {text}", err=True)
    return scheduling_by(deciders)


def _documents(paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Place and tree of every document in the files."""
    for file in files_at(paths):
        if file.suffix == ".csv":
            raise InputError(file.source, "", "a CSV file", "manifests in YAML or JSON")
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            yield ": ".join(filter(None, (document.source, document.place))), document.tree


def _tell(cluster: Running) -> None:
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
