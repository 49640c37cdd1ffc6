"""What `stowplan run --shadow` does: list the cluster again and again, and report differences."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError, reported
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.runs.scheduler_config import read_command_deciders
from stowplan.driver import logs
from stowplan.driver.logs import log_keys
from stowplan.forecast.shadow.shadow import (
    ADMITTED,
    AS_GOOD,
    EVICTED,
    HERE_ONLY,
    OTHER_NODE,
    SAME,
    STARTED,
    THERE_ONLY,
    Shadow,
    ShadowDifference,
)
from stowplan.inputs.cluster_reader import Cluster

EVERY_S = 10.0

log = logging.getLogger("stowplan.scheduler")

_RESULTS = {
    STARTED: (SAME, AS_GOOD, OTHER_NODE, THERE_ONLY, HERE_ONLY),
    EVICTED: (SAME, THERE_ONLY, HERE_ONLY),
    ADMITTED: (SAME, THERE_ONLY, HERE_ONLY),
}
_WITHOUT = ("dry_run", "take_over", "record", "web")
"""Options that say nothing to a shadow."""


def run_shadow(given: dict[str, Any], every_s: float | None) -> int:
    """Compare until a signal arrives; the exit code. given: the options of the command."""
    for name in _WITHOUT:
        if given.get(name):
            raise click.UsageError(f"--{name.replace('_', '-')} cannot be used with --shadow")
    with reported(logs.LogError):
        logs.configure_logging(given["log_format"], given["log_level"], given["verbosity"])
    deciders = read_command_deciders(
        given["config_files"],
        given["plugin_files"],
        given["compat"],
        given["feature_gates"],
        admits=True,
    )
    check_shadow(deciders)
    source = ClusterSource((), given["kubeconfig"], given["context"], is_live=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    follow(
        Shadow(deciders),
        lambda: read_cluster_source(source, deciders, partial=True, with_finished=True),
        EVERY_S if every_s is None else every_s,
        stop,
    )
    return 0


def check_shadow(deciders: Deciders) -> None:
    """Raise a usage error where nothing is configured that a shadow compares."""
    if deciders.batch is None and deciders.kueue is None:
        raise click.UsageError(
            "--shadow needs --config with actions and tiers or of Kueue, or --compat volcano-1.15, "
            "kai or kueue; beside a kube-scheduler use --dry-run"
        )


def follow(
    shadow: Shadow, list_cluster: Callable[[], Cluster], every_s: float, stop: threading.Event
) -> None:
    """List and compare until `stop` is set, then log the sums. A failed list is logged, and the
    next one is compared with the one before."""
    while True:
        try:
            found = shadow.next(list_cluster())
        except CommandError as problem:
            log_keys(log, logging.ERROR, "Unable to list the cluster", err=problem.message)
        else:
            for one in found:
                log_difference(one)
        if stop.wait(every_s):
            break
    log_summary(shadow)


def log_difference(one: ShadowDifference) -> None:
    """Log a difference in one line."""
    keys = {one.what: one.key, "here": one.here, "there": one.there, "reason": one.why}
    log_keys(log, logging.INFO, "Decision differs", **keys)


def log_summary(shadow: Shadow) -> None:
    """Log how many decisions were equal, by kind and result."""
    for what, results in _RESULTS.items():
        counts = {result: shadow.counts[what, result] for result in results}
        log_keys(log, logging.INFO, "Shadow finished", compared=f"{what}s", **counts)
