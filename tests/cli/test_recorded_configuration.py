"""Questions about a recording are decided by its configuration, unless another one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stowplan.cli.runs.recordings.record_and_open import deciders_of_recording
from tests.batch.queue_models import test_kai_model as kai
from tests.cli.run import run
from tests.cli.test_recording_commands import CLUSTER

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NO_FIT = HEAD + "profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]\n"
LARGE = """
apiVersion: v1
kind: Pod
metadata: {name: large}
spec: {containers: [{name: c, image: a, resources: {requests: {cpu: "8"}}}]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording by a profile without NodeResourcesFit."""
    made = tmp_path_factory.mktemp("recorded")
    files = {"cluster": CLUSTER, "nofit": NO_FIT, "default": HEAD, "large": LARGE}
    for name, text in files.items():
        (made / f"{name}.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        given = "cluster.yaml", "--config", "nofit.yaml", "--replay"
        ran = run("simulate", *given, "--record", "run.rec")
        assert ran.code == 0, ran.err
    return made


@pytest.mark.parametrize(
    ("command", "config", "node"),
    [
        ("what-if --submit large.yaml", "", "n1"),
        ("what-if --submit large.yaml", "--base-config default.yaml", ""),
        ("what-if --submit large.yaml --config default.yaml", "", ""),
        ("preempt-preview --submit large.yaml", "", "n1"),
        ("preempt-preview --submit large.yaml", "--config default.yaml", ""),
    ],
)
def test_who_decides(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, config: str, node: str
) -> None:
    monkeypatch.chdir(folder)
    ran = run(*command.split(), "--record", "run.rec", *config.split(), "-o", "json")
    found = json.loads(ran.out)
    (pod,) = [one for one in found["pods"] if one["pod"] == "default/large"]
    assert pod.get("to", pod.get("node", "")) == node


def test_a_plugin_for_a_recorded_scheduler_needs_its_configuration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    ran = run("what-if", "--record", "run.rec", "--plugin", "nofit.yaml")
    assert ran.code == 2
    assert "--plugin with --record needs --base-config or --config" in ran.err


def test_a_recording_keeps_the_defects_of_a_queue_model(tmp_path: Path) -> None:
    """`--compat kai` is what decides: without it KAI's defects would be mended in a replay."""
    file, cluster = tmp_path / "run.rec", tmp_path / "cluster.yaml"
    objects = kai.node("n", 1), kai.queue("q", 1), kai.group("g", "q", 1), kai.pod("p", of="g")
    cluster.write_text(yaml.safe_dump_all(objects))
    ran = run("simulate", str(cluster), "--compat", "kai", "--record", str(file))
    assert ran.code == 0, ran.err
    assert deciders_of_recording(file, ()).model_compat == "kai"
