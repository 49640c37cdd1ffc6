"""`stowplan up`: an embedded cluster, for kubectl and for any scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stowplan.cli import node_failure_options, options, record_options, web_option
from stowplan.cli.command import Command, flag, grouped
from stowplan.cli.errors import CommandFailed, invalid_argument, reported

if TYPE_CHECKING:
    from stowplan.framework.feature_gates import FeatureGates

PORT = 6443


EXAMPLES = """
# Run a cluster with five hollow nodes, and use it
stowplan up --node-count 5
kubectl --kubeconfig stowplan.kubeconfig get nodes

# Load manifests, and keep the cluster between runs
stowplan up -f cluster.yaml --data ./cluster

# Nodes with eight cards each, for ResourceClaims
stowplan up --node-count 3 --devices gpu.example.com=8xH100

# Look at it in a browser; the address is printed
stowplan up --node-count 50 --web

# Run a cluster without a scheduler, on a free port
stowplan up --no-scheduler --port 0 --kubeconfig test.kubeconfig
"""


class _NonEmptyPath(click.Path):
    """A path that is not empty: an empty text, as of an unset variable, would mean the working
    directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises click.BadParameter."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


def _devices(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str:
    """The devices of a node as one text. Raises click.BadParameter."""
    if not given:
        return ""
    from stowplan.apis.resource.node_devices import NodeDevicesError, parse_devices

    try:
        parse_devices("; ".join(given))
    except NodeDevicesError as fault:
        must = str(fault).partition('": ')[2]
        raise click.BadParameter(must, ctx, param) from None
    return "; ".join(given)


_server_options = grouped(
    flag(
        "--port",
        type=click.IntRange(0, 65535),
        default=PORT,
        help="Port of the API server; 0 selects a free one.",
    ),
    flag(
        "--bind",
        metavar="ADDRESS",
        default="127.0.0.1",
        help="Address of the API server. Any but loopback lets other computers connect.",
    ),
    flag(
        "--kubeconfig",
        metavar="FILE",
        type=_NonEmptyPath(dir_okay=False, path_type=Path),
        help="Write the kubeconfig to this file.  [default: DIR/kubeconfig of --data, else "
        "./stowplan.kubeconfig]",
    ),
    flag(
        "--token-file",
        metavar="FILE.csv",
        type=_NonEmptyPath(dir_okay=False, path_type=Path),
        help='File with bearer tokens, one per line: token,user,uid,"group1,group2".',
    ),
    flag("--no-anonymous", is_flag=True, help="Reject requests without a token."),
    flag(
        "--max-requests",
        metavar="N",
        type=click.IntRange(min=1),
        default=5_000,
        show_default=True,
        help="Requests per second that one client may send; twice as many at once.",
    ),
    flag(
        "--watch-cache-mb",
        metavar="N",
        type=click.IntRange(min=1),
        default=192,
        show_default=True,
        help="Memory for past changes, in MiB; a watch that continues from before them gets 410.",
    ),
    flag(
        "--audit-log",
        metavar="FILE",
        type=_NonEmptyPath(dir_okay=False, path_type=Path),
        help="Append an audit event for each request to this file.  [default: no audit log]",
    ),
    flag(
        "--audit-level",
        type=click.Choice(["Metadata", "Request", "RequestResponse"]),
        default="Metadata",
        show_default=True,
        help="What audit events contain: bodies of requests and responses or neither.",
    ),
)

_cluster_options = grouped(
    flag(
        "--cluster",
        "-f",
        "--filename",
        "clusters",
        metavar="PATH",
        type=_NonEmptyPath(allow_dash=True),
        multiple=True,
        help="Create the objects of manifests, directories or dumps; - reads standard input. "
        "Repeatable.",
    ),
    flag(
        "--node-count",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Number of hollow nodes to create.",
    ),
    flag(
        "--devices",
        metavar="DRIVER=COUNTxMODEL[,OPTION...]",
        multiple=True,
        callback=_devices,
        help="Devices of each of these nodes, published as ResourceSlices: gpu.example.com=8xH100. "
        "Options: NAME=AMOUNT, partitions=N, shared, taint=KEY[=VALUE]:EFFECT. Repeatable.",
    ),
    flag(
        "--data",
        metavar="DIR",
        type=_NonEmptyPath(file_okay=False, path_type=Path),
        help="Store the cluster in this directory.  [default: in memory]",
    ),
)


def _server_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of the API server, taken from the options."""
    from stowplan.apiserver.auth.flow_control import RequestLimits

    per_s: int = given["max_requests"]
    return {
        "port": given["port"],
        "token_file": given["token_file"],
        "kubeconfig": given["kubeconfig"],
        "anonymous": not given["no_anonymous"],
        "limits": RequestLimits(float(per_s), 2 * per_s),
        "runs_controllers": not given["no_controllers"],
        "audit_log": given["audit_log"],
        "audit_level": given["audit_level"],
        "watch_cache_mb": given["watch_cache_mb"],
    }


def _check_place(data: Path | None, kubeconfig: Path | None) -> None:
    """Raises CommandFailed if another cluster runs there, before the rest is loaded."""
    from stowplan.driver.storage.cluster_place import KubeconfigTaken, check_place
    from stowplan.driver.storage.sqlite_store import StoreError

    with reported(KubeconfigTaken, StoreError, by=CommandFailed):
        check_place(data, kubeconfig)


@click.command(name="up", cls=Command, examples=EXAMPLES)
@click.argument("files", metavar="[FILE]...", type=_NonEmptyPath(allow_dash=True), nargs=-1)
@_cluster_options
@_server_options
@options.config
@options.plugin
@options.compats
@options.feature_gates
@node_failure_options.node_lifecycle_options()
@record_options.record_options
@web_option.web
@flag(
    "--no-controllers",
    is_flag=True,
    help="Run no controllers: another controller manager runs them. Hollow nodes run.",
)
@flag("--no-scheduler", is_flag=True, help="Run no scheduler: another one schedules the pods.")
def command(
    files: tuple[str, ...],
    clusters: tuple[str, ...],
    node_count: int,
    devices: str,
    data: Path | None,
    bind: str,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: tuple[str, ...],
    feature_gates: FeatureGates | None,
    web: str | None,
    no_scheduler: bool,
    **given: Any,
) -> None:
    """Run an embedded cluster: an API server, controllers, a scheduler and hollow nodes.

    It serves kubectl and other clients until Ctrl-C. Objects of the files (FILE, -f FILE) are
    created; existing ones are kept. Pods without schedulerName or with `stowplan` are scheduled;
    with --config, those of its profiles. `stowplan status` in the same directory, or with
    --kubeconfig, shows the scheduler.
    """
    if not bind:
        raise invalid_argument("", "--bind", "must be an IP address")
    if no_scheduler and (config_files or plugin_files):
        raise click.UsageError("--no-scheduler cannot be used with --config or --plugin")
    record = record_options.RecordRequest.take(given)
    node_lifecycle = node_failure_options.take_node_lifecycle(given)
    if no_scheduler and record is not None:
        raise click.UsageError("--no-scheduler cannot be used with --record")
    if no_scheduler and web is not None:
        raise click.UsageError("--no-scheduler cannot be used with --web")
    _check_place(data, given["kubeconfig"])
    from stowplan.cli.runs.up import SchedulerArguments, run_up
    from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
    from stowplan.driver.local_cluster import LocalClusterSettings
    from stowplan.framework.feature_gates import FeatureGates

    settings = LocalClusterSettings(
        data=data,
        host=bind,
        nodes=node_count,
        devices=devices,
        node_lifecycle=node_lifecycle or NodeLifecycleOptions(),
        gates=feature_gates or FeatureGates(),
        **_server_settings(given),
    )
    scheduler = (
        None
        if no_scheduler
        else SchedulerArguments(config_files, plugin_files, compat, feature_gates)
    )
    run_up(settings, (*clusters, *files), scheduler, record, web)
