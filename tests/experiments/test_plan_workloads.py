"""Workloads of a plan: traces whose format is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.experiments.experiment_run import experiment, prepare_experiment
from stowplan.framework.problems import ConfigError
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from tests.inputs.traces import samples


def plan_of(workload: dict[str, Any]) -> dict[str, Any]:
    return {
        "mode": "replay",
        "workloads": [{"name": "dump", **workload}],
        "policies": ["default"],
        "options": {"sampleEvery": "12h"},
    }


def test_a_dump_is_replayed_as_the_plan_names_it(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(samples.DUMP)
    named = plan_of({"files": "dump.json", "traceFormat": "kubectl"})
    found = experiment(named, out=tmp_path / "out", traces=tmp_path, jobs=1, report=False)
    assert not found.failures
    cluster = read_cluster(file, trace_format="kubectl")
    replayed = simulate(cluster, replay=ReplayOptions(sample_s=43200.0))
    written = found.folder / "runs" / found.runs[0].key / "placements.jsonl"
    assert written.read_bytes() == replayed.files()["placements.jsonl"]
    assert written.read_bytes()
    plain = prepare_experiment(plan_of({"files": "dump.json"}), tmp_path, ())
    assert plain.tasks[0].key != found.runs[0].key


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (
            {"files": "a.json", "traceFormat": "kubectll"},
            r"traceFormat: .*'kubectll'.*did you mean",
        ),
        ({"generated": {}, "traceFormat": "swf"}, r"traceFormat: .*'swf'.*it is for files"),
    ],
)
def test_a_format_that_cannot_be_is_an_error(workload: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        prepare_experiment(plan_of(workload), None, ())
