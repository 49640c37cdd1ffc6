"""Runs whose plugin breaks its contract are failed runs, also if every pod gets a node later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.experiments.experiment_run import experiment
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from tests.experiments.test_experiment import PLAN

ONCE = """
from stowplan.framework import {kind}

n_calls = [0]

@{kind}("flaky")
def flaky(pod, node):
    n_calls[0] += 1
    if n_calls[0] == 3:
        raise ValueError("once")
    return {answer}
"""
HINT = """
from stowplan.framework import OK, unschedulable
from stowplan.framework.clusterevents import POD, Action, on

def hint(pod, old, new):
    raise KeyError("hint")

class Flaky:
    name = "Flaky"

    def filter(self, pod, node):
        return unschedulable("one pod a node") if len(node.pods) else OK

    def events_to_register(self):
        return [on(POD, Action.DELETE, hint)]
"""
ENABLED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Flaky}]}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: p{0}, annotations: {{stowplan.dev/run-seconds: "60"}}}}
spec: {{containers: [{{name: c, image: i}}]}}
"""
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
""" + "".join(POD.format(number) for number in range(2))


def write(folder: Path, text: str) -> str:
    file = folder / "flaky.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("mode", ["fill", "replay"])
@pytest.mark.parametrize(("kind", "answer"), [("filter", "True"), ("score", "0")])
def test_a_plugin_that_raised_once_fails_its_run(
    mode: str, kind: str, answer: str, tmp_path: Path
) -> None:
    plugin = write(tmp_path, ONCE.format(kind=kind, answer=answer))
    policies = ["default", {"name": "flaky", "plugins": plugin}]
    options = {"sampleEvery": "12h"} if mode == "replay" else {}
    plan = {**PLAN, "mode": mode, "policies": policies, "seeds": 1, "options": options}
    found = experiment(plan, out=tmp_path / "out", jobs=1, report=False)
    (error,) = found.failures.values()
    assert f"plugin 'flaky': {kind} of pod " in error
    assert "raised ValueError: once (flaky.py:" in error
    assert {run.policy: run.status for run in found.runs} == {"default": "done", "flaky": "failed"}


def small_replay(plugin: str) -> Any:
    replay = ReplayOptions(sample_s=43200.0)
    return simulate(generate_workload(2, 8, 0), plugins=[plugin], replay=replay)


def test_the_last_messages_of_pods_have_nothing_of_it(tmp_path: Path) -> None:
    found = small_replay(write(tmp_path, ONCE.format(kind="filter", answer="True")))
    assert not any("raised" in one.message for one in found.placements)
    assert found.plugin_failure.startswith("plugin 'flaky': filter of pod ")


def test_an_answer_of_a_wrong_type_is_a_failure(tmp_path: Path) -> None:
    text = ONCE.format(kind="score", answer="'three'").replace("raise ValueError", "len")
    found = small_replay(write(tmp_path, text))
    assert found.plugin_failure.startswith("plugin 'flaky': ")
    assert "'three'" in found.plugin_failure


def test_a_plugin_that_only_refuses_does_not_fail(tmp_path: Path) -> None:
    found = small_replay(write(tmp_path, ONCE.format(kind="filter", answer="False")))
    assert "once" in found.plugin_failure
    never = ONCE.format(kind="filter", answer="False").replace("== 3", "== -1")
    assert small_replay(write(tmp_path, never)).plugin_failure == ""


def test_a_hint_that_raised_is_a_failure(tmp_path: Path) -> None:
    """The pod is queued all the same, and bound."""
    config = tmp_path / "config.yaml"
    config.write_text(ENABLED)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER)
    replay = ReplayOptions(sample_s=60.0)
    plugins = [write(tmp_path, HINT)]
    found = simulate(str(cluster), config=str(config), plugins=plugins, replay=replay)
    assert all(one.bound_s is not None for one in found.placements)
    assert found.plugin_failure.startswith("plugin 'Flaky': a hint of pod ")
