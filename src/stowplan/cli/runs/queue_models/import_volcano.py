"""What `stowplan import volcano` does: read the objects, find the configuration, simulate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.cli.errors import CommandError, reported
from stowplan.cli.runs.cluster_source import ClusterSource
from stowplan.cli.runs.simulate_sessions import run_sessions
from stowplan.config.session_configuration import VOLCANO_1_15
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.driver.client.volcano_listing import list_volcano_cluster
from stowplan.inputs.cluster_reader import read_objects
from stowplan.inputs.counts import count_of
from stowplan.inputs.document_reader import documents
from stowplan.inputs.files import files_at
from stowplan.inputs.ignored_kinds import describe_ignored
from stowplan.inputs.importers.volcano_cluster import ImportedVolcano, volcano_cluster_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.manifests import items
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.encoding.tree import Tree
from stowplan.simulation.results.result_files import check_directory

CLUSTER, CONFIGURATION = "cluster.json", "volcano-scheduler.conf"
"""Files that --save writes."""


def run_import_volcano(
    source: ClusterSource, save: Path | None, output: str, *, is_exact: bool
) -> int:
    """Import, save and simulate; the exit code. is_exact: with Volcano's defects."""
    if not source.is_given:
        raise click.UsageError(
            "no cluster given: name files (FILE, -f FILE, - for standard input) or an API server "
            "(--kubeconfig FILE, --context NAME)"
        )
    if save is not None:
        check_directory(save)
    trees, title = _objects(source)
    found = volcano_cluster_of(trees)
    deciders = deciders_of(
        [ConfigText(found.configuration, found.source)], compat=VOLCANO_1_15 if is_exact else ""
    )
    _print_summary(found, deciders)
    if save is not None:
        _save(save, found)
    validate = source.validate or "auto"
    cluster = read_objects(found.objects, title, orphans=source.orphans, validate=validate)
    for line in describe_ignored(cluster.ignored):
        click.echo(f"Warning: {line}", err=True)
    return run_sessions(
        cluster,
        deciders,
        0,
        None,
        output,
        strict=False,
        recording=(None, ()),
        on_files=lambda files: None,
    )


def _objects(source: ClusterSource) -> tuple[list[Tree], str]:
    """The objects, and what they are called in errors."""
    if not source.is_live:
        return list(_objects_of_files(source.paths)), ", ".join(source.paths)
    with reported(ServerUnreachable, CredentialError):
        client_config = load_client_config(source.kubeconfig, source.context)
        listing = list_volcano_cluster(client_config)
    if listing.refused:
        click.echo(f"Note: {listing.refused}", err=True)
    return listing.trees, client_config.server


def _objects_of_files(paths: tuple[str, ...]) -> Iterator[Tree]:
    for file in files_at(paths):
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            try:
                for tree, _ in items(document.tree):
                    yield tree
            except DecodeError as problem:
                place = f"{document.source}: {document.place}"
                raise InputError.at(place, problem.path, problem.what) from None


def _print_summary(found: ImportedVolcano, deciders: Deciders) -> None:
    """What was found and what is not modelled, on standard error."""
    parts = ", ".join(count_of(count, kind) for kind, count in found.counts.items())
    click.echo(f"Imported: {parts}", err=True)
    click.echo(f"Configuration: {found.source}", err=True)
    notes = list(found.notes)
    if deciders.batch is not None:
        notes += (f"{found.source}: {warning}" for warning in deciders.batch.warnings)
    for note in notes:
        click.echo(f"Note: {note}", err=True)


def _save(directory: Path, found: ImportedVolcano) -> None:
    listing = {"apiVersion": "v1", "kind": "List", "items": found.objects}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / CLUSTER).write_bytes(msgspec.json.format(msgspec.json.encode(listing)))
        (directory / CONFIGURATION).write_text(found.configuration, encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"{directory}: {problem.strerror or problem}") from None
