"""The demo as a user runs it, and that its checks can fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from stowplan.cli.commands import demo
from stowplan.cli.runs import demo as demo_show
from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.examples import demo_cluster
from stowplan.examples.demo import DemoDisplay, DemoResult, run_demo
from stowplan.examples.demo_cluster import AcceleratedClock, AppPlacement, DemoCheck
from stowplan.examples.demo_explanations import explain_placement
from stowplan.examples.demo_manifests import BATCH, CONFIGURATION
from stowplan.examples.demo_state import ObservedCluster, quantile
from stowplan.examples.demo_steps import DEMO_STEPS, DemoStep
from stowplan.messages.events import PodAdded, PodDeleted, PodUpdated
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.testing import node, pod

whole = pytest.mark.slow
together = pytest.mark.xdist_group("embedded")


class Silent:
    """Somebody who keeps what is said."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, number: int, n_steps: int, step: DemoStep) -> None:
        self.begun.append(step.title)

    def say(self, text: str) -> None:
        """Not kept."""

    def report_check(self, check: DemoCheck) -> None:
        """The outcome has it."""

    def refresh(self, view: ObservedCluster) -> None:
        """Not looked at."""


def started(folder: Path) -> subprocess.Popen[str]:
    """The command, in an empty directory, with an empty one for temporary files."""
    for name in ("here", "temporary"):
        (folder / name).mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "stowplan", "demo", "--fast"],
        cwd=folder / "here",
        # A proxy that nobody is at: the way from here to here does not lead through it.
        env=os.environ
        | {"TMPDIR": str(folder / "temporary"), "PYTHONUNBUFFERED": "1"}
        | {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left_behind(folder: Path) -> list[Path]:
    return [path for name in ("here", "temporary") for path in (folder / name).iterdir()]


@whole
@together
def test_all_steps_pass_and_nothing_is_left(tmp_path: Path) -> None:
    process = started(tmp_path)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    for step in DEMO_STEPS:
        assert f"{step.title}. {step.explanation}" in text
    assert "checks passed" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["product", "3", "36", "22"] in [row[:4] for row in rows]
    assert ["research", "1", "12", "12"] in [row[:4] for row in rows]
    assert ["survey", "batch", "0", "of", "24"] in [row[:5] for row in rows]
    assert ["web", "default-scheduler", "12", "of", "12"] in [row[:5] for row in rows]
    why = {row[0]: " ".join(row) for row in rows if "default-scheduler" in row or "batch" in row}
    # How many depends on which of the pods arrived together.
    spread = r"[1-5] of 6 nodes fit \([1-5] node\(s\) didn't match pod topology spread"
    assert re.search(spread, why["api"])
    assert "3 evicted, PreemptionByScheduler: default-scheduler: preempting" in why["report"]
    assert "NotEnoughResources: 24/24 tasks in gang unschedulable" in why["survey"]
    assert "reclaim for default/serve" in why["sweep"]
    assert "stowplan up" in text
    assert "Traceback" not in text
    assert left_behind(tmp_path) == []


@whole
@together
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "Deployment web" in line:
            break
    process.send_signal(number)
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 130, "".join(seen) + text
    assert "Traceback" not in text
    assert left_behind(tmp_path) == []


@whole
@together
def test_a_step_fails_without_the_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    without = CONFIGURATION.replace("reclaim, ", "")
    assert without != CONFIGURATION
    monkeypatch.setattr(demo_cluster, "CONFIGURATION", without)
    gangs, reclaim = (step for step in DEMO_STEPS if step.title in ("Gangs", "Reclaim"))
    outcome = run_demo(Silent(), fast=True, steps=(gangs, impatient(reclaim, monkeypatch)))
    failed = [check for check in outcome.checks if not check.held]
    assert [check.expected.partition(":")[0] for check in failed] == [
        "sweep is reduced to 6 pods",
        "serve gets the reclaimed resources",
    ]
    assert "0 evicted" in failed[0].seen
    assert not outcome.is_as_expected


def impatient(step: DemoStep, monkeypatch: pytest.MonkeyPatch) -> DemoStep:
    async def run(demo: demo_cluster.DemoCluster) -> None:
        monkeypatch.setattr(demo_cluster, "EXPECT_TIMEOUT_S", 8.0)
        await step.run(demo)

    return step._replace(run=run)


def outcome(held: bool) -> DemoResult:
    check = DemoCheck("two on each", "three on n1", held)
    return DemoResult([check], [], [], ClusterListing(), 1.0, ["bad luck"])


@pytest.mark.parametrize(("held", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_is_0_if_all_checks_passed(
    monkeypatch: pytest.MonkeyPatch, held: bool, code: int
) -> None:
    def played(
        observer: DemoDisplay, *, fast: bool = False, steps: Sequence[DemoStep] = DEMO_STEPS
    ) -> DemoResult:
        return outcome(held)

    monkeypatch.setattr(demo_show, "run_demo", played)
    result = CliRunner().invoke(demo.command, ["--fast"])
    assert result.exit_code == code, result.output
    report = "  expected: two on each\n  observed: three on n1\n  bad luck\n"
    assert (report in result.output) == (not held)


def placement(*pods: Pod, key: str, by: str = DEFAULT_SCHEDULER) -> AppPlacement:
    nodes = [node("n1", cpu="4"), node("n2", cpu="4"), node("n3", cpu="2")]
    return AppPlacement(
        "app", by, 1, 1, {}, key, ClusterListing(nodes, list(pods), []), ["written"]
    )


def test_the_explanation_is_that_of_the_snapshot() -> None:
    explanation = explain_placement(placement(pod("web", cpu="1", on="n2"), key="default/web"))
    assert explanation.startswith("3 of 3 nodes fit, n1 has ")
    assert " points as 1 more, n3 " in explanation
    assert "NodeResourcesFit +" in explanation
    assert explanation.endswith("; written")
    explanation = explain_placement(
        placement(pod("web", cpu="3", on="n2"), pod("big", cpu="4"), key="default/big")
    )
    assert explanation == "1 of 3 nodes fit (2 Insufficient cpu); written"
    explanation = explain_placement(
        placement(pod("web", cpu="1", scheduler=BATCH), key="default/web", by=BATCH)
    )
    assert explanation.startswith("queue default: 0 of 1 have a node")
    assert explain_placement(placement(key="")) == "no pod is left"


def test_a_view_keeps_times_of_pods() -> None:
    view = ObservedCluster()
    waiting = pod("web", cpu="500m", labels={"app": "web"})
    placed = pod("web", cpu="500m", labels={"app": "web"}, on="n1")
    view.handle([PodAdded(waiting)])
    assert [one.app for one in view.waiting("web")] == ["web"]
    assert view.waits_s(batch=False) == []
    view.handle([PodUpdated(placed)])
    assert view.per_node("web") == {"n1": 1}
    (wait_s,) = view.waits_s(batch=False)
    assert 0 <= wait_s < 60
    view.handle([PodDeleted(placed)])
    assert list(view.live()) == []
    assert view.waits_s(batch=False) == [wait_s]
    assert view.waits_s(batch=True) == []


def test_a_hurried_clock_neither_jumps_nor_counts_what_was_slept_through() -> None:
    wall = [1000.0]
    clock = AcceleratedClock(lambda: wall[0])
    wall[0] += 30
    assert clock() == 1030
    clock.run(20.0)
    assert clock() == 1030
    wall[0] += 0.5
    assert clock() == 1040
    wall[0] += 60
    assert clock() == 1060
    clock.run(1.0)
    wall[0] += 3
    assert clock() == 1063
    wall[0] -= 10
    assert clock() == 1063


@pytest.mark.parametrize(("part", "wanted"), [(0.5, 51), (0.99, 100), (0.0, 1), (1.0, 100)])
def test_quantiles_are_values_that_were_seen(part: float, wanted: float) -> None:
    assert quantile([float(n) for n in range(1, 101)], part) == wanted
    assert quantile([], part) == 0.0
