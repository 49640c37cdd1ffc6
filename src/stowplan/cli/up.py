"""`stowplan up`: a cluster in this process, for kubectl and for any scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from stowplan.driver import logs
from stowplan.driver.local_cluster import Beside, Running, Settings, UpError, is_loopback, run
from stowplan.sim.documents import documents
from stowplan.sim.files import files_at
from stowplan.sim.input_error import InputError

PORT = 6443
PROBLEMS_SHOWN = 10


class _Place(click.Path):
    """A path that was given: an empty text, as of an unset variable, would mean the working
    directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises click.BadParameter."""
        if value == "":
            self.fail("got nothing, wanted a path", param, ctx)
        return super().convert(value, param, ctx)


_WHERE = (
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
        type=_Place(dir_okay=False, path_type=Path),
        help="Write it here.  [default: DIR/kubeconfig or ./stowplan.kubeconfig]",
    ),
    click.option(
        "--token-file",
        metavar="FILE.csv",
        type=_Place(dir_okay=False, path_type=Path),
        help='More clients, a line each: token,user,uid,"group,group".',
    ),
    click.option("--no-anonymous", is_flag=True, help="Refuse requests without a token."),
)


def _where(function: Callable[..., None]) -> Callable[..., None]:
    """The options about who reaches the cluster, and how."""
    for option in reversed(_WHERE):
        function = option(function)
    return function


@click.command(name="up")
@click.option(
    "--cluster",
    "clusters",
    metavar="PATH",
    type=_Place(allow_dash=True),
    multiple=True,
    help="What to begin with: manifests, directories, dumps, - for standard input. Repeatable.",
)
@click.option(
    "--node-count", type=click.IntRange(min=0), default=0, help="Hollow nodes to begin with."
)
@click.option(
    "--data",
    metavar="DIR",
    type=_Place(file_okay=False, path_type=Path),
    help="Keep the cluster here. Without it, it is gone at the end.",
)
@_where
@click.option("--no-scheduler", is_flag=True, help="Let pods wait for a scheduler of your own.")
def command(
    clusters: tuple[str, ...],
    node_count: int,
    data: Path | None,
    port: int,
    bind: str,
    kubeconfig: Path | None,
    token_file: Path | None,
    no_anonymous: bool,
    no_scheduler: bool,
) -> None:
    """Run a cluster: an API server, controllers, a scheduler, and nodes that only pretend.

    It answers kubectl and other clients until Ctrl-C. --cluster names manifests to begin with;
    what is there already stays as it is. Pods that name no scheduler, or `stowplan`, are decided.
    """
    if not bind:
        raise click.BadParameter("got nothing, wanted an address", param_hint="--bind")
    settings = Settings(
        data=data,
        host=bind,
        port=port,
        nodes=node_count,
        token_file=token_file,
        kubeconfig=kubeconfig,
        anonymous=not no_anonymous,
    )
    if not is_loopback(bind):
        click.echo(f"Listening on {bind}: others can reach this cluster.", err=True)
    try:
        logs.set_up("text", "warning")
        run(settings, list(_documents(clusters)), _tell, _beside(no_scheduler))
    except UpError as problem:
        raise click.ClickException(str(problem)) from None
    click.echo("Stopped.")


def _beside(no_scheduler: bool) -> Beside:
    if no_scheduler:
        return nullcontext
    # Imported here: a cluster without a scheduler does without all that schedulers need.
    from stowplan.driver.up_scheduler import scheduling

    return scheduling


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
