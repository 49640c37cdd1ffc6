"""Options that several commands have, with the same names and meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stowplan.cli.command import flag, grouped
from stowplan.cli.completion import complete_pods
from stowplan.cli.errors import invalid_argument

COMPAT_NAMES = ("kai", "kube-batch-0.5", "volcano-1.15")
"""`config.session_configuration.COMPATS`; that module imports too much for a help text."""

ALL_COMPAT_NAMES = ("kube-batch-0.5", "kube-scheduler-1.36", "volcano-1.15", "kai", "kueue")
"""`config.session_configuration.COMPAT_NAMES`."""

TRACE_FORMATS = ("swf", "pai-2020", "spot-gpu-2026", "philly", "google-2019", "kubectl")
"""`inputs.traces.trace_formats.FORMATS`; that module imports too much for a help text."""

TREES = ("json", "yaml")
"""Values of --output that print the whole answer for other programs."""

pod = click.argument("pod", metavar="POD", shell_complete=complete_pods)
optional_pod = click.argument("pod", metavar="[POD]", required=False, shell_complete=complete_pods)
cluster = flag(
    "--cluster",
    "-f",
    "--filename",
    "clusters",
    metavar="PATH",
    type=click.Path(allow_dash=True),
    multiple=True,
    help="Read the cluster from manifests, directories, dumps or traces; - reads standard input. "
    "Repeatable.",
)
files = click.argument("files", metavar="[FILE]...", type=click.Path(allow_dash=True), nargs=-1)
"""The same as `cluster`, without the option."""
namespace = flag(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="Show only the pods of this namespace.  [default: all namespaces]",
)
all_namespaces = flag(
    "-A", "--all-namespaces", is_flag=True, help="Show all namespaces; overrides --namespace."
)
orphans = flag(
    "--orphans",
    type=click.Choice(["pending", "ignore", "error"]),
    default="pending",
    help="What to do with pods bound to nodes that are not in the input: schedule them again, "
    "leave them out, or fail.",
)
validate = flag(
    "--validate",
    type=click.Choice(["strict", "warn", "ignore"]),
    help="Validate objects as the API server does: fail, warn, or skip validation.  [default: "
    "strict for objects without metadata.uid and resourceVersion]",
)
trace_format = flag(
    "--trace-format",
    type=click.Choice(TRACE_FORMATS),
    help="Format of all files but YAML; kubectl reads a dump with events as a trace.  [default: "
    "recognised by name or first line]",
)


input_options = grouped(files, cluster, orphans, validate, trace_format)
"""FILE, --cluster and the options that say how files are read."""
config = flag(
    "--config",
    "config_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Scheduler configuration: a KubeSchedulerConfiguration, a Policy, or the configuration of "
    "Volcano, KAI-Scheduler, Kueue or kube-batch. Repeatable.  [default: kube-scheduler's default "
    "profile]",
)
compat = flag(
    "--compat",
    type=click.Choice(COMPAT_NAMES),
    help="Reproduce the decisions of this version in sessions, including its defects.",
)


compats = flag(
    "--compat",
    multiple=True,
    type=click.Choice(ALL_COMPAT_NAMES),
    help="Reproduce the decisions of this version, including its defects: kube-batch-0.5, kai and "
    "volcano-1.15 in sessions, kube-scheduler-1.36 with pod groups, kueue in front of the "
    "scheduler. Repeatable.",
)


def _feature_gates_callback(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> Any:
    """The gates, None for their defaults."""
    if not value:
        return None
    # Imported here: few command lines set gates.
    from stowplan.framework.feature_gates import FeatureGateError, parse_feature_gates

    try:
        return parse_feature_gates(value)
    except FeatureGateError as problem:
        raise invalid_argument(",".join(value), "--feature-gates", str(problem), ctx) from None


feature_gates = flag(
    "--feature-gates",
    metavar="GATE=true|false,...",
    multiple=True,
    callback=_feature_gates_callback,
    help="Switch features of kube-scheduler on or off, as GenericWorkload=true,GangScheduling=true "
    "for pod groups. Repeatable.  [default: those of Kubernetes 1.36]",
)
profile = flag(
    "--profile",
    metavar="SCHEDULERNAME",
    help="Schedule every pod by this profile.  [default: the one that spec.schedulerName names]",
)
plugin = flag(
    "--plugin",
    "plugin_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Python file with out-of-tree plugins. Repeatable.",
)
out = flag(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write the results as files into this directory.",
)


def output(*formats: str) -> Callable[[Any], Any]:
    """The option --output; the first format is the default."""
    return flag(
        "-o", "--output", type=click.Choice(formats), default=formats[0], help="Output format."
    )
