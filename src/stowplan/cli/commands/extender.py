"""`stowplan extender`: the opinion of a profile, for a scheduler that cannot be replaced."""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan.cli import live_options, options


@click.command(name="extender")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    required=True,
    help="Where kube-scheduler asks. Other than loopback: TLS, and callers must be known.",
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
@click.option(
    "--bind",
    "binds",
    is_flag=True,
    help="Bind for everybody on this computer; callers with a certificate may anyway.",
)
@live_options.tls_cert
@live_options.tls_key
@click.option(
    "--client-ca-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM: who asks has to have a certificate that it signs.",
)
@live_options.log_format
@live_options.log_level
def command(**given: Any) -> None:
    """Answer a stock kube-scheduler's questions: filter, prioritize, preempt, bind.

    Name it in the scheduler's `extenders` with urlPrefix http://HOST:PORT and the verbs filter,
    prioritize, preempt, and with --bind bind. It follows the cluster, so nodeCacheCapable may be
    true.
    """
    _serve(**given)


def _serve(
    listen: str,
    config_files: tuple[str, ...],
    profile: str | None,
    plugin_files: tuple[str, ...],
    kubeconfig: str | None,
    context: str,
    alone: bool,
    binds: bool,
    **shown: str,
) -> None:
    import msgspec

    from stowplan.driver import logs
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.http.extender_service import ExtenderService, serve
    from stowplan.driver.http.status_server import AddressError, parse_listen_address
    from stowplan.driver.live.configuration_files import (
        ConfigurationFileError,
        read_configuration_files,
    )
    from stowplan.framework.problems import did_you_mean

    try:
        logs.configure_logging(shown["log_format"], shown["log_level"])
        address = parse_listen_address(
            listen, shown["tls_cert_file"], shown["tls_private_key_file"]
        )
        if address is None:
            raise AddressError("listen: got nothing, wanted HOST:PORT")
        address = msgspec.structs.replace(address, client_ca=shown["client_ca_file"])
        deciders, _ = read_configuration_files(config_files, plugin_files)
        profiles = deciders.configuration.profiles
        if not profiles or (profile and profile not in profiles):
            hint = did_you_mean(profile or "", profiles)
            wanted = f"one of {', '.join(sorted(profiles))}" if profiles else "a profile"
            raise click.UsageError(f"--profile: got {profile!r}, wanted {wanted} {hint}".rstrip())
        client_config = None if alone else load_client_config(kubeconfig, context)
        serve(ExtenderService(deciders, address, client_config, profile or "", binds=binds))
    except (CredentialError, ConfigurationFileError, AddressError, logs.LogError) as problem:
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)
