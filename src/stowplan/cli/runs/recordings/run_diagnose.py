"""What `stowplan diagnose` does: read a recording or ask a scheduler, and print the findings."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from stowplan.cli.errors import reported
from stowplan.cli.options import TREES
from stowplan.cli.runs.recordings.record_and_open import opened
from stowplan.cli.tables.console import print_tree, stdout_console
from stowplan.cli.tables.fairness import print_findings
from stowplan.driver.gc_settings import paused_collector
from stowplan.insight.fairness.fairness_watch import findings_of
from stowplan.insight.fairness.findings import FairnessLimits, Finding
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_header import recorded_deciders


class DiagnoseRequest(NamedTuple):
    """The options of the command, by their names; durations in seconds."""

    file: Path | None
    at: str
    window: float | None
    preemptions: int | None
    starving_for: float | None
    pending_for: float | None
    address: str
    kubeconfig: str | None
    context: str
    token: str
    ca_file: str
    plugin_files: tuple[str, ...]
    output: str

    @property
    def limits(self) -> FairnessLimits:
        """The limits, with defaults."""
        given = (self.window, self.preemptions, self.starving_for, self.pending_for)
        names = FairnessLimits.__struct_fields__
        chosen = {k: v for k, v in zip(names, given, strict=True) if v is not None}
        return msgspec.convert(chosen, FairnessLimits)


def run_diagnose(request: DiagnoseRequest) -> int:
    """Print the findings; 1 if there are any."""
    found = _live(request) if request.file is None else _recorded(request, request.file)
    if request.output in TREES:
        print_tree({"findings": found}, request.output)
    elif found:
        print_findings(found, stdout_console(), wide=request.output == "wide")
    else:
        click.echo("Nothing found.")
    return 1 if found else 0


def _recorded(request: DiagnoseRequest, file: Path) -> list[Finding]:
    recording = opened(file)
    with reported(RecordingError), paused_collector():
        until = recording.time(request.at) if request.at else None
        deciders = recorded_deciders(recording.header, recording.source, request.plugin_files)
        return findings_of(recording, deciders.configuration, request.limits, until)


def _live(request: DiagnoseRequest) -> list[Finding]:
    # Imported here: the client of a running scheduler is slow to import.
    from stowplan.cli.runs.status import status_tree

    where = request.address, request.kubeconfig, request.context
    tree = status_tree(*where, request.token, request.ca_file)
    return msgspec.convert(tree.get("findings", []), list[Finding])
