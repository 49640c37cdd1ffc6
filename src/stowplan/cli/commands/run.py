"""`stowplan run`: the scheduler of a live cluster."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from stowplan.cli import live_options, options, record_options, web_option
from stowplan.cli.command import Command, flag
from stowplan.cli.errors import CommandFailed, reported
from stowplan.driver.gc_settings import uncollected_imports

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.driver.storage.recording_writer import RecordingWriter
    from stowplan.framework.feature_gates import FeatureGates

FLUSH_S = 30.0
"""Seconds for which the last writes may take after the scheduler has stopped."""

EXAMPLES = """
# Schedule the pods with schedulerName stowplan in the current context
stowplan run

# Look at it in a browser; the address is printed
stowplan run --web

# Compare decisions with the cluster's own scheduler, without writing
stowplan run --dry-run

# Compare queues, victims and admissions with those of a live Volcano
stowplan run --compare --compat volcano-1.15

# Admit jobs in place of Kueue's own manager
stowplan run --act --config kueue.yaml

# Record every decision, for `stowplan replay`
stowplan run --record run.rec

# Replace kube-scheduler, by its own configuration file
stowplan run --config /etc/kubernetes/scheduler.yaml --listen 0.0.0.0:10259
"""


@click.command(name="run", cls=Command, examples=EXAMPLES)
@options.config
@options.plugin
@options.compats
@options.feature_gates
@live_options.kubeconfig
@live_options.context
@live_options.run_kind
@live_options.no_leader_elect
@live_options.lease_namespace
@live_options.qps
@live_options.burst
@flag(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the random choice among nodes with equal scores.  [default: the first node in "
    "snapshot order is chosen]",
)
@record_options.record_options
@web_option.web
@live_options.listen
@live_options.tls_cert
@live_options.tls_key
@live_options.log_format
@live_options.log_level
@live_options.verbosity
def command(**given: Any) -> None:
    """Run the scheduler against a live cluster, in all namespaces.

    Without --config it schedules the pods whose schedulerName is `stowplan`, by kube-scheduler's
    default profile; a dry run decides for those of `default-scheduler`.

    Several replicas may run: one leads, the others stand by. Exit code 1 if the lease is lost or
    another scheduler has the same name, 0 after SIGTERM.
    """
    every_s, compares = given.pop("compare_every_s"), given.pop("compare")
    acts = given.pop("act")
    if acts and compares:
        raise click.UsageError("--act cannot be used with --compare")
    if every_s is not None and not compares:
        raise click.UsageError("--compare-every needs --compare")
    if compares:
        from stowplan.cli.runs.queue_models.compare_queues import run_comparison

        sys.exit(run_comparison(given, every_s))
    if acts:
        from stowplan.cli.runs.kueue.kueue_run import run_acting

        sys.exit(run_acting(given))
    with uncollected_imports():
        import_module("stowplan.driver.process")
    _run(record=record_options.RecordRequest.take(given), **given)


def _run(
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: tuple[str, ...],
    feature_gates: FeatureGates | None,
    kubeconfig: str | None,
    context: str,
    dry_run: bool,
    take_over: bool,
    no_leader_elect: bool,
    lease_namespace: str,
    qps: float | None,
    burst: int | None,
    seed: int | None,
    verbosity: int | None,
    record: record_options.RecordRequest | None,
    web: str | None,
    **serving: str,
) -> None:
    from msgspec.structs import replace

    from stowplan.cli.runs.pages.serve_page import maybe_serving_page, print_address
    from stowplan.driver import logs
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.http.listen_address import AddressError, parse_listen_address
    from stowplan.driver.live.competing_schedulers import CompetingSchedulerError
    from stowplan.driver.live.configuration_files import (
        SCHEDULER_NAME,
        ConfigurationFileError,
        leader_election_config,
        read_configuration_files,
    )
    from stowplan.driver.live.scheduler_server import SchedulerServerOptions, absolute_paths
    from stowplan.driver.process import ProcessOptions, exit_after, run
    from stowplan.objects.pod import DEFAULT_SCHEDULER
    from stowplan.simulation.kernel_cache import BACKGROUND_COMPILATION

    errors = (CredentialError, ConfigurationFileError, AddressError, logs.LogError)
    with reported(*errors), reported(CompetingSchedulerError, by=CommandFailed):
        logs.configure_logging(serving["log_format"], serving["log_level"], verbosity)
        tls_files = serving["tls_cert_file"], serving["tls_private_key_file"]
        address = parse_listen_address(serving["listen"], *tls_files)
        name = DEFAULT_SCHEDULER if dry_run else SCHEDULER_NAME
        deciders, written = read_configuration_files(
            config_files, plugin_files, compat, name, feature_gates, admits=True
        )
        _check_kueue(deciders)
        client = deciders.configuration.client_connection
        chosen = SchedulerServerOptions(
            load_client_config(kubeconfig or client.kubeconfig, context),
            None if no_leader_elect else leader_election_config(deciders, written, lease_namespace),
            written.qps if qps is None else qps,
            written.burst if burst is None else burst,
            dry_run,
            seed,
            plugin_files=absolute_paths(plugin_files),
        )
        with (
            _maybe_recording(record, plugin_files) as recorder,
            maybe_serving_page(web, *tls_files) as page,
        ):
            print_address(page)
            chosen = replace(chosen, recorder=recorder, kernels=BACKGROUND_COMPILATION)
            on_server = None if page is None else page.attach
            code = run(deciders, chosen, ProcessOptions(address, take_over, on_server))
    # A process that no longer leads must end, whatever its threads are doing.
    exit_after(FLUSH_S, code)
    sys.exit(code)


def _maybe_recording(
    record: record_options.RecordRequest | None, plugin_files: tuple[str, ...]
) -> AbstractContextManager[RecordingWriter | None]:
    """Record until the end of the block, if asked for."""
    if record is None:
        return nullcontext()
    # Imported here: few schedulers are recorded.
    from stowplan.cli.runs.recordings.record_and_open import recording

    return recording(record, "run", plugin_files)


def _check_kueue(deciders: Deciders) -> None:
    """Raise a usage error for a configuration of Kueue: nothing says what to do with it."""
    if deciders.kueue is not None:
        raise click.UsageError(
            "a configuration of Kueue needs --act (admit jobs in place of Kueue's own manager) or "
            "--compare (write nothing, compare with it)"
        )
