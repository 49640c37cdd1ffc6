"""`stowplan up`: a cluster in this process, for kubectl and for any scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stowplan.cli import options

PORT = 6443


class _NonEmptyPath(click.Path):
    """A path that was given: an empty text, as of an unset variable, would mean the working
    directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises click.BadParameter."""
        if value == "":
            self.fail("got nothing, wanted a path", param, ctx)
        return super().convert(value, param, ctx)


_SERVER_OPTIONS = (
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=PORT,
        show_default=True,
        help="Where it listens; 0: any free one.",
    ),
    click.option(
        "--bind",
        metavar="ADDRESS",
        default="127.0.0.1",
        show_default=True,
        help="Other than loopback: others can connect, encrypted only.",
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        type=_NonEmptyPath(dir_okay=False, path_type=Path),
        help="Write it here.  [default: DIR/kubeconfig or ./stowplan.kubeconfig]",
    ),
    click.option(
        "--token-file",
        metavar="FILE.csv",
        type=_NonEmptyPath(dir_okay=False, path_type=Path),
        help='More clients, a line each: token,user,uid,"group,group".',
    ),
    click.option("--no-anonymous", is_flag=True, help="Refuse requests without a token."),
)


def _server_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options about who reaches the cluster, and how."""
    for option in reversed(_SERVER_OPTIONS):
        function = option(function)
    return function


@click.command(name="up")
@click.argument("files", metavar="[FILE]...", type=_NonEmptyPath(allow_dash=True), nargs=-1)
@click.option(
    "--cluster",
    "-f",
    "--filename",
    "clusters",
    metavar="PATH",
    type=_NonEmptyPath(allow_dash=True),
    multiple=True,
    help="What to begin with: manifests, directories, dumps, - for standard input. Repeatable.",
)
@click.option(
    "--node-count", type=click.IntRange(min=0), default=0, help="Hollow nodes to begin with."
)
@click.option(
    "--data",
    metavar="DIR",
    type=_NonEmptyPath(file_okay=False, path_type=Path),
    help="Keep the cluster here. Without it, it is gone at the end.",
)
@_server_options
@options.config
@options.plugin
@click.option("--no-scheduler", is_flag=True, help="Let pods wait for a scheduler of your own.")
def command(
    files: tuple[str, ...],
    clusters: tuple[str, ...],
    node_count: int,
    data: Path | None,
    port: int,
    bind: str,
    kubeconfig: Path | None,
    token_file: Path | None,
    no_anonymous: bool,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    no_scheduler: bool,
) -> None:
    """Run a cluster: an API server, controllers, a scheduler, and nodes that only pretend.

    It answers kubectl and other clients until Ctrl-C. Files (FILE, -f FILE) are manifests to begin
    with; what is there already stays as it is. Pods that name no scheduler, or `stowplan`, are
    decided, with --config those that name one of its schedulers. `stowplan status` in the same
    directory, or with --kubeconfig, says how that one is doing.
    """
    if not bind:
        raise click.BadParameter("got nothing, wanted an address", param_hint="--bind")
    if no_scheduler and (config_files or plugin_files):
        raise click.UsageError("--no-scheduler cannot be combined with --config or --plugin.")
    from stowplan.cli.runs.up import run_up
    from stowplan.driver.local_cluster import LocalClusterSettings

    settings = LocalClusterSettings(
        data=data,
        host=bind,
        port=port,
        nodes=node_count,
        token_file=token_file,
        kubeconfig=kubeconfig,
        anonymous=not no_anonymous,
    )
    how = None if no_scheduler else (config_files, plugin_files)
    run_up(settings, (*clusters, *files), how)
