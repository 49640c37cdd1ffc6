"""Options of commands that answer before the fact."""

from __future__ import annotations

import datetime

import click

from stowplan.cli import live_options, options, record_options
from stowplan.cli.command import flag, grouped

_NOW_EXPECTED = "must be a time such as 2026-01-31T12:00:00Z"
# Virtual time is int64 nanoseconds since 1970, which end in 2262; it goes on after `now`.
_LAST_YEAR = 2200


def now_callback(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> datetime.datetime | None:
    """The time of an option."""
    if value is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(_NOW_EXPECTED, ctx, param) from None
    if found.tzinfo is None:
        raise click.BadParameter(_NOW_EXPECTED, ctx, param)
    if found.timestamp() < 0 or found.year >= _LAST_YEAR:
        must = f"must be a time from 1970 to {_LAST_YEAR - 1}"
        raise click.BadParameter(must, ctx, param)
    return found


now = flag(
    "--now",
    metavar="TIME",
    callback=now_callback,
    help="Time until which running pods have run, as 2026-01-31T12:00:00Z.  [default: now for a "
    "live cluster, else the latest time that pods and annotations show]",
)
base_config = flag(
    "--base-config",
    "config_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Scheduler configuration before the changes. Repeatable.  [default: kube-scheduler's "
    "default profile]",
)
base_plugin = flag(
    "--base-plugin",
    "plugin_files",
    metavar="FILE.py",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Python file with out-of-tree plugins, before and after the changes. Repeatable.",
)
question_cluster = grouped(live_options.source_options, record_options.recorded_moment)
"""The cluster that is asked about."""
target_namespace = flag(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    help="Namespace of objects that are named without one.  [default: that of the context, else "
    "default]",
)
question = grouped(
    options.profile, target_namespace, now, options.output("table", "wide", "json", "yaml", "name")
)
"""What questions about changes and preemption have in common, besides the cluster."""
seed = flag(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of ties between nodes.  [default: 0]",
)
