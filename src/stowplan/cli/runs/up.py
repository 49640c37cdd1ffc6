"""What `stowplan up` does: start the cluster, print its address, and run it until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from stowplan.cli.errors import CommandError, CommandFailed, print_error, reported
from stowplan.cli.record_options import RecordRequest
from stowplan.driver import logs
from stowplan.driver.local_cluster import (
    ClusterService,
    LocalCluster,
    LocalClusterSettings,
    UpError,
    run,
)
from stowplan.driver.loopback import is_loopback
from stowplan.framework.feature_gates import FeatureGates
from stowplan.inputs.counts import count_of
from stowplan.inputs.document_reader import documents
from stowplan.inputs.files import files_at
from stowplan.objects.pod import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.driver.live.scheduler_server import SchedulerServer
    from stowplan.driver.storage.recording_writer import RecordingWriter

PROBLEMS_LISTED = 10
VOLCANO, KAI = "volcano", "kai"
"""Those of `config.queue_models.queue_model_choice`."""


class SchedulerArguments(NamedTuple):
    """The options of the cluster's scheduler, by their names."""

    config_files: tuple[str, ...]
    plugin_files: tuple[str, ...]
    compat: tuple[str, ...] = ()
    feature_gates: FeatureGates | None = None


def run_up(
    settings: LocalClusterSettings,
    paths: tuple[str, ...],
    scheduler: SchedulerArguments | None,
    record: RecordRequest | None = None,
    web: str | None = None,
) -> None:
    """Run a cluster until it is stopped. scheduler: None for a cluster without one. record: of the
    scheduler. web: the value of --web, None for no page. Raises InputError, ConfigError,
    ContractError and click's exceptions."""
    if not is_loopback(settings.host):
        text = f"listening on {settings.host}: other computers can connect to this cluster"
        click.echo(f"Warning: {text}", err=True)
    with reported(UpError, by=CommandFailed):
        logs.configure_logging("text", "warning")
        if scheduler is None:
            run(settings, list(_documents(paths)), _print_started, nullcontext)
        else:
            _run_with_scheduler(settings, paths, scheduler, record, web)
    click.echo("Stopped.")


def _run_with_scheduler(
    settings: LocalClusterSettings,
    paths: tuple[str, ...],
    scheduler: SchedulerArguments,
    record: RecordRequest | None,
    web: str | None,
) -> None:
    # Imported here: as below.
    from stowplan.cli.runs.recordings.record_and_open import maybe_recording

    deciders = _deciders(scheduler)
    choice = deciders.batch.queue_model if deciders.batch is not None else None
    model = choice.model if choice is not None else ""
    settings = msgspec.structs.replace(
        settings,
        serves_volcano=model == VOLCANO,
        serves_kai=model == KAI,
        kueue=deciders.kueue,
    )
    with maybe_recording(record, "up", scheduler.plugin_files) as recorder:
        if web is None:
            service = _scheduler_service(deciders, recorder, plugin_files=scheduler.plugin_files)
            run(settings, list(_documents(paths)), _print_started, service)
            return
        from stowplan.cli.runs.pages.serve_page import print_address, serving_page

        with serving_page(web) as page:
            service = _scheduler_service(deciders, recorder, page.attach, scheduler.plugin_files)

            def started(cluster: LocalCluster) -> None:
                _print_started(cluster)
                print_address(page)

            run(settings, list(_documents(paths)), started, service)


def _scheduler_service(
    deciders: Deciders,
    recorder: RecordingWriter | None,
    on_server: Callable[[SchedulerServer], None] | None = None,
    plugin_files: tuple[str, ...] = (),
) -> ClusterService:
    # Imported here: as below.
    from stowplan.driver.local_scheduler import local_scheduler_service

    return local_scheduler_service(deciders, recorder, on_server, plugin_files)


def _deciders(scheduler: SchedulerArguments) -> Deciders:
    # Imported here: a cluster without a scheduler starts faster without these modules.
    from stowplan.driver.live.configuration_files import ConfigurationFileError, scheduler_names
    from stowplan.driver.local_scheduler import local_deciders

    with reported(ConfigurationFileError):
        deciders = local_deciders(*scheduler)
    if DEFAULT_SCHEDULER not in scheduler_names(deciders):
        text = f'no profile "{DEFAULT_SCHEDULER}": pods without schedulerName stay pending'
        click.echo(f"Warning: {text}", err=True)
    return deciders


def _documents(paths: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Location and tree of every document in the files."""
    for file in files_at(paths):
        if file.suffix == ".csv":
            raise CommandError(f"{file.source}: must be manifests in YAML or JSON, not CSV")
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            yield ": ".join(filter(None, (document.source, document.place))), document.tree


def _print_started(cluster: LocalCluster) -> None:
    """Print what was created, the address, and how to use it."""
    loading = cluster.loading
    for location, text in loading.problems[:PROBLEMS_LISTED]:
        print_error(f"{location}: {text}")
    more = len(loading.problems) - PROBLEMS_LISTED
    if more > 0:
        print_error(f"{count_of(more, 'more object')} could not be created")
    if loading.created or loading.kept:
        click.echo(f"{count_of(loading.created, 'object')} created, {loading.kept} unchanged.")
    click.echo(f"Listening on {cluster.url}. Stop with Ctrl-C.")
    click.echo(f"kubectl --kubeconfig {cluster.kubeconfig} get nodes")
