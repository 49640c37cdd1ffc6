"""The package and its results in a Python prompt."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import stowplan
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.dataframes import LIBRARIES, to_dataframe
from stowplan.testing import node, pod

CLUSTER = Cluster([node("n1", cpu="2")], [pod("a", cpu="1"), pod("b", cpu="2")])
FUNCTIONS = ("evaluate", "explain", "explain_job", "read_cluster", "simulate", "simulate_jobs")


class Frame:
    """Stub of a DataFrame: its columns and its library."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "pandas")


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if only these libraries were installed."""
    for name in LIBRARIES:
        if name in names:
            module = ModuleType(name)
            module.DataFrame = type(name, (Frame,), {})  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, name, module)
        else:
            monkeypatch.setattr(sys, "path", [])
            monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_functions_are_listed_and_documented() -> None:
    assert set(stowplan.__all__) <= set(dir(stowplan))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(stowplan))
    text = pydoc.render_doc(stowplan, renderer=pydoc.plaintext)
    for name in FUNCTIONS:
        assert f"\n    {name}(" in text, name
    assert "Schedule the pending pods of a cluster" in text


def test_listing_them_loads_nothing() -> None:
    code = "import stowplan, sys; print('simulate' in dir(stowplan), 'numpy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True False\n"


def test_results_print_in_a_line() -> None:
    assert repr(CLUSTER) == "Cluster(1 node, 2 pods, 2 of them pending)"
    assert repr(stowplan.simulate(CLUSTER)) == "Simulation(1 of 2 pods on 1 node)"
    found = stowplan.explain("default/b", CLUSTER)
    assert repr(found) == "Explanation('default/b', pending, node 'n1', 1 of 1 nodes fit)"
    found = stowplan.explain("default/b", CLUSTER, after_simulation=True)
    assert repr(found) == "Explanation('default/b', pending, 0 of 1 nodes fit)"


@pytest.mark.usefixtures("pandas")
def test_results_become_frames() -> None:
    run = stowplan.simulate(CLUSTER)
    assert run.to_frame().columns == {
        "pod": ["default/a", "default/b"],
        "node": ["n1", ""],
        "reason": ["", "Insufficient cpu"],
        "message": ["", "0/1 nodes are available: 1 Insufficient cpu."],
    }
    replayed = stowplan.simulate(CLUSTER, replay=stowplan.ReplayOptions())
    assert replayed.to_frame().columns["wait_s"][1] is None
    empty = stowplan.simulate(Cluster(CLUSTER.nodes, []))
    assert empty.to_frame().columns == {"pod": [], "node": [], "reason": [], "message": []}
    found = stowplan.explain("default/b", CLUSTER, after_simulation=True)
    assert found.to_frame().columns == {
        "node": ["n1"],
        "fits": [False],
        "rule": ["NodeResourcesFit"],
        "reason": ["Insufficient cpu"],
        "details": ["cpu: needs 2000m, 1000m free of 2000m"],
        "total": [None],
    }
    assert stowplan.explain("default/b", CLUSTER).to_frame().columns["total"][0] > 0


@pytest.mark.parametrize(
    ("installed", "library", "made_by"),
    [
        (("pandas", "polars"), "", "pandas"),
        (("pandas", "polars"), "polars", "polars"),
        (("polars",), "", "polars"),
    ],
)
def test_the_installed_library_is_used(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], library: str, made_by: str
) -> None:
    install(monkeypatch, *installed)
    assert type(to_dataframe({"a": [1]}, library)).__name__ == made_by


def test_a_missing_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(ImportError, match=r"needs pandas or polars: pip install pandas"):
        to_dataframe({})
    install(monkeypatch, "pandas")
    with pytest.raises(ImportError, match=r"needs polars: pip install polars"):
        to_dataframe({}, "polars")
    with pytest.raises(ValueError, match=r"Invalid value: 'numpy': expected one of pandas, polars"):
        to_dataframe({}, "numpy")
