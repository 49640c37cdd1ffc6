"""A live scheduler is killed with kill -9: its recording is read back and decided again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stowplan.forecast.recorded_history import cluster_at, verify
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_files import open_recording

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 12
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: nginx, resources: {requests: {cpu: "7"}}}]
"""
WAIT_S = 240.0


def n_bound(path: Path) -> int:
    """Bindings that are in the file, which is being written."""
    try:
        calls = open_recording(path).calls()
        return sum(type(e).__name__ == "Bind" for call in calls for e in call.effects())
    except RecordingError:
        return 0


def test_kill_9(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(DEPLOYMENT)
    path = tmp_path / "up.rec"
    arguments = ["up", "web.yaml", "--node-count", "3", "--port", "0", "--record", str(path)]
    with subprocess.Popen(
        [sys.executable, "-m", "stowplan", *arguments],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        ends = time.monotonic() + WAIT_S
        while n_bound(path) < 3 and time.monotonic() < ends and process.poll() is None:
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL)
    recording = open_recording(path)
    assert not recording.files[-1].is_closed
    found = verify(recording)
    assert found.is_exact
    assert found.is_equal, found.divergence
    cluster = cluster_at(path)
    assert len(cluster.nodes) == 3
    assert len(cluster.bound()) == 3
