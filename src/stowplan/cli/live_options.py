"""The options of commands that talk to a live cluster."""

from __future__ import annotations

import click

kubeconfig = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The cluster. Without it KUBECONFIG, the pod's own cluster, or ~/.kube/config.",
)
kubeconfig_of_up = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A cluster of `stowplan up`, whose scheduler is meant.",
)
context = click.option(
    "--context", metavar="NAME", default="", help="The context of the kubeconfig."
)
listen = click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:10259",
    show_default=True,
    help="Health, metrics and status. Other than loopback: TLS, and readers must be known. 0: off.",
)
tls_cert = click.option(
    "--tls-cert-file",
    metavar="FILE",
    default="",
    type=click.Path(dir_okay=False),
    help="PEM, with --tls-private-key-file; without, one that signs itself.",
)
tls_key = click.option(
    "--tls-private-key-file", metavar="FILE", default="", type=click.Path(dir_okay=False)
)
log_format = click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
log_level = click.option(
    "--log-level",
    metavar="LEVEL[,PART=LEVEL...]",
    default="",
    help="debug, info, warning or error; parts: scheduler, decisions, informers, leader, writes, "
    "plugins, http.  [default: info]",
)
verbosity = click.option(
    "-v",
    "--v",
    "verbosity",
    metavar="N",
    type=click.IntRange(min=0),
    help="Verbosity as kube-scheduler counts it, where --log-level names no level: 0 without "
    "decisions, 2 with them, 4 debug.  [default: 2]",
)
no_leader_elect = click.option(
    "--no-leader-elect", is_flag=True, help="Lead without asking: there is one of us."
)
lease_namespace = click.option(
    "--lease-namespace",
    metavar="NS",
    default="",
    help="Where the lease is, unless the configuration says so.  [default: kube-system]",
)
qps = click.option(
    "--qps", type=click.FloatRange(min=0), help="Requests a second.  [default: no limit]"
)
burst = click.option(
    "--burst", type=click.IntRange(min=1), help="Requests at once.  [default: 100]"
)
