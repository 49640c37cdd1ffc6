"""Check 9: queues have the figures of `stowplan queues`, and their history outlives a reload.

Also the walks of a person on call, who asks why a pod waits, and of a queue's owner, who asks who
borrows from it: at most three clicks each.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from stowplan.cli.main import cli
from stowplan.examples.demo_cluster import demo_deciders
from stowplan.examples.demo_manifests import (
    BATCH,
    CONFIGURATION,
    GROUP_API,
    GROUP_NAME,
    initial_objects,
)
from stowplan.web.serving.live_source import LiveSource
from tests.web.browser import Browser
from tests.web.checks.served_cluster import PODS, ServedCluster, Tree, pod, served_cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

COLUMNS = ("deserved", "allocated", "borrowed", "lent")
TABLE = """
const texts = (row) => [...row.cells].map((cell) => cell.textContent);
return [...document.querySelectorAll('table')].filter((one) => one.ariaLabel === arguments[0])
  .flatMap((one) => [...one.tBodies[0].rows].map(texts));
"""
CHART = "return document.querySelector('.line-chart svg')?.getAttribute('aria-label')"
CLICKED = """
return [...document.querySelectorAll(arguments[0])].find(
  (one) => one.textContent.includes(arguments[1]));
"""
READ = """
const text = document.querySelector('main').innerText;
return arguments[0].every((one) => text.includes(one));
"""
CLICKS_MAX = 3
HOUR_POINTS = 360


def group(name: str, queue: str, size: int) -> Tree:
    return {
        "apiVersion": GROUP_API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": size, "queue": queue},
    }


def queue(name: str, weight: int) -> Tree:
    return {
        "apiVersion": GROUP_API,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def member(gang: str, number: int, cpu: str) -> Tree:
    notes = {GROUP_NAME: gang, "stowplan.dev/run-seconds": "forever"}
    return pod(f"{gang}-{number}", cpu, notes, schedulerName=BATCH)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Six nodes of eight cores; `serve` has borrowed from `research`, whose gang is too large."""
    trees = [tree for _, tree in initial_objects()]
    with served_cluster(tmp_path_factory.mktemp("cluster"), trees, demo_deciders()) as found:
        for name, weight in (("research", 3), ("serve", 1)):
            found.send("POST", f"/apis/{GROUP_API}/queues", queue(name, weight))
        groups = f"/apis/{GROUP_API}/namespaces/default/podgroups"
        found.send("POST", groups, group("web", "serve", 4))
        found.send("POST", groups, group("train", "research", 12))
        for number in range(8):
            found.send("POST", PODS, member("web", number, "4"))
        names = [f"web-{number}" for number in range(8)]
        found.until(lambda: all(found.pod(name)["spec"].get("nodeName") for name in names))
        for number in range(12):
            found.send("POST", PODS, member("train", number, "7"))
        found.until(lambda: phase(found, "train-7"))
        yield found


def phase(cluster: ServedCluster, name: str) -> bool:
    """True when a session has refused the pod."""
    conditions = cluster.pod(name).get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def command_figures(cluster: ServedCluster) -> dict[str, list[float]]:
    """Queue -> amounts of cpu as `stowplan queues -o json` has them."""
    file = cluster.kubeconfig.parent / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    given = ["queues", "--kubeconfig", str(cluster.kubeconfig), "--config", str(file), "-o", "json"]
    answer = CliRunner().invoke(cli, given, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    tree = json.loads(answer.stdout)
    of_loans: dict[str, dict[str, float]] = {"borrower": {}, "lender": {}}
    for loan in tree["loans"]:
        if loan["resource"] == "cpu":
            for side, amounts in of_loans.items():
                amounts[loan[side]] = amounts.get(loan[side], 0.0) + loan["amount"]
    return {
        one["name"]: [
            (one["deserved"] or {}).get("cpu", 0.0), one["allocated"].get("cpu", 0.0),
            of_loans["borrower"].get(one["name"], 0.0), of_loans["lender"].get(one["name"], 0.0),
        ]
        for one in tree["queues"]
    }  # fmt: skip


def page_figures(page: Browser) -> dict[str, list[float]]:
    """The same from the table of the screen."""
    found = {}
    for row in page.run(TABLE, f"Queues of {BATCH}"):
        found[row[0]] = [cores(row[place]) for place in (3, 4, 5, 6)]
    return found


def cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text or 0)


def test_queues_have_the_figures_of_the_command(page: Browser, cluster: ServedCluster) -> None:
    page.visit(f"{cluster.url}/#/queues?resource=cpu")
    page.until("return document.querySelectorAll('.track.wide').length")
    expected = command_figures(cluster)
    assert expected["serve"][2] > 0
    assert page_figures(page) == expected
    # Planted: a core that the page does not know of.
    expected["serve"][1] += 1
    assert page_figures(page) != expected


def test_an_hour_of_history_outlives_a_reload(page: Browser, cluster: ServedCluster) -> None:
    source = cluster.viewed.viewers.source
    assert isinstance(source, LiveSource)
    history = source.questions.history
    schedulers = cluster.page("queues")["schedulers"]
    history._fine.clear()
    now = time.time() * 1000
    for point in range(HOUR_POINTS):
        history.add(now - (HOUR_POINTS - point) * 10_000, schedulers)
    page.visit(f"{cluster.url}/#/queues?resource=cpu")
    for _ in range(2):
        label = page.until(CHART)
        assert label == "cpu allocated by queue, 60 minutes"
        assert page.logged() == []
        page.driver.refresh()
    # Planted: a server that forgets it.
    history._fine.clear()
    history._coarse.clear()
    page.visit(f"{cluster.url}/#/queues?resource=cpu")
    page.until("return document.querySelector('.line-chart .empty')")


class Walk:
    """Clicks of a person, by the text of what is clicked."""

    def __init__(self, page: Browser) -> None:
        self.page, self.n_clicks = page, 0

    def click(self, selector: str, text: str) -> None:
        # A person clicks in the middle of what is seen.
        self.page.until(CLICKED, selector, text).click()
        self.n_clicks += 1
        assert self.n_clicks <= CLICKS_MAX

    def reads(self, *texts: str) -> None:
        self.page.until(READ, texts)


def test_on_call_finds_why_train_7_waits(page: Browser, cluster: ServedCluster) -> None:
    page.visit(f"{cluster.url}/")
    walk = Walk(page)
    walk.click("nav a", "Pending")
    walk.click("td a", "default/train-7")
    walk.reads("default/train-7", "pending", "default/train", "research")
    # Why, in words and figures.
    why = cluster.page("pods/default/train-7/why")
    walk.reads(why["message"] or why["rules"][0]["reason"])
    assert walk.n_clicks == 2


def test_an_owner_finds_who_borrows(page: Browser, cluster: ServedCluster) -> None:
    page.visit(f"{cluster.url}/")
    walk = Walk(page)
    walk.click("nav a", "Queues and gangs")
    walk.reads("Who borrows from whom")
    assert page.until(TABLE, "Loans between queues")[0][:2] == ["serve", "research"]
    assert walk.n_clicks == 1
