"""A flight recording on the page: at any moment it has what the restored scheduler has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from stowplan.cli.main import cli
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.forecast.recorded_history import restore
from stowplan.recording.recording_files import Recording, open_recording
from stowplan.web.model.recorded_run import RecordedRun, recorded_run
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.recording_source import RecordingSource
from tests.recording.recorded import record_simulation
from tests.web.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

S = 1_000_000_000
NODES = """
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
return [...document.querySelectorAll('.rows tbody tr')].map(cells).map((row) => [row[0], row[5]]);
"""
PREEMPTION = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "20"}}
---
apiVersion: v1
kind: Pod
metadata: {name: train, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {stowplan.dev/run-seconds: "3600"}}
spec: {containers: [{name: c, image: train, resources: {requests: {cpu: "4"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: report, creationTimestamp: "2026-01-01T00:10:00Z", annotations: {stowplan.dev/run-seconds: "300"}}
spec: {priority: 100, containers: [{name: c, image: report, resources: {requests: {cpu: "1"}}}]}
"""  # noqa: E501


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("recording") / "run.rec"
    record_simulation(path)
    return open_recording(path)


def on_nodes(recording: Recording, at: float) -> Counter[str]:
    """Pods on each node as the restored scheduler counts them; at: seconds from the start."""
    table = restore(recording, recording.began + round(at * S)).scheduler.cache.nodes
    counts = zip([one.name for one in table.nodes], table.pod_count.tolist(), strict=False)
    return Counter({name: count for name, count in counts if count})


def added_up(run: RecordedRun, at: float) -> Counter[str]:
    return Counter(one.node for one in run.run.pods if one.is_on_node(at))


def moments(run: RecordedRun, count: int) -> list[float]:
    """Times between two changes, so that no order within one matters."""
    times = sorted({t for one in run.run.pods for t in (one.created, one.bound, one.ended)})
    known = [t for t in times if t <= run.run.end]
    middles = [(one + other) / 2 for one, other in pairwise(known)]
    chosen = np.random.default_rng(2).choice(len(middles), count, replace=False)
    return sorted(middles[place] for place in chosen)


def test_intervals_are_those_of_the_restored_scheduler(recording: Recording) -> None:
    run = recorded_run(recording, [])
    seen = set()
    for at in moments(run, 2):
        expected = on_nodes(recording, at)
        assert added_up(run, at) == expected, at
        seen.add(sum(expected.values()))
    assert max(seen) > 0
    # Planted: a pod that ended without being noticed.
    ended = next(one for one in run.run.pods if one.is_on_node(one.bound) and one.ended < at)
    pods = [structs.replace(one, ended=1e12) if one is ended else one for one in run.run.pods]
    assert Counter(one.node for one in pods if one.is_on_node(at)) != expected


@pytest.fixture(scope="module")
def url(recording: Recording) -> Iterator[str]:
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(RecordingSource(recording, (), 1))
        yield server.url
    finally:
        server.stop()


def test_a_recording_is_scrubbed_and_explains_a_pod_of_then(
    page: Browser, recording: Recording, url: str
) -> None:
    run = recorded_run(recording, [])
    page.visit(f"{url}/#/nodes")
    page.until("return document.querySelector('.state').textContent === 'replay'")
    waiting = []
    for at in moments(run, 1):
        second = int(at)
        page.run("location.hash = arguments[0]", f"#/nodes?at={second}")
        expected = {name: str(count) for name, count in on_nodes(recording, second).items()}
        equal = (
            f"const rows = (() => {{{NODES}}})().filter(([, count]) => count !== '0');"
            "return JSON.stringify(Object.fromEntries(rows.sort())) === arguments[0]"
        )
        page.until(equal, json.dumps(dict(sorted(expected.items())), separators=(",", ":")))
        waiting += [
            (second, one.pod.key)
            for one in run.run.pods
            if one.created <= second < min(one.bound, one.ended)
        ]
    assert waiting
    second, pod = waiting[0]
    page.visit(f"{url}/#/pod?pod={pod}&at={second}")
    page.until("return document.querySelector('main').innerText.includes('Rules that refuse it')")
    text = page.run("return document.querySelector('main').innerText")
    assert pod in text
    assert "pending" in text
    page.visit(f"{url}/#/decisions")
    page.until("return document.querySelectorAll('.rows tbody tr').length > 5")
    assert page.logged() == []
    # The address keeps the moment: a reload shows the same.
    assert page.run("return location.hash") == "#/decisions"


def test_who_gave_way_in_a_recording(tmp_path: Path) -> None:
    file, record = tmp_path / "cluster.yaml", tmp_path / "run.rec"
    file.write_text(PREEMPTION)
    given = ["simulate", str(file), "--replay", "--until", "70m", "--record", str(record)]
    answer = CliRunner().invoke(cli, given, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    run = recorded_run(open_recording(record), [])
    (evicted,) = run.ring.evictions
    assert (evicted.pod, evicted.preemptor) == ("default/train", "default/report")
    assert 600_000 <= evicted.time <= 601_000


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--web=127.0.0.1:0", "--verify"], "--web cannot be used with"),
        (["--web=0.0.0.0:0"], "a recording has no API server"),
    ],
)
def test_invalid_uses(tmp_path: Path, given: list[str], text: str) -> None:
    answer = CliRunner().invoke(cli, ["replay", str(tmp_path / "x.rec"), *given])
    assert answer.exit_code == 2
    assert text in answer.output
