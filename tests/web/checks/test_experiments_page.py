"""The screen of experiments: running and ended sweeps, what differs, and their reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import simulate
from stowplan.web.model.experiment_folders import experiment_trees
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.simulation_source import SimulationSource
from tests.web.browser import Browser
from tests.web.report_folders import MARKUP, experiment_folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

API = "/api/page/v1"
ROWS = """
const rows = [...document.querySelectorAll('.scroll tbody tr')];
return rows.map((row) => [...row.cells].map((cell) => cell.textContent));
"""
HOSTILE = """<!DOCTYPE html><html lang="en"><title>asked</title><body><script>
fetch('/api/page/v1/cluster').then(
  () => { document.title = 'read'; }, () => { document.title = `refused ${self.origin}`; });
</script></body></html>"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ended experiment without a report, one with a report of others, and one that runs."""
    folder = tmp_path_factory.mktemp("experiments")
    experiment_folder(folder / "done")
    for name, mark in (("foreign", "experiment.json"), ("sweep", ".lock")):
        for run in ("k1", "k2", "k3.part"):
            (folder / name / "runs" / run).mkdir(parents=True)
        (folder / name / mark).write_text("{}")
    (folder / "foreign" / "report.html").write_text(HOSTILE)
    return folder


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    server = PageServer(ListenAddress("127.0.0.1", 0), experiments=str(root))
    server.start()
    try:
        result = simulate(generate_workload(2, 4, 3))
        server.use(SimulationSource(result, read_deciders(None), 5))
        yield server.url
    finally:
        server.stop()


def test_progress_and_what_differs(root: Path) -> None:
    found = {one["folder"]: one for one in experiment_trees(root)}
    assert (found["done"]["done"], found["done"]["failed"], found["done"]["ended"]) == (4, 1, True)
    (verdict,) = found["done"]["verdicts"]
    assert verdict.startswith("small: ")
    sweep = found["sweep"]
    assert (sweep["done"], sweep["running"], sweep["ended"]) == (2, 1, False)
    assert not sweep["verdicts"]


def test_the_report_of_an_ended_experiment_opens_from_the_screen(
    page: Browser, address: str
) -> None:
    page.visit(f"{address}/#/experiments")
    page.until("return document.querySelectorAll('.scroll tbody tr').length === 3")
    rows = {row[0]: row for row in page.run(ROWS)}
    assert [rows[name][1] for name in ("done", "foreign", "sweep")] == ["ended", "ended", "running"]
    assert rows["sweep"][5] == "when it has ended"
    link = "return document.querySelector('a[href*=\"folder=done\"]').href"
    page.visit(page.run(link))
    page.until("return document.querySelectorAll('svg').length > 5")
    assert MARKUP in page.run("return document.body.textContent")
    assert page.run("return self.origin") == "null"
    assert page.logged() == []


def test_a_report_of_others_reads_nothing(page: Browser, address: str) -> None:
    page.visit(f"{address}{API}/experiments/report?folder=foreign")
    assert page.until("return document.title !== 'asked' && document.title") == "refused null"


@pytest.mark.parametrize("folder", ["../done", "/etc", "sweep", "nope", ""])
def test_folders_that_are_none_of_the_list(page: Browser, address: str, folder: str) -> None:
    page.visit(f"{address}{API}/experiments/report?folder={folder}")
    text = page.run("return document.body.textContent")
    assert '{"error"' in text
