"""`stowplan run`: schedule a live cluster."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options

FLUSH_S = 30.0


@click.command(name="run")
@options.config
@options.plugin
@options.compat
@live_options.kubeconfig
@live_options.context
@click.option("--dry-run", is_flag=True, help="Decide, write nothing, and say what would differ.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Schedule even where another scheduler renews the lease of the same schedulerName.",
)
@live_options.no_leader_elect
@live_options.lease_namespace
@live_options.qps
@live_options.burst
@click.option("--seed", type=click.IntRange(min=0), help="Draw among equal nodes, from here on.")
@live_options.listen
@live_options.tls_cert
@live_options.tls_key
@live_options.log_format
@live_options.log_level
@live_options.verbosity
def command(**given: Any) -> None:
    """Schedule the pods of a live cluster.

    Without --config those whose schedulerName is `stowplan`, by kube-scheduler's default rules; a
    dry run looks at those of `default-scheduler`.
    Several may run: one leads, the others stand by. Exit code 1 when the lease is lost or another
    scheduler has the same name, 0 after SIGTERM.
    """
    _run(**given)


def _run(
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | None,
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
    **shown: str,
) -> None:
    from stowplan.driver import logs
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.http.status_server import AddressError, parse_listen_address
    from stowplan.driver.live.configuration_files import (
        SCHEDULER_NAME,
        ConfigurationFileError,
        leader_election_config,
        read_configuration_files,
    )
    from stowplan.driver.live.scheduler_server import SchedulerServerOptions
    from stowplan.driver.process import CompetingSchedulerError, ProcessOptions, exit_after, run
    from stowplan.objects.pod import DEFAULT_SCHEDULER

    try:
        logs.configure_logging(shown["log_format"], shown["log_level"], verbosity)
        address = parse_listen_address(
            shown["listen"], shown["tls_cert_file"], shown["tls_private_key_file"]
        )
        name = DEFAULT_SCHEDULER if dry_run else SCHEDULER_NAME
        deciders, written = read_configuration_files(config_files, plugin_files, compat or "", name)
        client = deciders.configuration.client_connection
        chosen = SchedulerServerOptions(
            load_client_config(kubeconfig or client.kubeconfig, context),
            None if no_leader_elect else leader_election_config(deciders, written, lease_namespace),
            written.qps if qps is None else qps,
            written.burst if burst is None else burst,
            dry_run,
            seed,
        )
        code = run(deciders, chosen, ProcessOptions(address, take_over))
    except (CredentialError, ConfigurationFileError, AddressError, logs.LogError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
    except CompetingSchedulerError as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(1)
    # Nothing may keep a process alive that does not lead any more.
    exit_after(FLUSH_S, code)
    sys.exit(code)
