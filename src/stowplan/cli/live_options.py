"""Options of commands that connect to a cluster or serve requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from stowplan.cli import options
from stowplan.cli.command import KUBECTL_PROGRAM, flag, grouped
from stowplan.cli.simulate_options import positive_duration_callback

kubeconfig = flag(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Kubeconfig of the cluster.  [default: $KUBECONFIG, the service account of the pod, or "
    "~/.kube/config]",
)
up_kubeconfig = flag(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Kubeconfig of a `stowplan up` cluster; its scheduler is used.",
)
context = flag(
    "--context",
    metavar="NAME",
    default="",
    help="Context of the kubeconfig.  [default: its current context]",
)
status_options = grouped(
    up_kubeconfig,
    context,
    flag(
        "--token",
        metavar="TOKEN",
        default="",
        help="Bearer token; needed unless the address is loopback.",
    ),
    flag(
        "--ca-file",
        metavar="FILE",
        default="",
        type=click.Path(dir_okay=False),
        help="PEM file with the CA of the serving certificate.  [default: the system's CAs]",
    ),
)
"""How a scheduler's status is asked for, beside its address."""
source_options = grouped(options.input_options, kubeconfig, context)
"""A cluster of files, or a live one."""
listen = flag(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:10259",
    help="Address of health, metrics and status; 0 disables it. Any but loopback serves TLS and "
    "authenticates clients.",
)
tls_cert = flag(
    "--tls-cert-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM file with the serving certificate; needs --tls-private-key-file.  [default: a "
    "self-signed certificate]",
)
tls_key = flag(
    "--tls-private-key-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM file with the private key of --tls-cert-file.",
)
log_format = flag(
    "--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of log lines."
)
log_level = flag(
    "--log-level",
    metavar="LEVEL[,PART=LEVEL...]",
    default="",
    help="Minimum level: debug, info, warning or error. Parts: scheduler, decisions, informers, "
    "leader, writes, plugins, http.  [default: info]",
)
verbosity = flag(
    "-v",
    "--v",
    "verbosity",
    metavar="N",
    type=click.IntRange(min=0),
    help="Verbosity as in kube-scheduler, where --log-level names no level: 0 omits decisions, 2 "
    "logs them, 4 logs debug messages.  [default: 2]",
)
no_leader_elect = flag(
    "--no-leader-elect",
    is_flag=True,
    help="Run without leader election; for a single replica only.",
)
lease_namespace = flag(
    "--lease-namespace",
    metavar="NAMESPACE",
    default="",
    help="Namespace of the leader lease, unless the configuration names one.  [default: "
    "kube-system]",
)
qps = flag(
    "--qps",
    type=click.FloatRange(min=0),
    help="Writing requests per second to the API server; 0 for no limit.  [default: "
    "clientConnection.qps of the configuration, else no limit]",
)
burst = flag(
    "--burst",
    type=click.IntRange(min=1),
    help="Writing requests that may be sent at once before --qps limits them.  [default: "
    "clientConnection.burst of the configuration, else 100]",
)


def refuse_options(given: Mapping[str, Any], names: Iterable[str], beside: str) -> None:
    """Raise a usage error if one of these options is given, which do not go with `beside`."""
    for name in names:
        if given[name] not in (None, False, ()):
            option = name.removesuffix("_files").removesuffix("_file").replace("_", "-")
            raise click.UsageError(f"--{option} cannot be used with {beside}")


def uses_current_context() -> bool:
    """True for `kubectl stowplan`, which reads the cluster of kubectl unless files are given."""
    return click.get_current_context().find_root().info_name == KUBECTL_PROGRAM


run_kind = grouped(
    flag(
        "--dry-run",
        is_flag=True,
        help="Decide without writing, and report where the decisions differ from the cluster's.",
    ),
    flag(
        "--compare",
        is_flag=True,
        help="Follow a cluster whose queues another scheduler decides (Volcano, KAI-Scheduler, "
        "Kueue), write nothing, and report which starts, victims and admissions differ from those "
        "by --config or --compat.",
    ),
    flag(
        "--compare-every",
        "compare_every_s",
        metavar="DURATION",
        callback=positive_duration_callback,
        help="How often --compare lists the cluster.  [default: 10s]",
    ),
    flag(
        "--act",
        is_flag=True,
        help="Admit the cluster's jobs in place of Kueue's own manager, by a --config of Kueue or "
        "--compat kueue; pods are placed by another scheduler.",
    ),
    flag(
        "--take-over",
        is_flag=True,
        help="Run even if another scheduler renews the lease of the same schedulerName, or Kueue's "
        "own manager is deployed.",
    ),
)
"""What a run does: decide and write, or compare; and beside whom."""
