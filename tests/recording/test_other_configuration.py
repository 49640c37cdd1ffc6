"""A recorded history with another configuration, in the same model."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.forecast.other_configuration import compare_configuration
from stowplan.recording import recorded_workload
from stowplan.recording.frames import RecordingError
from stowplan.recording.recorded_workload import workload_of
from stowplan.recording.recording_files import open_recording
from stowplan.simulation.scheduler_configuration import read_deciders
from tests.recording.recorded import record_simulation

PACKED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu}, {name: memory}]}}
"""
NONE_FITS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, plugins: {preEnqueue: {disabled: [{name: "*"}]}},
  pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {
    requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: nowhere, operator: Exists}]}]}}}}]}]
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "run.rec"
    record_simulation(path)
    return path


def test_the_recorded_configuration_places_as_recorded(path: Path) -> None:
    recording = open_recording(path)
    workload = workload_of(recording)
    found = compare_configuration(recording, read_deciders())
    assert found.pods == 120
    assert sum(bool(pod.node) for pod in workload.pods.values()) > 50
    assert found.evictions[0] == found.evictions[1] > 0
    assert found.unlike_recorded == 0
    assert not found.differences
    assert not found.notes


def test_another_configuration_moves_pods(path: Path, tmp_path: Path) -> None:
    (tmp_path / "packed.yaml").write_text(PACKED)
    found = compare_configuration(open_recording(path), read_deciders(tmp_path / "packed.yaml"))
    assert found.unlike_recorded == 0
    assert found.counts["moved"] > 20
    assert sum(found.counts.values()) == len(found.differences)
    moved = [one for one in found.differences if one.change == "moved"]
    assert all(one.node != one.other for one in moved)
    for one in found.differences:
        assert (one.change == "unplaced") == bool(one.node and not one.other)


def test_unplaced_pods_have_the_reason(path: Path, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text(NONE_FITS)
    found = compare_configuration(open_recording(path), read_deciders(tmp_path / "none.yaml"))
    assert found.counts["unplaced"] > 50
    unplaced = [one for one in found.differences if one.change == "unplaced"]
    assert all("node affinity" in one.reason for one in unplaced)


def test_control_replacements_that_arrive_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: a pod that a controller created after an eviction counts as an arrival."""
    monkeypatch.setattr(recorded_workload, "_place_of", lambda pod: pod.uid)
    found = compare_configuration(open_recording(path), read_deciders())
    assert found.unlike_recorded > 0 or found.pods > 120


def test_a_placement_run_has_no_history(tmp_path: Path) -> None:
    record_simulation(tmp_path / "fill.rec", replays=False)
    with pytest.raises(RecordingError, match="no time passes"):
        compare_configuration(open_recording(tmp_path / "fill.rec"), read_deciders())
