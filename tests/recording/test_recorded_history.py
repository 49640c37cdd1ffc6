"""Recordings as files: verified, restored at a moment, rotated, ended by a full disk."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan.driver.live.exposition import SchedulerCollector
from stowplan.driver.storage import recording_writer
from stowplan.forecast.recorded_history import cluster_at, restore, summary_of, verify
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_files import open_recording
from tests.recording.recorded import record_simulation, write_each_batch

SMALL = 8_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "run.rec"
    record_simulation(path)
    return path


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rotated") / "run.rec"
    with pytest.MonkeyPatch.context() as patch:
        write_each_batch(patch, 60)
        record_simulation(path, size_max=SMALL, kept=99)
    return path


@pytest.mark.parametrize("replays", [True, False])
def test_the_same_is_decided(tmp_path: Path, replays: bool) -> None:
    record_simulation(tmp_path / "run.rec", seed=2, replays=replays)
    found = verify(open_recording(tmp_path / "run.rec"))
    assert found.is_exact
    assert found.is_equal
    assert found.n_effects > 100


def test_control_another_seed_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stowplan.recording import recording_header

    monkeypatch.setattr(recording_header.np.random, "default_rng", _other_generator())
    found = verify(open_recording(path))
    assert not found.is_equal
    assert found.divergence is not None
    assert found.divergence.recorded != found.divergence.decided


def _other_generator() -> object:
    import numpy as np

    original = np.random.default_rng
    return lambda seed: original(seed + 1)


def test_state_at_a_moment_is_that_of_the_recorded_bindings(path: Path) -> None:
    recording = open_recording(path)
    last = max(call.now for call in recording.calls())
    seconds = (last - recording.began) / 2e9
    cluster = cluster_at(path, f"+{seconds:.3f}s")
    until = recording.time(f"+{seconds:.3f}s")
    pods: dict[str, str] = {}
    for call in recording.calls(until):
        for event in call.events():
            pod = getattr(event, "pod", None)
            if pod is not None and type(event).__name__ in ("PodAdded", "PodUpdated"):
                pods[pod.key] = pod.node_name or pods.get(pod.key, "")
            if type(event).__name__ == "PodDeleted" or (pod is not None and pod.is_finished):
                pods.pop(pod.key, None)
        for effect in call.effects():
            if type(effect).__name__ == "Bind":
                pods[f"{effect.namespace}/{effect.name}"] = effect.node
    assert any(pods.values())
    assert {pod.key: pod.node_name for pod in cluster.pods if not pod.is_finished} == pods
    assert len(cluster.nodes) == 5


def test_every_part_is_read_in_order_and_alone(rotated: Path, path: Path, tmp_path: Path) -> None:
    whole = open_recording(rotated)
    assert len(whole.files) > 2
    assert not whole.notes
    assert verify(whole).is_exact
    assert verify(whole).is_equal
    n_calls = sum(1 for _ in open_recording(path).calls())
    assert sum(1 for _ in whole.calls()) == n_calls
    alone = tmp_path / "alone.rec"
    alone.write_bytes(rotated.read_bytes())
    part = open_recording(alone)
    assert "older files are not there" in part.notes[0]
    assert part.snapshot is not None
    state = summary_of(restore(part), part)
    exact = summary_of(restore(whole), whole)
    assert not state["recording"]["exact"]
    for figure in ("nodes", "bound", "time"):
        assert state[figure] == exact[figure]
    assert not verify(part).is_exact


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with pytest.MonkeyPatch.context() as patch:
        write_each_batch(patch, 60)
        record_simulation(path, size_max=SMALL, kept=2)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["run.rec", "run.rec.1", "run.rec.2"]
    assert all(file.stat().st_size < 3 * SMALL for file in tmp_path.iterdir())
    recording = open_recording(path)
    assert [file.header.part for file in recording.files] == [
        recording.header.part + number for number in range(3)
    ]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    path.write_text("mine")
    record_simulation(path)
    assert path.with_name("run.rec.1").read_text() == "mine"
    assert len(open_recording(path).files) == 1


def test_disk_full_ends_the_recording_and_not_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = os.write
    left = [6_000]

    def write(file: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n_bytes = min(left[0], len(data))
        left[0] -= n_bytes
        return written(file, data[:n_bytes])

    monkeypatch.setattr(recording_writer.os, "write", write)
    write_each_batch(monkeypatch, 60)
    with caplog.at_level(logging.ERROR, logger="stowplan.recording"):
        writer = record_simulation(tmp_path / "run.rec")
    assert writer.failure == "No space left on device"
    (record,) = [one for one in caplog.records if one.name == "stowplan.recording"]
    assert "Recording stopped; scheduling goes on" in record.getMessage()
    found = open_recording(tmp_path / "run.rec")
    assert found.files[0].torn is None
    assert sum(1 for _ in found.calls()) == writer.n_calls > 0
    assert verify(found).is_equal
    server: Any = SimpleNamespace(options=SimpleNamespace(recorder=writer))
    metrics = {one.name: one.samples[0].value for one in SchedulerCollector(server)._recording()}
    assert metrics["stowplan_recording_stopped"] == 1
    assert metrics["stowplan_recording_bytes"] == writer.n_bytes > 0


def test_times(path: Path) -> None:
    recording = open_recording(path)
    assert recording.time("+90s") == recording.began + 90 * 10**9
    assert recording.time("1970-01-01T00:01:30Z") == 90 * 10**9
    assert recording.time("1970-01-01T02:00:30+02:00") == 30 * 10**9
    for wrong in ("90s", "soon", "2026-01-01T00:00:00", "+1y"):
        with pytest.raises(RecordingError, match="expected an offset"):
            recording.time(wrong)
    with pytest.raises(RecordingError, match="before the recording"):
        recording.time("1969-12-31T00:00:00Z")


def test_an_unreadable_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no such file"):
        open_recording(tmp_path / "nope")
    (tmp_path / "text").write_text("kind: Pod")
    with pytest.raises(RecordingError, match="not a recording"):
        open_recording(tmp_path / "text")
