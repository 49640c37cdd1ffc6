"""`stowplan report` and `stowplan simulate --report`."""

import json
from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run

SIZE = ("--node-count", "5", "--pod-count", "20")
SESSIONS = """
actions: "allocate"
tiers: [{plugins: [{name: gang}, {name: proportion}]}]
"""
GANG = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n0}
  status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: default}
  spec: {weight: 1}
- apiVersion: v1
  kind: Pod
  metadata: {name: a, namespace: default}
  spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""


def test_report_writes_the_page_of_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("simulate", *SIZE, "--out", str(out)).code == 0
    ran = run("report", str(out))
    assert (ran.code, ran.out) == (0, f"Written: {out}/report.html\n")
    page = (out / "report.html").read_text()
    assert "Allocation against arrived load" in page
    plain = tmp_path / "plain.html"
    assert run("report", str(out), "--no-script", "-o", str(plain)).code == 0
    assert "<script" in page
    assert "<script" not in plain.read_text()
    assert "<svg" in plain.read_text()


def test_simulate_writes_the_report_of_its_run(tmp_path: Path) -> None:
    file = tmp_path / "new" / "run.html"
    ran = run("simulate", *SIZE, "--replay", "--report", str(file))
    assert ran.code == 0, ran.err
    assert f"Report: {file}" in ran.err
    page = file.read_text()
    assert f"stowplan simulate {' '.join(SIZE)} --replay --report {file}" in page
    assert "Replay in virtual time" in page
    assert list(file.parent.iterdir()) == [file]
    found = run("simulate", *SIZE, "-o", "json", "--report", str(file))
    assert json.loads(found.out)["pods"] == 20
    assert found.err == ""


def test_sessions_have_a_report(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(SESSIONS)
    (tmp_path / "gang.yaml").write_text(GANG)
    file = tmp_path / "run.html"
    files = ("--config", str(tmp_path / "conf.yaml"), "-f", str(tmp_path / "gang.yaml"))
    ran = run("simulate", *files, "--validate", "ignore", "--report", str(file))
    assert ran.code == 0, ran.err
    assert "Pods placed" in file.read_text()


def test_a_cluster_without_pending_pods_has_a_report(tmp_path: Path) -> None:
    (tmp_path / "bound.yaml").write_text(
        GANG.replace("kind: Queue", "kind: PriorityClass")
        .replace("scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1")
        .replace("  spec: {weight: 1}", "  value: 1")
        .split("- apiVersion: v1\n  kind: Pod")[0]
    )
    file = tmp_path / "run.html"
    ran = run("simulate", str(tmp_path / "bound.yaml"), "--report", str(file))
    assert ran.code == 0, ran.err
    assert "0 of 0" in ran.out
    assert file.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "{tmp}/none"), "no such file or directory: expected the results of"),
        (("report", "{tmp}"), "neither experiment.json nor summary.json in it: expected"),
        (("simulate", *SIZE, "--seeds", "2", "--report", "{tmp}/a.html"), "with several seeds"),
        (("simulate", *SIZE, "--report", "{tmp}/file/a.html"), "not a directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "file").touch()
    ran = run(*(one.replace("{tmp}", str(tmp_path)) for one in arguments))
    assert ran.code == 2
    assert message in ran.err
    if arguments[0] == "report":
        check_one_line(ran, message)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
