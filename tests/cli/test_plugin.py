"""`stowplan plugin`: templates run and pass their tests and checks; failures are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.run import check_one_line, run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--class"]])
def test_a_new_plugin_passes_its_tests_and_its_check(options: list[str], here: Path) -> None:
    ran = run("plugin", "new", "near_data", *options)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("near_data.py and test_near_data.py created\n")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=here,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    checked = run("plugin", "check", "near_data.py")
    assert checked.code == 0, checked
    assert checked.out.endswith(" checks passed\n")
    size = ("--node-count", "5", "--pod-count", "5")
    assert run("simulate", "--plugin", "near_data.py", *size).code == 0


def test_nothing_is_overwritten(here: Path) -> None:
    (here / "test_mine.py").write_text("precious")
    ran = run("plugin", "new", "mine")
    check_one_line(ran, "test_mine.py", "already exists")
    assert (here / "test_mine.py").read_text() == "precious"
    assert not (here / "mine.py").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("near-data", 'did you mean "near_data"?'),
        ("mine.py", 'did you mean "mine"?'),
        ("1st", "must be a Python identifier"),
        ("class", "must be a Python identifier"),
        ("__", "must be a Python identifier"),
        ("json", "must not be the name of an installed Python module"),
        ("numpy", "must not be the name of an installed Python module"),
        ("Pod", "must not be a name that the plugin's code uses"),
        ("node", "must not be a name that the plugin's code uses"),
        ("print", "must not be a name that the plugin's code uses"),
    ],
)
def test_invalid_names_of_plugins(name: str, message: str, here: Path) -> None:
    check_one_line(run("plugin", "new", name), f'Invalid value: "{name}"', message)
    assert not list(here.iterdir())


WRONG = """
import numpy as np
from stowplan.framework import filter, score

@score("sound")
def sound(node):
    return 50

@score("torn")
def torn(node):
    return 101

@filter("halves")
def halves(nodes):
    return np.arange(nodes.n_nodes) % 2 == 0
"""


@pytest.mark.slow
def test_a_failed_check_is_reported(here: Path) -> None:
    (here / "mine.py").write_text(WRONG)
    ran = run("plugin", "check", "mine.py")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "sound: 6 checks passed"
    assert "torn: " in ran.out
    assert "plugin 'torn': scores_are_in_range (seed 0): " in ran.out
    assert "column_agrees_with_scalar" in ran.out.partition("halves")[2]
    found = json.loads(run("plugin", "check", "mine.py", "-o", "json").out)
    assert {one["plugin"] for one in found} == {"sound", "torn", "halves"}
    assert all(one["passed"] == ("failure" not in one) for one in found)


RAISES = """\
class Torn:
    name = "Torn"

    def filter(self, node):
        return node.shelf

class Unsaid:
    name = "Unsaid"

    def filter(self, node):
        return OK

    def filter_column(self, nodes):
        return nodes.pod_count >= 0
"""


def test_a_finding_is_reported_once_with_file_and_line(here: Path) -> None:
    (here / "mine.py").write_text("from stowplan.framework import OK\n\n" + RAISES)
    ran = run("plugin", "check", "mine.py")
    assert ran.code == 1
    torn, unsaid = ran.out.partition("Unsaid: ")[::2]
    assert torn.count("has no attribute 'shelf' (mine.py:7 in filter)") == 1
    assert "(the same in " in torn
    assert (
        unsaid.count("the class has no REJECTED; expected the Status of nodes that the plugin") == 1
    )
    assert unsaid.count("filter_status(code) (mine.py:15)") == 1
    found = json.loads(run("plugin", "check", "mine.py", "-o", "json").out)
    first, *others = [one for one in found if one["plugin"] == "Torn" and not one["passed"]]
    assert "same_as" not in first
    assert others
    assert {one["same_as"] for one in others} == {first["check"]}


def test_an_unknown_plugin_is_reported_with_similar_and_loaded_names(here: Path) -> None:
    (here / "mine.py").write_text("from stowplan.framework import OK\n\n" + RAISES)
    (here / "c.yaml").write_text((CONFIG % 1).replace("Limit", "Unsayd"))
    ran = run("simulate", "--plugin", "mine.py", "--config", "c.yaml")
    check_one_line(
        ran,
        "profiles[0].pluginConfig[0].name: Invalid value: 'Unsayd': "
        "expected the name of a registered plugin",
        "; near it: Unsaid; loaded from files and packages: Torn, Unsaid ",
        "(did you mean 'Unsaid'?)",
    )
    (here / "c.yaml").write_text((CONFIG % 1).replace("Limit", "zzz"))
    ran = run("config", "check", "c.yaml")
    check_one_line(
        ran, "Invalid value: 'zzz': expected the name of a registered plugin; loaded from files and"
    )


NEEDS_ARGS = """
import msgspec

class Limit:
    name = "Limit"

    class Args(msgspec.Struct, forbid_unknown_fields=True):
        most: int

    def __init__(self, args):
        self.most = args.most

    def score(self, node):
        return min(self.most, len(node.pods))
"""

CONFIG = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "profiles: [{pluginConfig: [{name: Limit, args: {most: %s}}]}]\n"
)


def test_arguments_come_from_a_configuration(here: Path) -> None:
    (here / "limit.py").write_text(NEEDS_ARGS)
    check_one_line(run("plugin", "check", "limit.py"), "'Limit'", "args.most", "a whole number")
    (here / "c.yaml").write_text(CONFIG % 5)
    ran = run("plugin", "check", "limit.py", "--config", "c.yaml")
    assert (ran.code, ran.out) == (0, "Limit: 6 checks passed\n")
    (here / "c.yaml").write_text(CONFIG % -1)
    assert run("plugin", "check", "limit.py", "--config", "c.yaml").code == 1


def test_a_file_that_cannot_be_loaded(here: Path) -> None:
    check_one_line(run("plugin", "check", "gone.py"), "gone.py", "cannot read")
    (here / "none.py").write_text("x = 1\n")
    check_one_line(run("plugin", "check", "none.py"), "none.py", "defines no plugin", "@score")
    (here / "bad.py").write_text(
        "from stowplan.framework import score\n\n@score('x')\ndef x(nood): return 1\n"
    )
    check_one_line(run("plugin", "check", "bad.py"), "bad.py:3", "rule 'x'", "x(nood)")
    (here / "ends.py").write_text("import sys\nsys.exit(0)\n")
    check_one_line(run("plugin", "check", "ends.py"), "ends.py:2", "SystemExit")


# `--plugin` on the commands that answer in bulk; the pages of the other commands try it there.

EVEN = """
import numpy as np
from stowplan.framework import filter, score

@filter("even", reason="node(s) were odd")
def even(node):
    return node.name in ("n0", "n2")

@score("late")
def late(nodes):
    return np.arange(nodes.n_nodes)
"""
OFFER = {"allocatable": {"cpu": "4", "pods": "9"}}
CLUSTER = [{"metadata": {"name": f"n{i}"}, "status": OFFER} for i in range(3)]
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}


def evaluated(here: Path, case: dict[str, Any], *options: str) -> Any:
    (here / "cases.jsonl").write_text(json.dumps({"id": "one", "nodes": CLUSTER, **case}) + "\n")
    ran = run("evaluate", "cases.jsonl", *options)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["result"]


def test_evaluate_takes_plugins(here: Path) -> None:
    (here / "even.py").write_text(EVEN)
    found = evaluated(here, {"pod": POD}, "--plugin", "even.py")
    assert found["feasible"] == ["n0", "n2"]
    assert found["filter"]["n1"]["reasons"] == ["node(s) were odd"]
    assert found["score"]["plugins"]["late"] == {"raw": [0, 2], "final": [0, 2]}
    assert evaluated(here, {"pod": POD})["feasible"] == ["n0", "n1", "n2"]
    off = {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "even"}]}}}]}
    found = evaluated(here, {"pod": POD, "profile": off}, "--plugin", "even.py")
    assert found["feasible"] == ["n0", "n1", "n2"]


def test_evaluate_takes_plugins_for_sequences(here: Path) -> None:
    (here / "even.py").write_text(EVEN)
    steps = [{"op": "schedule", "template": "t", "pod": "p"}]
    case = {"templates": {"t": POD}, "steps": steps}
    found = evaluated(here, case, "--as", "sequence", "--plugin", "even.py")
    assert [name for name, held in found["final"].items() if held.get("pods")] == ["n2"]


def test_evaluate_rejects_plugins_for_some_formats(here: Path) -> None:
    (here / "even.py").write_text(EVEN)
    (here / "cases.jsonl").write_text(json.dumps({"id": "one", "nodes": CLUSTER, "pod": POD}))
    ran = run("evaluate", "cases.jsonl", "--as", "queue", "--plugin", "even.py")
    check_one_line(ran, "--plugin", "--as queue", "attempt, sequence")
    check_one_line(run("evaluate", "cases.jsonl", "--plugin", "gone.py"), "gone.py")


PICKY = """\
from stowplan.framework import score

@score("torn")
def torn(node, pod):
    if pod.name == "bad":
        raise KeyError("zone")
    return {"far": 101}.get(pod.name, 1)
"""


def named(name: str) -> dict[str, Any]:
    return {**POD, "metadata": {"name": name}}


def test_a_broken_contract_is_the_result_of_its_case(here: Path) -> None:
    (here / "torn.py").write_text(PICKY)
    cases = [{"id": name, "nodes": CLUSTER, "pod": named(name)} for name in ("bad", "far", "good")]
    (here / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    ran = run("evaluate", "cases.jsonl", "--plugin", "torn.py")
    assert (ran.code, ran.err) == (0, "")
    bad, far, good = (json.loads(line)["result"] for line in ran.out.splitlines())
    assert bad["outcome"] == far["outcome"] == "error"
    assert bad["feasible"] == ["n0", "n1", "n2"]
    assert bad["message"] == (
        "plugin 'torn': score of pod 'default/bad' on node 'n0' raised KeyError: 'zone' "
        "(torn.py:6 in torn)"
    )
    assert "'torn' scores 101 on node 'n0' for pod 'default/far'" in far["message"]
    assert good["outcome"] == "scheduled"


def test_a_broken_contract_fails_one_attempt_of_a_sequence(here: Path) -> None:
    (here / "torn.py").write_text(PICKY)
    names = ("good", "bad", "next")
    steps = [{"op": "schedule", "template": "t", "pod": name} for name in names]
    case = {"templates": {"t": POD}, "steps": steps}
    found = evaluated(here, case, "--as", "sequence", "--plugin", "torn.py")
    outcomes = [step["outcome"] for step in found["steps"]]
    assert outcomes == ["scheduled", "error", "scheduled"]
    assert "(torn.py:6 in torn)" in found["steps"][1]["message"]


LATE = """\
from stowplan.framework import filter

@filter("first")
def first(node):
    return node.name != "n1"

@filter("far")
def far(node):
    if node.name == "n1":
        raise KeyError("zone")
    return True
"""


def test_a_plugin_that_would_fail_alone_fails_no_attempt(here: Path) -> None:
    (here / "late.py").write_text(LATE)
    found = evaluated(here, {"pod": POD}, "--plugin", "late.py")
    assert (found["outcome"], found["feasible"]) == ("scheduled", ["n0", "n2"])
    assert found["filter"]["n1"]["plugin"] == "first"
    assert found["filter"]["n1"]["failing"]["far"]["code"] == "Error"
    manifests = [{"kind": "Node", "apiVersion": "v1", **node} for node in CLUSTER]
    manifests.append({"kind": "Pod", "apiVersion": "v1", **POD})
    (here / "c.yaml").write_text("---\n".join(json.dumps(one) + "\n" for one in manifests))
    ran = run("explain", "p", "--cluster", "c.yaml", "--plugin", "late.py")
    assert ran.code == 0, ran.err
    assert "2 of 3 nodes fit" in ran.out


def test_explain_reports_an_exception_of_a_plugin(here: Path) -> None:
    (here / "late.py").write_text(LATE.replace('!= "n1"', '!= "n0"'))
    manifests = [{"kind": "Node", "apiVersion": "v1", **node} for node in CLUSTER]
    manifests.append({"kind": "Pod", "apiVersion": "v1", **POD})
    (here / "c.yaml").write_text("---\n".join(json.dumps(one) + "\n" for one in manifests))
    ran = run("explain", "p", "--cluster", "c.yaml", "--plugin", "late.py")
    assert (ran.code, ran.err) == (1, "")
    text = " ".join(ran.out.split())
    assert "on node 'n1' raised KeyError: 'zone' (late.py:10 in far)" in text
    assert "not evaluated: the attempt failed" in text


def test_a_plugin_that_fails_for_one_pod_fails_that_pod_in_a_simulation(here: Path) -> None:
    (here / "torn.py").write_text(PICKY)
    manifests = [{"kind": "Node", "apiVersion": "v1", **node} for node in CLUSTER]
    manifests += [
        {"kind": "Pod", "apiVersion": "v1", **named(name)} for name in ("good", "bad", "next")
    ]
    (here / "cluster.yaml").write_text("---\n".join(json.dumps(one) + "\n" for one in manifests))
    arguments = ("simulate", "--cluster", "cluster.yaml", "--plugin", "torn.py", "--out", "out")
    ran = run(*arguments)
    assert (ran.code, run(*arguments, "--strict").code) == (0, 1)
    assert "(torn.py:6 in torn)" in " ".join(ran.out.split())
    lines = map(json.loads, (here / "out" / "placements.jsonl").read_text().splitlines())
    placed = {line["pod"]: line for line in lines}
    assert placed["default/good"]["node"]
    assert placed["default/next"]["node"]
    bad = placed["default/bad"]
    assert bad["node"] == ""
    assert bad["message"].endswith("raised KeyError: 'zone' (torn.py:6 in torn)")


TYPO = """
from stowplan.framework import OK

class Near:
    name = "near"
    row_locl = True

    def filter(self, node):
        return OK
"""


def test_a_misspelt_attribute_fails_the_check_before_any_call(here: Path) -> None:
    (here / "near.py").write_text(TYPO)
    check_one_line(
        run("plugin", "check", "near.py"),
        "unknown attribute 'row_locl' (did you mean 'row_local'?)",
    )
    (here / "near.py").write_text(TYPO.replace("row_locl", "MARGIN"))
    assert run("plugin", "check", "near.py").code == 0


def test_a_misspelt_field_of_a_declaration_is_named_with_its_line(here: Path) -> None:
    text = TYPO.replace("import OK", "import OK, Plugin").replace("    row_locl = True\n", "")
    text = text.replace('name = "near"', 'declaration = Plugin(name="near", row_locl=True)')
    (here / "near.py").write_text(text)
    check_one_line(
        run("plugin", "check", "near.py"), "near.py:5: unknown field 'row_locl' (did you mean"
    )


def test_an_in_tree_plugin_is_described() -> None:
    ran = run("plugin", "describe", "TaintToleration")
    assert ran.code == 0
    assert "Extension points:  filter, preScore, score\n" in ran.out
    assert "Weight:            3\n" in ran.out
    assert "Declares:          row_local, node_only, by_outline, normalizes=reversed\n" in ran.out
    assert "Filter on hard taints" in ran.out
    tree = yaml.safe_load(run("plugin", "describe", "NodeResourcesFit", "-o", "yaml").out)
    assert tree["reads"] == ["DeviceClass"]
    assert tree["arguments"]["ignoredResources"] == []
    assert tree == json.loads(run("plugin", "describe", "NodeResourcesFit", "-o", "json").out)


@pytest.mark.parametrize(("name", "kind"), [("gang", "session"), ("allocate", "action")])
def test_a_session_plugin_is_described(name: str, kind: str) -> None:
    ran = run("plugin", "describe", name)
    assert ran.code == 0
    assert f"Type:              {kind}\nDescription:\n  " in ran.out
    tree = yaml.safe_load(run("plugin", "describe", name, "-o", "yaml").out)
    assert (tree["name"], tree["type"]) == (name, kind)


def test_a_plugin_of_a_file_is_described(here: Path) -> None:
    (here / "mine.py").write_text(NEEDS_ARGS)
    ran = run("plugin", "describe", "Limit", "--plugin", "mine.py")
    assert "In tree:           no\n" in ran.out
    assert "Reads:             <unknown>\n" in ran.out
    assert "Arguments:\n  most: <required>\n" in ran.out


def test_a_plugin_that_is_not_registered_is_not_described() -> None:
    check_one_line(
        run("plugin", "describe", "TaintTolerations"),
        'plugin "TaintTolerations" not found (did you mean "TaintToleration"?)',
    )


@pytest.mark.parametrize("has_signature", [False, True])
def test_a_declared_field_without_effect_is_reported(has_signature: bool, here: Path) -> None:
    signature = "    def signature(self, pod):\n        return 0\n" if has_signature else ""
    (here / "near.py").write_text(
        "from stowplan.framework import OK\n"
        "class Near:\n"
        "    name = 'Near'\n"
        "    row_local = True\n"
        "    def filter(self, pod, node):\n"
        "        return OK\n" + signature
    )
    ran = run("plugin", "check", "near.py")
    assert ran.code == 0
    text = (
        "Warning: plugin class stowplan_plugin_near_py.Near (near.py:5): `row_local` has no effect "
        "without a method `signature(pod)`\n"
    )
    assert ran.err == ("" if has_signature else text)


def test_two_session_plugins_of_one_name(here: Path) -> None:
    (here / "own.py").write_text(
        "from stowplan.batch import SessionPlugin\n"
        "class Mine(SessionPlugin):\n"
        "    name = 'gang'\n"
        "    def on_open(self, session):\n"
        "        pass\n"
    )
    check_one_line(
        run("queues", "-f", "cluster.yaml", "--plugin", "own.py"),
        "error: class stowplan_plugin_own_py.Mine (own.py:4): a plugin named 'gang' already exists",
        "exists: class stowplan.batch.session_plugins.gang.GangPlugin (gang.py:",
    )
