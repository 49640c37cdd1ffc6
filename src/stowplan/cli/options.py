"""The options that commands share: one grammar for all of them."""

from __future__ import annotations

from typing import Any

import click

COMPAT_NAMES = ("kube-batch-0.5",)
"""The keys of `stowplan.batch.COMPATS`; that module imports too much for a help text."""

cluster = click.option(
    "--cluster",
    "-f",
    "--filename",
    "clusters",
    metavar="PATH",
    multiple=True,
    help="The cluster: manifests, directories, dumps, OpenB CSVs, - for standard input. "
    "Repeatable.",
)
files = click.argument("files", metavar="[FILE]...", nargs=-1)
"""The same as `cluster`, without the option."""
namespace = click.option(
    "-n", "--namespace", metavar="NS", default=None, help="Show the pods of this namespace only."
)
all_namespaces = click.option(
    "-A", "--all-namespaces", is_flag=True, help="All namespaces; counts more than -n."
)
_UNUSED = "Taken as kubectl takes it for what is in no namespace: nothing changes."
no_namespace = click.option("-n", "--namespace", metavar="NS", expose_value=False, help=_UNUSED)
no_all_namespaces = click.option(
    "-A", "--all-namespaces", is_flag=True, expose_value=False, help=_UNUSED
)
orphans = click.option(
    "--orphans",
    type=click.Choice(["pending", "ignore", "error"]),
    default="pending",
    show_default=True,
    help="Pods bound to nodes that are not in the input: pending again, left out, or refused.",
)
validate = click.option(
    "--validate",
    type=click.Choice(["strict", "warn", "ignore"]),
    default=None,
    help="Validate objects as the API server does: refuse, note, or not at all.  [default: strict "
    "for objects without metadata.uid and resourceVersion]",
)


def input_options(command: Any) -> Any:
    """Give a command FILE, --cluster and the options that say how files are read."""
    return files(cluster(orphans(validate(command))))


config = click.option(
    "--config",
    "config_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="The decider: a KubeSchedulerConfiguration or a Policy file, and a file with actions and "
    "tiers. Repeatable.",
)
compat = click.option(
    "--compat",
    type=click.Choice(COMPAT_NAMES),
    default=None,
    help="In sessions decide as this scheduler does, its defects included.",
)
profile = click.option(
    "--profile", metavar="SCHEDULERNAME", help="Let this profile decide every pod."
)
plugin = click.option(
    "--plugin",
    "plugin_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="A file with plugins of your own. Repeatable.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of every draw.",
)
out = click.option(
    "--out", metavar="DIR", type=click.Path(), help="Write the results into this directory."
)
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)
