"""Recording a command's scheduler, and opening recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import reported
from stowplan.cli.record_options import RecordRequest
from stowplan.driver.storage.recording_writer import RecordingOptions, RecordingWriter
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_files import Recording, open_recording
from stowplan.recording.recording_header import plugin_records, recorded_deciders


@contextmanager
def recording(
    request: RecordRequest, command: str, plugin_files: Sequence[str] = (), *, waits: bool = False
) -> Iterator[RecordingWriter]:
    """Record until the end of the block. command, plugin_files: for the header. waits: see
    `RecordingOptions`."""
    size_max, kept = request.size_max, request.kept
    options = RecordingOptions(
        request.path, size_max, kept, waits, command, plugin_records(plugin_files)
    )
    with reported(RecordingError):
        writer = RecordingWriter(options)
    try:
        yield writer
    finally:
        writer.close()
    if writer.failure:
        click.echo(f"Warning: the recording ended early: {writer.failure}", err=True)


@contextmanager
def maybe_recording(
    request: RecordRequest | None, command: str, plugin_files: Sequence[str]
) -> Iterator[RecordingWriter | None]:
    """Record until the end of the block, if asked for."""
    if request is None:
        yield None
        return
    with recording(request, command, plugin_files) as writer:
        yield writer


def deciders_of_recording(path: Path, plugin_files: Sequence[str]) -> Deciders:
    """The configuration of a recording. Raises CommandError, ConfigError and ContractError."""
    with reported(RecordingError):
        found = open_recording(path)
        return recorded_deciders(found.header, found.source, plugin_files)


def opened(path: str | Path) -> Recording:
    """A recording; its notes go to standard error. Raises CommandError."""
    with reported(RecordingError):
        found = open_recording(path)
    for note in found.notes:
        click.echo(f"Note: {note}", err=True)
    return found
