"""Recordings for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.driver.storage import recording_writer
from stowplan.driver.storage.recording_writer import RecordingOptions, RecordingWriter
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate

N_NODES, N_PODS = 5, 120


def write_each_batch(patch: pytest.MonkeyPatch, size: int) -> None:
    """Record in batches of some messages, and let the scheduler wait until each is written: it
    learns after the same call every time that a file is full."""
    for name, value in (("BATCH", size), ("DUE_BATCHES", 1), ("BACKLOG_MAX", 0)):
        patch.setattr(recording_writer, name, value)


def record_simulation(
    path: Path, *, size_max: int = 2**30, kept: int = 4, seed: int = 0, replays: bool = True
) -> RecordingWriter:
    """Record a replay of a generated workload on a small cluster, or a placement run."""
    writer = RecordingWriter(RecordingOptions(path, size_max, kept, waits=True))
    try:
        workload = generate_workload(N_NODES, N_PODS, seed)
        replay = ReplayOptions(speedup=20) if replays else None
        simulate(workload, seed=seed, replay=replay, recorder=writer)
    finally:
        writer.close()
    return writer
