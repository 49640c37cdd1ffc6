"""The page of a flight recording, served until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path

from stowplan.cli.errors import reported
from stowplan.cli.runs.pages.simulation_page import check_simulation_address, serve_finished
from stowplan.cli.runs.recordings.record_and_open import opened
from stowplan.recording.frames import RecordingError
from stowplan.web.serving.recording_source import RecordingSource


def serve_recording(web: str, file: Path, plugin_files: tuple[str, ...]) -> None:
    """Serve a recording until SIGINT or SIGTERM. Raises CommandError, ConfigError and
    ContractError."""
    check_simulation_address(web, "a recording")
    recording = opened(file)
    with reported(RecordingError):
        source = RecordingSource(recording, plugin_files, int(time.time()))
    serve_finished(web, source)
