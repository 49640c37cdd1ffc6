"""`stowplan extender`: a profile served as a scheduler extender of kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from stowplan.cli import live_options, options
from stowplan.cli.command import Command, flag
from stowplan.cli.errors import guess, invalid_argument, reported

EXAMPLES = """
# Serve the default profile to a kube-scheduler on this computer
stowplan extender --listen 127.0.0.1:8888

# Serve a profile over TLS, to callers with a certificate of a CA
stowplan extender --listen 0.0.0.0:8888 --config scheduler.yaml --profile gpu \\
    --client-ca-file ca.crt
"""


@click.command(name="extender", cls=Command, examples=EXAMPLES)
@flag(
    "--listen",
    metavar="HOST:PORT",
    required=True,
    help="Address that kube-scheduler calls. Other addresses than loopback serve TLS and "
    "authenticate callers.",
)
@options.config
@options.profile
@options.plugin
@live_options.kubeconfig
@live_options.context
@flag(
    "--alone",
    is_flag=True,
    help="Watch no cluster: evaluate the nodes of each request as if they ran no pods.",
)
@flag(
    "--bind",
    "binds",
    is_flag=True,
    help="Allow the bind verb to callers on this computer; callers with a certificate always may "
    "use it.",
)
@live_options.tls_cert
@live_options.tls_key
@flag(
    "--client-ca-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM file with the CA that must have signed the callers' certificates.",
)
@live_options.log_format
@live_options.log_level
def command(**given: Any) -> None:
    """Serve a profile to kube-scheduler, as a scheduler extender.

    Configure it in kube-scheduler's `extenders` with urlPrefix http://HOST:PORT and the verbs
    filter, prioritize, preempt, and with --bind bind. It watches the cluster, so nodeCacheCapable
    may be true.
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
    **serving: str,
) -> None:
    import msgspec

    from stowplan.driver import logs
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.http.extender_service import ExtenderService, serve
    from stowplan.driver.http.listen_address import AddressError, parse_listen_address
    from stowplan.driver.live.configuration_files import (
        ConfigurationFileError,
        read_configuration_files,
    )

    with reported(CredentialError, ConfigurationFileError, AddressError, logs.LogError):
        logs.configure_logging(serving["log_format"], serving["log_level"])
        address = parse_listen_address(
            listen, serving["tls_cert_file"], serving["tls_private_key_file"]
        )
        if address is None:
            raise invalid_argument(listen, "--listen", "must be HOST:PORT")
        address = msgspec.structs.replace(address, client_ca=serving["client_ca_file"])
        deciders, _ = read_configuration_files(config_files, plugin_files)
        _check_profile(profile or "", deciders.configuration.profiles)
        client_config = None if alone else load_client_config(kubeconfig, context)
        serve(ExtenderService(deciders, address, client_config, profile or "", binds=binds))


def _check_profile(profile: str, known: Iterable[str]) -> None:
    """Raise a usage error unless the configuration has the profile, or any where none is named."""
    names = sorted(known)
    if not names:
        raise click.UsageError("--config must have a profile: an extender serves one")
    if profile and profile not in names:
        must = f"must be one of: {', '.join(names)}{guess(profile, names)}"
        raise invalid_argument(profile, "--profile", must)
