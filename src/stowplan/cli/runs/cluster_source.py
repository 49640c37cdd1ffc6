"""Reading the cluster of a command: from files, or listed once from an API server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.structs import replace

from stowplan.cli import live_options
from stowplan.cli.errors import reported

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders
    from stowplan.inputs.cluster_reader import Cluster

DEFAULT_NAMESPACE = "default"
USAGE_NOTE = (
    "fair shares are without usage over time (usageDBConfig): only the running scheduler has its "
    "record"
)
IGNORED_EXIT_CODE = 2
"""Exit code with --strict where kinds were ignored that may change the answer."""


class ClusterSource(NamedTuple):
    """Where a command's cluster comes from.

    paths: files and directories. kubeconfig, context: of an API server. orphans, validate: how
    files are read, see `read_cluster`; validate None: "auto". is_live: whether an API server is
    read. record_file, at: a recording, and the time in it, "" for its end. trace_format: as for
    `read_cluster`.
    """

    paths: tuple[str, ...]
    kubeconfig: str | None
    context: str
    orphans: str = "pending"
    validate: str | None = None
    is_live: bool = False
    record_file: Path | None = None
    at: str = ""
    trace_format: str = ""

    @classmethod
    def take(cls, given: dict[str, Any], *, local: bool = False) -> ClusterSource:
        """The source that a command's options name, which are taken out of `given`.

        local: where they name none, it is the cluster of `stowplan up` in this directory, if there
        is one. Raises a usage error where they name two.
        """
        paths = (*given.pop("clusters"), *given.pop("files"))
        kubeconfig, context = given.pop("kubeconfig"), given.pop("context")
        record_file, at = given.pop("record_file", None), given.pop("at", "")
        trace_format = given.pop("trace_format", None) or ""
        is_named = bool(kubeconfig or context)
        if at and record_file is None:
            raise click.UsageError("--at needs --record: a recording")
        if record_file is not None:
            if paths or is_named:
                raise click.UsageError("--record cannot be used with files or an API server")
            given.pop("orphans"), given.pop("validate")
            return cls((), None, "", record_file=record_file, at=at)
        if paths and is_named:
            raise click.UsageError("--kubeconfig and --context cannot be used with files")
        is_live = is_named or (not paths and live_options.uses_current_context())
        if local and not (paths or is_live):
            from stowplan.driver.cluster_discovery import local_cluster_kubeconfig

            kubeconfig = local_cluster_kubeconfig()
            is_live = kubeconfig is not None
        how = given.pop("orphans"), given.pop("validate")
        if trace_format and not paths:
            raise click.UsageError("--trace-format can be used with files only")
        return cls(paths, kubeconfig, context, *how, is_live, trace_format=trace_format)

    @property
    def is_given(self) -> bool:
        """True where the options name a cluster."""
        return self.is_live or bool(self.paths) or self.record_file is not None

    @property
    def namespace(self) -> str:
        """The namespace of objects that are named without one: the context's, or `default`."""
        if not self.is_live:
            return DEFAULT_NAMESPACE
        from stowplan.driver.client.credentials import CredentialError
        from stowplan.driver.client.kubeconfig_loading import load_client_config

        with reported(CredentialError):
            return load_client_config(self.kubeconfig, self.context).namespace or DEFAULT_NAMESPACE


def read_cluster_source(
    source: ClusterSource,
    deciders: Deciders,
    *,
    notes: bool = False,
    keep_manifests: bool = False,
    partial: bool = False,
    with_finished: bool = False,
    with_workloads: bool = False,
    next_run: str = "",
    also: Deciders | None = None,
) -> Cluster:
    """The cluster of the files, or what the plugins read of a live one, listed once.

    notes: print the notes of the cluster, for commands that print them nowhere else.
    keep_manifests: as for `read_cluster`. partial: leave out kinds that may not be listed, with a
    note, except nodes and pods. with_finished: list finished pods too. with_workloads: list what
    owns pods, too. next_run: as for `read_cluster`; files only. also: as for `list_once`. Raises
    InputError, usage errors, and CommandError where the API server does not answer.
    """
    if source.is_live:
        cluster = _list_cluster(
            source,
            deciders,
            also,
            partial=partial,
            with_finished=with_finished,
            with_workloads=with_workloads,
        )
    elif source.record_file is not None:
        cluster = read_recorded_cluster(source.record_file, source.at)[0]
    elif source.paths:
        cluster = _read_files(
            source,
            notes=notes,
            keep_manifests=keep_manifests,
            next_run=next_run,
            admits=deciders.kueue is not None,
        )
    else:
        raise click.UsageError(
            "no cluster given: name files (FILE, -f FILE, - for standard input) or an API server "
            "(--kubeconfig FILE, --context NAME)"
        )
    note = usage_note(deciders)
    if note and notes:
        click.echo(f"Note: {note}", err=True)
    elif note and partial:
        cluster.notes.append(note)
    return cluster


def usage_note(deciders: Deciders) -> str:
    """What is not known of a cluster's queues, "" for nothing."""
    if deciders.batch is None or deciders.batch.queue_model is None:
        return ""
    # Imported here: other configurations have no queue model.
    from stowplan.assembly.sessions.queue_models import counts_usage

    return USAGE_NOTE if counts_usage(deciders.batch, deciders.model_compat) else ""


def read_recorded_cluster(file: Path, at: str) -> tuple[Cluster, datetime | None]:
    """The cluster of a recording at a time, "" for its end, and that time; None in a simulation,
    whose times are virtual. Raises CommandError."""
    from stowplan.cli.runs.recordings.record_and_open import opened
    from stowplan.forecast.recorded_history import cluster_of, restore
    from stowplan.recording.frames import RecordingError

    recording = opened(file)
    with reported(RecordingError):
        restored = restore(recording, recording.time(at) if at else None)
    is_virtual = recording.header.setup.virtual
    moment = None if is_virtual else recording.wall_time(restored.now)
    return cluster_of(restored, recording), moment


def _list_cluster(
    source: ClusterSource, deciders: Deciders, also: Deciders | None, **how: bool
) -> Cluster:
    from stowplan.driver.client.credentials import CredentialError
    from stowplan.driver.client.kubeconfig_loading import load_client_config
    from stowplan.driver.client.kueue_listing import list_kueue_objects
    from stowplan.driver.client.one_shot_requests import ServerUnreachable, list_once
    from stowplan.inputs.cluster_reader import Cluster
    from stowplan.objects.node import with_ready_condition

    with reported(ServerUnreachable, CredentialError):
        client_config = load_client_config(source.kubeconfig, source.context)
        found = list_once(client_config, deciders, also=also, **how)
        trees = list_kueue_objects(client_config) if deciders.kueue is not None else []
    nodes = found.nodes
    if trees:
        # As Kueue: no kubelet has reported yet. In files such nodes are ready.
        nodes = [with_ready_condition(node, "Unknown") for node in nodes]
    return Cluster(nodes, found.pods, found.objects, notes=found.notes, kueue_objects=trees)


def _read_files(
    source: ClusterSource, *, notes: bool, keep_manifests: bool, next_run: str, admits: bool
) -> Cluster:
    from stowplan.driver.gc_settings import paused_collector
    from stowplan.inputs.cluster_reader import read_cluster
    from stowplan.inputs.ignored_kinds import REPLAYED, describe_ignored

    validate = source.validate or "auto"
    # Reading makes no garbage, and looking for it is expensive.
    with paused_collector():
        cluster = read_cluster(
            source.paths,
            orphans=source.orphans,
            validate=validate,
            keep_manifests=keep_manifests,
            trace_format=source.trace_format,
            next_run=next_run,
        )
    ignored = cluster.ignored
    if admits:
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.simulation.kueue.kueue_manifests import KUEUE_KINDS

        ignored = {kind: count for kind, count in ignored.items() if kind not in KUEUE_KINDS}
    if keep_manifests:
        ignored = {kind: count for kind, count in ignored.items() if kind not in REPLAYED}
    for line in describe_ignored(ignored):
        click.echo(f"Warning: {line}", err=True)
    for note in cluster.notes if notes else ():
        click.echo(f"Note: {note}", err=True)
    # What is read here must not count as ignored with --strict.
    return replace(cluster, ignored=ignored)


def strict_exit_code(code: int, cluster: Cluster | None, *, strict: bool) -> int:
    """The exit code: with --strict `IGNORED_EXIT_CODE` where kinds were ignored that may matter."""
    from stowplan.inputs.ignored_kinds import relevant_kinds

    matters = strict and cluster is not None and relevant_kinds(cluster.ignored)
    return IGNORED_EXIT_CODE if matters else code
