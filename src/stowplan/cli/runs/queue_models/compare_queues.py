"""What `stowplan run --compare` does: list the cluster again and again, and report differences."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError, reported
from stowplan.cli.live_options import refuse_options
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.runs.scheduler_config import read_command_deciders
from stowplan.driver import logs
from stowplan.driver.logs import log_keys
from stowplan.forecast.queue_comparison.queue_comparer import (
    ADMITTED,
    AS_GOOD,
    EVICTED,
    HERE_ONLY,
    OTHER_NODE,
    SAME,
    STARTED,
    THERE_ONLY,
    DecisionMismatch,
    QueueComparer,
)
from stowplan.inputs.cluster_reader import Cluster

EVERY_S = 10.0

log = logging.getLogger("stowplan.scheduler")

_RESULTS = {
    STARTED: (SAME, AS_GOOD, OTHER_NODE, THERE_ONLY, HERE_ONLY),
    EVICTED: (SAME, THERE_ONLY, HERE_ONLY),
    ADMITTED: (SAME, THERE_ONLY, HERE_ONLY),
}
_WITHOUT = ("dry_run", "take_over", "record_file", "web")
"""Options that do not go with it."""


def run_comparison(given: dict[str, Any], every_s: float | None) -> int:
    """Compare until a signal arrives; the exit code. given: the options of the command."""
    refuse_options(given, _WITHOUT, "--compare")
    with reported(logs.LogError):
        logs.configure_logging(given["log_format"], given["log_level"], given["verbosity"])
    deciders = read_command_deciders(
        given["config_files"],
        given["plugin_files"],
        given["compat"],
        given["feature_gates"],
        admits=True,
    )
    check_comparison(deciders)
    source = ClusterSource((), given["kubeconfig"], given["context"], is_live=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    follow(
        QueueComparer(deciders),
        lambda: read_cluster_source(source, deciders, partial=True, with_finished=True),
        EVERY_S if every_s is None else every_s,
        stop,
    )
    return 0


def check_comparison(deciders: Deciders) -> None:
    """Raise a usage error where nothing is configured that can be compared."""
    if deciders.batch is None and deciders.kueue is None:
        raise click.UsageError(
            "--compare needs --config with actions and tiers or of Kueue, or --compat "
            "volcano-1.15, kai or kueue; beside a kube-scheduler use --dry-run"
        )


def follow(
    comparer: QueueComparer,
    list_cluster: Callable[[], Cluster],
    every_s: float,
    stop: threading.Event,
) -> None:
    """List and compare until `stop` is set, then log the sums. A failed list is logged, and the
    next one is compared with the one before."""
    while True:
        try:
            found = comparer.next(list_cluster())
        except CommandError as problem:
            log_keys(log, logging.ERROR, "Unable to list the cluster", err=problem.message)
        else:
            for one in found:
                log_difference(one)
        if stop.wait(every_s):
            break
    log_summary(comparer)


def log_difference(one: DecisionMismatch) -> None:
    """Log a difference in one line."""
    keys = {one.what: one.key, "here": one.here, "there": one.there, "reason": one.why}
    log_keys(log, logging.INFO, "Decision differs", **keys)


def log_summary(comparer: QueueComparer) -> None:
    """Log how many decisions were equal, by kind and result."""
    for what, results in _RESULTS.items():
        counts = {result: comparer.counts[what, result] for result in results}
        log_keys(log, logging.INFO, "Comparison finished", compared=f"{what}s", **counts)
