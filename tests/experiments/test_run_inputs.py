"""What the key of a run stands for: also modules that plugin files import, installed plugins and
versions. Workers check them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stowplan.assembly.plugin_files import installed_code
from stowplan.assembly.python_files import code_of, run_file
from stowplan.experiments.experiment_run import (
    ExperimentProgress,
    ExperimentResult,
    experiment,
    prepare_experiment,
)
from stowplan.experiments.plan.plan_inputs import RunTask, versions
from stowplan.experiments.runner.run_worker import run_task
from tests.experiments.test_experiment import PLAN

PLUGIN = """
from stowplan.framework import score
import own_values

@score("helped")
def helped(pod, node):
    return own_values.value()
"""
MEASURE = """
import own_values

def answer(run):
    return own_values.value()
"""


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def helpers_of(file: Path, package: str = "") -> list[str]:
    return list(code_of(str(file), package).files)


def test_imported_modules_of_a_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        plugin="import json, one\nfrom pack.inner import deep\n\ndef later():\n    import two\n",
        one="import three.four as four\n",
        two="try:\n    import absent_module\nexcept ImportError:\n    pass\n",
    )
    write(tmp_path / "three", __init__="", four="x = 1\n")
    write(tmp_path / "pack", __init__="from . import near\n", near="", far="")
    write(tmp_path / "pack" / "inner", __init__="", deep="from ..near import x\nfrom .. import far")
    found = helpers_of(tmp_path / "plugin.py")
    assert found == [
        "one",
        "pack",
        "pack.far",
        "pack.inner",
        "pack.inner.deep",
        "pack.near",
        "three",
        "three.four",
        "two",
    ]


def test_installed_modules_are_named_by_version(tmp_path: Path) -> None:
    write(tmp_path, plugin="import msgspec.json\nfrom stowplan.framework import score\n")
    found = code_of(str(tmp_path / "plugin.py"))
    assert (found.files, found.distributions) == ({}, {"msgspec": msgspec.__version__})


def test_a_file_that_is_run_again_sees_changed_modules(tmp_path: Path) -> None:
    place = write(
        tmp_path / "a",
        main="import own_first\nv = own_first.v\n",
        own_first="from own_second import v",
    )
    write(place, own_second="v = 1\n")
    main = str(place / "main.py")
    assert run_file(main).v == 1
    before = sys.modules["own_first"]
    assert run_file(main).v == 1
    assert sys.modules["own_first"] is before
    write(place, own_second="v = 2\n")
    assert run_file(main).v == 2
    # Another folder has its own modules of the same name.
    other = write(tmp_path / "b", main="import own_first\nv = own_first.v\n", own_first="v = 3\n")
    assert [run_file(str(one / "main.py")).v for one in (other, place)] == [3, 2]


def helped(folder: Path, **changes: Any) -> ExperimentResult:
    write(folder, helped=PLUGIN)
    policy = {"name": "helped", "plugins": str(folder / "helped.py")}
    plan = {**PLAN, "policies": [policy], "options": {}, "mode": "fill", "seeds": 1, **changes}
    return experiment(plan, out=folder / "out", jobs=1, report=False)


def test_a_changed_module_of_a_plugin_is_another_run(tmp_path: Path) -> None:
    write(tmp_path, own_values="def value(): return 7\n")
    first = helped(tmp_path)
    assert (first.n_executed, first.failures) == (1, {})
    assert helped(tmp_path).n_executed == 0
    write(tmp_path, own_values="def value(): return 80\n")
    second = helped(tmp_path)
    assert second.n_executed == 1
    assert second.runs[0].key != first.runs[0].key
    described = (tmp_path / "out" / "runs" / second.runs[0].key / "run.json").read_text()
    assert "helped.py: own_values" in described
    assert f'own_values": "{tmp_path}' not in described


def measured(folder: Path) -> ExperimentResult:
    write(folder, mine=MEASURE)
    return helped(folder, measures=[f"{folder}/mine.py:answer"], policies=["default"])


def test_a_changed_module_of_a_measure_is_another_run(tmp_path: Path) -> None:
    def value(found: ExperimentResult) -> list[Any]:
        return [row["value"] for row in found.rows if row["measure"] == "answer"]

    write(tmp_path, own_values="def value(): return 7\n")
    first = measured(tmp_path)
    write(tmp_path, own_values="def value(): return 8\n")
    second = measured(tmp_path)
    assert (value(first), value(second)) == ([7], [8])
    assert measured(tmp_path).n_executed == 0


@pytest.mark.parametrize("changed", ["mine", "own_values"])
def test_a_measure_that_changes_meanwhile_fails_its_runs(changed: str, tmp_path: Path) -> None:
    write(tmp_path, mine=MEASURE, own_values="def value(): return 7\n")

    def change(_: ExperimentProgress) -> None:
        write(tmp_path, **{changed: MEASURE + "x = 1\ndef value(): return 9\n"})

    plan = {**PLAN, "policies": ["default"], "options": {}, "mode": "fill", "seeds": 1}
    plan["measures"] = [f"{tmp_path}/mine.py:answer"]
    found = experiment(plan, out=tmp_path / "out", jobs=1, report=False, on_progress=change)
    (error,) = found.failures.values()
    assert "changed since the experiment was started" in error


def test_versions_have_what_kernels_are_compiled_by() -> None:
    assert set(versions()) == {"stowplan", "python", "numpy", "numba"}


# Installed plugins.

CONFIG: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"score": {"enabled": [{"name": "acme-even"}]}}}],
}
RULES = """
from stowplan.framework import score
from acme_rules import factors

@score("acme-even")
def even(pod, node):
    return factors.FACTOR
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of an installed distribution with a plugin."""
    site = tmp_path / "site-packages"
    info = site / "acme_rules-1.0.dist-info"
    package = write(site / "acme_rules", __init__="", rules=RULES, factors="FACTOR = 1\n")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    entries = "[stowplan.plugins]\nacme-even = acme_rules.rules:even\n"
    (info / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(site)
    for name in ("acme_rules", "acme_rules.rules", "acme_rules.factors"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return package


def task_of() -> RunTask:
    policy = {"name": "even", "configuration": CONFIG}
    plan = {**PLAN, "policies": [policy], "options": {}, "mode": "fill", "seeds": 1}
    return prepare_experiment(plan, None, ()).tasks[0]


def test_the_code_of_an_installed_plugin_is_in_the_key(installed: Path) -> None:
    first = task_of()
    (plugin,) = first.policy.installed
    assert (plugin.name, plugin.distributions) == ("acme-even", {"acme-rules": "1.0"})
    assert task_of().key == first.key
    write(installed, factors="FACTOR = 2\n")
    assert task_of().key != first.key
    assert installed_code("no such plugin") == ()


def test_a_worker_with_another_installed_plugin_refuses(installed: Path) -> None:
    task = task_of()
    assert run_task(task).error == ""
    write(installed, rules=RULES + "\n")
    wanted = "plugin 'acme-even' of acme-rules 1.0: the worker has another one"
    assert wanted in run_task(task).error


def test_a_worker_with_another_version_of_an_imported_module_refuses() -> None:
    task = prepare_experiment({**PLAN, "options": {}, "mode": "fill"}, None, ()).tasks[0]
    policy = msgspec.structs.replace(task.policy, distributions={"msgspec": "0.0.1"})
    error = run_task(msgspec.structs.replace(task, policy=policy)).error
    assert f"the worker has msgspec {msgspec.__version__}, the client msgspec 0.0.1" in error
