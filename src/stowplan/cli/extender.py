"""`stowplan extender`: the opinion of a profile, for a scheduler that cannot be replaced."""

from __future__ import annotations

import sys

import click

from stowplan.cli import live_options, options
from stowplan.driver import logs
from stowplan.driver.client_credentials import CredentialError
from stowplan.driver.connecting import connection_to
from stowplan.driver.extender_service import ExtenderService, serve
from stowplan.driver.scheduling import FileError, read_files
from stowplan.driver.serving import AddressError, address_of
from stowplan.framework.problems import did_you_mean


@click.command(name="extender")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    required=True,
    help="Where kube-scheduler asks. Other than loopback it speaks TLS.",
)
@options.config
@options.profile
@options.plugin
@live_options.kubeconfig
@live_options.context
@click.option(
    "--alone",
    is_flag=True,
    help="Follow no cluster: judge the whole nodes that come, as if they were empty.",
)
@live_options.tls_cert
@live_options.tls_key
@live_options.log_format
@live_options.log_level
def command(
    listen: str,
    config_files: tuple[str, ...],
    profile: str | None,
    plugin_files: tuple[str, ...],
    kubeconfig: str | None,
    context: str,
    alone: bool,
    tls_cert_file: str,
    tls_private_key_file: str,
    log_format: str,
    log_level: str,
) -> None:
    """Answer a stock kube-scheduler's questions: filter, prioritize, preempt, bind.

    Name it in the scheduler's `extenders` with urlPrefix http://HOST:PORT and the verbs filter,
    prioritize, preempt, bind. It follows the cluster, so nodeCacheCapable may be true.
    """
    try:
        logs.set_up(log_format, log_level)
        address = address_of(listen, tls_cert_file, tls_private_key_file)
        if address is None:
            raise AddressError("listen: got nothing, wanted HOST:PORT")
        deciders, _ = read_files(config_files, plugin_files)
        profiles = deciders.configuration.profiles
        if not profiles or (profile and profile not in profiles):
            hint = did_you_mean(profile or "", profiles)
            wanted = f"one of {', '.join(sorted(profiles))}" if profiles else "a profile"
            raise click.UsageError(f"--profile: got {profile!r}, wanted {wanted} {hint}".rstrip())
        connection = None if alone else connection_to(kubeconfig, context)
        serve(ExtenderService(deciders, address, connection, profile or ""))
    except (CredentialError, FileError, AddressError, logs.LogError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
