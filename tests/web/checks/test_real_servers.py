"""Checks 1, 4 and 5 against servers of ours: how soon the page is live, that it agrees with
the cluster after thousands of changes, and that it comes back when the server was killed.

They take their time: in `make soak`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from click.testing import CliRunner

from stowplan.cli.main import cli
from tests.web.browser import Browser
from tests.web.checks.served_cluster import PODS, ServedCluster, Tree, node, pod, served_cluster

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.xdist_group("browser")]

N_NODES, N_PENDING, N_CHANGES, N_PICKED = 60, 60, 10_000, 50
PAINT_MS, LIVE_MS, STALE_MS, BACK_MS = 500, 1500, 3000, 5000
ROWS = "return document.querySelectorAll('.rows tbody tr').length"
LIVE = "return document.querySelector('.state').dataset.state === 'live'"
STALE = "return document.querySelector('.state').dataset.state === 'stale'"
FIRST = """
const [paint] = performance.getEntriesByName('first-contentful-paint');
return [paint.startTime, performance.now()];
"""
CELLS = """
const cells = [...document.querySelectorAll('.rows tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent));
return cells.length === 1 && cells[0][0] === arguments[0] ? cells[0] : null;
"""
STATE = """
const row = (one) => [...one.cells].map((cell) => cell.textContent).join();
return JSON.stringify([[...document.querySelectorAll('.rows tbody tr')].map(row),
  [...document.querySelectorAll('.overview .meter')].map((one) => one.textContent)]);
"""


def pods_of(cluster: ServedCluster) -> list[Tree]:
    found: list[Tree] = cluster.send("GET", PODS)["items"]
    return found


@contextmanager
def changed_cluster(folder: Path) -> Iterator[ServedCluster]:
    """Nodes with pods that have come and gone, and pods that fit nowhere."""
    rng = np.random.default_rng(4)
    trees = [node(f"n{place}") for place in range(N_NODES)]
    trees += [pod(f"wait-{place}", "20", nodeSelector=None if place % 2 else {"disk": "fast"})
              for place in range(N_PENDING)]  # fmt: skip
    with served_cluster(folder, trees) as found:
        names: list[str] = []
        for number in range(N_CHANGES):
            if len(names) > 100 and rng.random() < 0.5:
                name = names.pop(int(rng.integers(len(names))))
                found.send("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            else:
                names.append(f"p{number}")
                found.send("POST", PODS, pod(names[-1], f"{int(rng.integers(1, 40))}0m"))
        found.until(lambda: all(one["spec"].get("nodeName") or one["metadata"]["name"][0] == "w"
                                for one in pods_of(found)))  # fmt: skip
        yield found


def described(pods: list[Tree], name: str) -> tuple[int, int]:
    """Thousandths of a core and pods of a node, as `kubectl describe node` adds them up."""
    here = [one for one in pods if one["spec"].get("nodeName") == name]
    texts = [one["spec"]["containers"][0]["resources"]["requests"]["cpu"] for one in here]
    return sum(int(text.removesuffix("m")) for text in texts), len(here)


def test_the_page_agrees_with_the_cluster_after_many_changes(page: Browser, tmp_path: Path) -> None:
    with changed_cluster(tmp_path) as cluster:
        page.visit(f"{cluster.url}/#/nodes")
        page.until(ROWS)
        paint, live = page.run(FIRST)
        print(f"first paint {paint:.0f} ms, rows after {live:.0f} ms")
        assert paint < PAINT_MS
        assert live < LIVE_MS
        pods, rng = pods_of(cluster), np.random.default_rng(5)
        for place in rng.choice(N_NODES, N_PICKED, replace=False).tolist():
            page.run("location.hash = arguments[0]", f"#/nodes?filter=n{place}&sort=name")
            # The first of those whose name contains it.
            page.until(f"return (() => {{{CELLS}}})() || document.querySelector('tbody td')"
                       ".textContent === arguments[0]", f"n{place}")  # fmt: skip
            cells = page.run("return [...document.querySelector('tbody tr').cells].map("
                             "(cell) => cell.textContent)")  # fmt: skip
            milli, count = described(pods, f"n{place}")
            assert cells[2] == f"{milli * 100 // 8000}%"
            assert cells[5] == str(count)
            # Planted: a pod of another node.
            assert described([*pods, {**pods[-1], "spec": {**pods[-1]["spec"],
                "nodeName": f"n{place}"}}], f"n{place}") != (milli, count)  # fmt: skip
        for place in rng.choice(N_PENDING, N_PICKED, replace=False).tolist():
            check_pod(page, cluster, f"wait-{place}")


def check_pod(page: Browser, cluster: ServedCluster, name: str) -> None:
    given = ["explain", name, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    answer = CliRunner().invoke(cli, given, catch_exceptions=False)
    explained = json.loads(answer.stdout)
    page.run("location.hash = arguments[0]", f"#/pod?pod={quote(f'default/{name}', safe='')}")
    page.until("return document.querySelector('h2.title').textContent.includes(arguments[0])"
               " && document.querySelector('.change')", name)  # fmt: skip
    text = page.run("return document.querySelector('main').innerText")
    assert explained["message"] in text
    assert f"0 of {N_NODES}" in text
    for change in explained["changes"]:
        assert change["text"] in text


# Killed.


@contextmanager
def started(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`stowplan up --web` as a process of its own, and the address of its page."""
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0", "--node-count", "40"]
    command += ["--data", str(folder / "data"), "--kubeconfig", str(folder / "k")]
    process = subprocess.Popen(
        [*command, f"--web=127.0.0.1:{port}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        found = next(filter(None, (re.match(r"Web page: (\S+)", one) for one in process.stdout)))
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def waited_ms(page: Browser, script: str) -> float:
    begun = page.run("return performance.now()")
    page.until(script)
    return float(page.run("return performance.now()")) - begun


def test_a_killed_server_comes_back_with_the_state_of_a_fresh_load(
    page: Browser, tmp_path: Path
) -> None:
    with started(tmp_path) as (process, url):
        page.visit(f"{url}/#/nodes")
        page.until(f"return (() => {{{LIVE}}})() && (() => {{{ROWS}}})() > 5")
        os.kill(process.pid, signal.SIGKILL)
        stale = waited_ms(page, STALE)
    with started(tmp_path, int(url.rpartition(":")[2])) as (_, url):
        both = f"return (() => {{{LIVE}}})() && (() => {{{ROWS}}})() > 5"
        back = waited_ms(page, both)
        print(f"stale after {stale:.0f} ms, back after {back:.0f} ms")
        assert stale < STALE_MS
        assert back < BACK_MS
        page.until("return document.querySelector('.map-panel small').textContent.startsWith('40')")
        cells = page.run(STATE)
        page.visit(f"{url}/#/nodes")
        page.until("return document.querySelector('.map-panel small').textContent.startsWith('40')")
        page.until(f"return (() => {{{STATE}}})() === arguments[0]", cells)
