"""Invalid input: one line with the place and what is expected, exit code 2, no partial output."""

from __future__ import annotations

from pathlib import Path

import pytest

import stowplan
from tests.cli.run import check_one_line, run

NODE = 'kind: Node\napiVersion: v1\nmetadata: {name: n}\nstatus: {allocatable: {cpu: "1"}}\n'


def given(tmp_path: Path, text: str, name: str = "c.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_a_missing_file() -> None:
    check_one_line(run("simulate", "--cluster", "nowhere.yaml"), "nowhere.yaml", "no such file")


def test_an_empty_cluster(tmp_path: Path) -> None:
    path = given(tmp_path, "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}\n")
    check_one_line(run("simulate", "--cluster", path), "c.yaml", "no nodes", "at least one node")


def test_an_invalid_quantity(tmp_path: Path) -> None:
    path = given(tmp_path, NODE.replace('"1"', '"4 cores"'))
    check_one_line(run("simulate", "--cluster", path), "c.yaml", "allocatable", "4 cores")


def test_a_wrong_type(tmp_path: Path) -> None:
    path = given(tmp_path, NODE.replace("{name: n}", "{name: n, labels: [a]}"))
    check_one_line(run("simulate", "--cluster", path), "c.yaml", "metadata.labels")


def test_broken_yaml(tmp_path: Path) -> None:
    check_one_line(run("simulate", "--cluster", given(tmp_path, "kind: [\n")), "c.yaml", "line 2")


def test_a_malformed_row(tmp_path: Path) -> None:
    rows = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,many,2,P100\n"
    path = given(tmp_path, rows, "nodes.csv")
    check_one_line(run("simulate", "--cluster", path), "nodes.csv", "line 2", "memory_mib", "many")


def test_an_unknown_plugin(tmp_path: Path) -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Nodename}]}}}]\n"
    )
    ran = run("simulate", "--config", given(tmp_path, text))
    check_one_line(ran, "profiles[0].plugins.filter.enabled[0].name", "did you mean 'NodeName'?")


def test_a_plugin_file_that_raises(tmp_path: Path) -> None:
    path = given(tmp_path, "import json\n\njson.nothing\n", "mine.py")
    check_one_line(run("simulate", "--plugin", path), "mine.py:3", "AttributeError")


def test_an_unknown_parameter_of_a_plugin_method(tmp_path: Path) -> None:
    code = "class Mine:\n    name = 'Mine'\n    def score(self, noed): return 1\n"
    ran = run("simulate", "--plugin", given(tmp_path, code, "mine.py"))
    check_one_line(ran, "score()", "'noed'", "did you mean 'node'?")


def test_a_plugin_that_scores_out_of_range(tmp_path: Path) -> None:
    code = "class Mine:\n    name = 'Mine'\n    def score(self, node): return 140\n"
    path = given(tmp_path, code, "mine.py")
    ran = run("simulate", "--plugin", path, "--node-count", "3", "--pod-count", "2", "--strict")
    # Each pod fails by it, as it would in a cluster.
    assert ran.code == 1
    assert "0 of 2 pods placed" in ran.out
    assert "'Mine' scores 140 on node 'small-0000'; expected 0..100 (mine.py:3)" in ran.out


def test_a_file_where_a_directory_is_wanted(tmp_path: Path) -> None:
    path = given(tmp_path, NODE)
    ran = run("simulate", "--cluster", path, "--out", path)
    assert ran.code == 2
    assert "c.yaml" in ran.err
    assert Path(path).read_text() == NODE


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--node-count", "0"], ["--nonsense"]])
def test_invalid_values_and_unknown_flags(arguments: list[str]) -> None:
    ran = run("simulate", *arguments)
    assert ran.code == 2
    assert "Traceback" not in ran.err


def test_a_method_that_would_never_be_called(tmp_path: Path) -> None:
    code = "class P:\n    name = 'P'\n    def prefilter(self): ...\n    def filter(self): ...\n"
    ran = run("simulate", "--plugin", given(tmp_path, code, "mine.py"))
    check_one_line(ran, "'prefilter'", "did you mean 'pre_filter'?")


def test_a_class_without_extension_points(tmp_path: Path) -> None:
    code = (
        "class P:\n    name = 'P'\n    def fliter(self): ...\nclass Q:\n    def score(self): ...\n"
    )
    ran = run("simulate", "--plugin", given(tmp_path, code, "mine.py"))
    check_one_line(ran, "class P implements no", "did you mean 'filter'?", "class Q has no `name`")


def test_an_empty_list_of_paths() -> None:
    with pytest.raises(stowplan.InputError, match="at least one"):
        stowplan.simulate([])


def test_a_negative_seed() -> None:
    assert run("simulate", "--seed", "-5").code == 2
