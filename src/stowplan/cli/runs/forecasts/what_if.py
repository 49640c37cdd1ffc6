"""What `stowplan what-if` does: read the cluster and the changes, answer, print the difference."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource
from stowplan.cli.runs.forecasts.asked_cluster import read_asked_cluster
from stowplan.cli.runs.scheduler_config import read_asked_deciders, scheduler_behind
from stowplan.cli.simulate_options import read_autoscale_option
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.what_if import print_what_if
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.what_if.over_time import Timing
from stowplan.forecast.what_if.questions import (
    WhatIfOptions,
    answer,
    changed_deciders,
    question_of,
)
from stowplan.framework.feature_gates import FeatureGates
from stowplan.inputs.document_reader import documents
from stowplan.inputs.files import read_bytes
from stowplan.insight.measure_conditions import parse_condition
from stowplan.insight.what_if.requested_changes import RequestedChange, requests_in, requests_of
from stowplan.insight.what_if.result import DELETED


class WhatIfRequest(NamedTuple):
    """The options of the command, by their names. changes: kind -> texts."""

    source: ClusterSource
    changes: dict[str, tuple[str, ...]]
    changes_file: str | None
    for_s: float | None
    default_s: float | None
    autoscale: str | None
    fail_if: str | None
    no_preemption: bool
    config_files: tuple[str, ...]
    plugin_files: tuple[str, ...]
    feature_gates: FeatureGates | None
    profile: str | None
    namespace: str | None
    now: datetime | None
    seed: int
    output: str


def run_what_if(request: WhatIfRequest) -> int:
    """Print the answer; 1 if the condition of --fail-if holds."""
    condition = None if request.fail_if is None else parse_condition(request.fail_if)
    if request.default_s is not None and request.for_s is None:
        raise click.UsageError("--default-run can be used with --for only")
    changes = _requested(request)
    if not changes:
        raise click.UsageError("no changes given: name at least one, such as --drain ZONE")
    kinds = {one.kind for one in changes}
    deciders = read_asked_deciders(
        request.source,
        request.config_files,
        request.plugin_files,
        gates=request.feature_gates,
        admits=True,
    )
    if deciders.kueue is not None and request.source.is_live and not request.config_files:
        deciders = deciders if _asks_kueue(request, changes) else scheduler_behind(deciders)
    _check_plugins(request, kinds, deciders)
    if deciders.kueue is not None:
        if condition is not None or request.for_s is not None or request.autoscale is not None:
            raise click.UsageError("with Kueue: --fail-if, --for and --autoscale do not apply")
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.cli.runs.kueue.kueue_what_if import run_kueue_what_if

        return run_kueue_what_if(request.source, deciders, changes, request.output)
    autoscale = read_autoscale_option(request.autoscale)
    cluster, now = read_asked_cluster(
        request.source,
        deciders,
        request.now,
        keep_manifests=request.for_s is not None,
        with_workloads=True,
        # Another configuration may read kinds that the one before does not.
        also=changed_deciders(changes, request.config_files, request.plugin_files, deciders.gates),
    )
    timing = None if request.for_s is None else Timing(request.for_s, request.default_s)
    options = WhatIfOptions(
        namespace=request.namespace or request.source.namespace,
        seed=request.seed,
        profile=request.profile,
        preemption=not request.no_preemption,
        timing=timing,
        now=now,
        autoscale=autoscale,
    )
    with paused_collector():
        question = question_of(cluster, config=deciders, options=options)
        question.config, question.plugins = request.config_files, request.plugin_files
        found = answer(question, changes)
    if condition is not None:
        condition.check(found.summary)
    if request.output in TREES:
        print_tree(found, request.output)
    elif request.output == "name":
        without = [one.pod for one in found.pods if not one.target and one.effect != DELETED]
        print_names("pod", [key.rpartition("/")[2] for key in without])
    else:
        print_what_if(found, stdout_console(), wide=request.output == "wide")
    if condition is None or not condition.holds(found.summary):
        return 0
    held = "; ".join(
        f"{one.measure} is {found.summary[one.measure]:g}"
        for one in condition.comparisons
        if one.holds(found.summary)
    )
    click.echo(f"Failed: {request.fail_if} ({held})", err=True)
    return 1


def _check_plugins(request: WhatIfRequest, kinds: set[str], deciders: Deciders) -> None:
    """Raise a usage error for plugins that would be added to a configuration without a file."""
    if "plugin" not in kinds or "config" in kinds or request.config_files or not deciders.files:
        return
    where = "with --record" if request.source.record_file else "beside `stowplan up --config`"
    raise click.UsageError(f"--plugin {where} needs --base-config or --config")


def _asks_kueue(request: WhatIfRequest, changes: tuple[RequestedChange, ...]) -> bool:
    """Whether the Kueue of `stowplan up` answers: jobs that ask for quota, and changes of queues
    and jobs alone; other changes are for the scheduler behind it. Raises InputError."""
    # Imported here: most clusters have nothing of Kueue.
    from stowplan.cli.runs.kueue.kueue_what_if import submits_queued_jobs

    if any(one.kind == "submit" for one in changes):
        return submits_queued_jobs(changes, request.source.validate or "auto")
    options = request.fail_if, request.for_s, request.autoscale
    kinds = {one.kind for one in changes}
    return kinds <= {"queue", "delete"} and all(one is None for one in options)


def _requested(request: WhatIfRequest) -> tuple[RequestedChange, ...]:
    """The changes of the flags and of the file."""
    given = [(kind, text) for kind, texts in request.changes.items() for text in texts]
    found = requests_of(given)
    if request.changes_file is None:
        return found
    source = request.changes_file
    more: list[RequestedChange] = []
    for document in documents(read_bytes(source), source, "yaml"):
        more += requests_in(document.tree, source)
    return (*found, *more)
