"""Recordings for tests."""

from __future__ import annotations

from pathlib import Path

from stowplan.driver.storage.recording_writer import RecordingOptions, RecordingWriter
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate

N_NODES, N_PODS = 5, 120


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
