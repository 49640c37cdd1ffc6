"""`stowplan top` by its keys, over a server that speaks the page's data API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from click.testing import CliRunner

from stowplan.cli.main import cli
from stowplan.cli.runs.top import run_top
from stowplan.cli.runs.top.page_client import PageClient
from stowplan.cli.runs.top.top_rows import TABLES, in_order, matching, node_map, why_text
from tests.web.fake_cluster import FakeCluster
from tests.web.fake_page_server import FakePageServer, served

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from stowplan.cli.runs.top.top_app import TopApp

HOSTILE = "[bold]x[/]"


class Terminal:
    """The application under test, and its server."""

    def __init__(self, app: TopApp, pilot: Pilot[None], server: FakePageServer) -> None:
        self.app, self.pilot, self.server = app, pilot, server

    async def until(self, holds: Callable[[], Any]) -> None:
        for _ in range(400):
            if holds():
                return
            await self.pilot.pause(0.05)
        raise AssertionError(f"not true: {self.text('#title')} {self.rows()[:3]}")

    def text(self, selector: str) -> str:
        return str(self.app.query_one(selector, Static).render())

    def rows(self) -> list[list[str]]:
        table = self.app.query_one("#table", DataTable)
        return [[str(cell) for cell in table.get_row_at(k)] for k in range(table.row_count)]


def run(
    steps: Callable[[Terminal], Coroutine[Any, Any, None]], n_pending: int = 60, **faults: Any
) -> None:
    """Run steps in a terminal of 120 x 40."""
    server = FakePageServer(FakeCluster(40, n_pending, faults.get("hostile", "")), hz=10)
    server.complete = faults.get("complete", True)
    server.is_paused = faults.get("paused", True)

    async def driven(port: int) -> None:
        app = TopApp(PageClient(f"http://127.0.0.1:{port}"))
        async with app.run_test(size=(120, 40)) as pilot:
            terminal = Terminal(app, pilot, server)
            await terminal.until(lambda: terminal.rows())
            await steps(terminal)

    with served(server) as port:
        asyncio.run(asyncio.wait_for(driven(port), 300))


def test_nodes_with_map_filter_sort_and_one_node() -> None:
    async def steps(terminal: Terminal) -> None:
        cluster, pilot = terminal.server.cluster, terminal.pilot
        assert {row[0] for row in terminal.rows()} == set(cluster.names)
        used = cluster.requested()["pods"]
        assert {row[0]: int(row[5]) for row in terminal.rows()} == dict(
            zip(cluster.names, used.tolist(), strict=True)
        )
        assert "eu-1a" in terminal.text("#map")
        assert "healthy" in terminal.text("#status")
        await pilot.press("s", "s", "s")
        await terminal.until(lambda: "by SHARE descending" in terminal.text("#title"))
        shares = [int(row[2][:-1]) for row in terminal.rows()]
        assert shares == sorted(shares, reverse=True)
        await pilot.press("S")
        assert [int(row[2][:-1]) for row in terminal.rows()] == sorted(shares)
        await pilot.press("slash", *"00017", "enter")
        await terminal.until(lambda: len(terminal.rows()) == 1)
        await pilot.press("enter")
        await terminal.until(lambda: "node-00017" in terminal.text("#text"))
        assert "cpu" in terminal.text("#text")
        await pilot.press("escape", "escape")
        await terminal.until(lambda: len(terminal.rows()) == 40)
        await pilot.press("r")
        assert "resource memory" in terminal.text("#title")

    run(steps)


def test_pending_why_queues_and_decisions() -> None:
    async def steps(terminal: Terminal) -> None:
        pilot = terminal.pilot
        await pilot.press("2")
        await terminal.until(lambda: len(terminal.rows()) == 60)
        await pilot.press("down", "down", "enter")
        chosen = terminal.rows()[2][0]
        await terminal.until(lambda: chosen in terminal.text("#text"))
        assert "helps: " in terminal.text("#text")
        await pilot.press("escape", "colon", *"queues", "enter")
        await terminal.until(lambda: terminal.app.screen_name == "queues" and terminal.rows())
        assert "research" in {row[0] for row in terminal.rows()}
        await pilot.press("4")
        await terminal.until(lambda: terminal.app.screen_name == "decisions" and terminal.rows())
        assert {row[1] for row in terminal.rows()} <= {"bound", "unschedulable"}
        await pilot.press("colon", *"nope", "enter", "question_mark")
        assert "filter by words" in terminal.text("#text")

    run(steps)


def test_tries_with_the_same_answer_are_one() -> None:
    answers = [("unschedulable", "", "0/1"), ("unschedulable", "", "0/1"), ("bound", "n1", "")]
    attempts = [{"outcome": one, "node": on, "message": text} for one, on, text in answers]
    node = {"node": "n1", "details": []}
    rule = {"rule": "R", "reason": "why", "first": 1, "nodes": 1, "examples": [node]}
    tree = {"pod": "a/b", "state": "pending", "node": "", "message": "", "nodes": 1, "fitting": 0}
    text = why_text({**tree, "rules": [rule], "changes": [], "attempts": attempts}).plain
    lines = [line.strip() for line in text.splitlines()]
    assert lines[-3:] == ["n1", "tried, 2 times: unschedulable 0/1", "tried: bound n1"]


def test_changes_come_pause_keeps_them_and_a_gap_is_repaired() -> None:
    async def steps(terminal: Terminal) -> None:
        cluster, app = terminal.server.cluster, terminal.app
        terminal.server.faults.add("gap")
        terminal.server.is_paused = False
        await terminal.until(lambda: any("snapshot" in one for one in terminal.server.asked))
        terminal.server.is_paused = True

        def is_true() -> bool:
            used = dict(zip(cluster.names, cluster.requested()["pods"].tolist(), strict=True))
            return {row[0]: int(row[5]) for row in terminal.rows()} == used

        await terminal.until(is_true)
        await terminal.pilot.press("space")
        n_updates = app.n_updates
        terminal.server.is_paused = False
        ticks = cluster.ticks
        await terminal.until(lambda: cluster.ticks > ticks + 8)
        assert app.n_updates == n_updates
        assert "paused" in terminal.text("#title")
        await terminal.pilot.press("space")
        await terminal.until(lambda: app.n_updates > n_updates)

    run(steps)


def test_a_long_queue_is_read_in_pages_and_filtered_by_the_server() -> None:
    async def steps(terminal: Terminal) -> None:
        await terminal.pilot.press("2")
        await terminal.until(lambda: len(terminal.rows()) == 150)
        await terminal.pilot.press("slash", *"job-14", "enter")
        await terminal.until(lambda: 0 < len(terminal.rows()) < 20)
        assert all("job-14" in row[0] for row in terminal.rows())

    run(steps, n_pending=150, complete=False)


def test_names_are_no_markup() -> None:
    async def steps(terminal: Terminal) -> None:
        assert all(row[0].startswith(HOSTILE) for row in terminal.rows())
        assert HOSTILE in terminal.text("#status")

    run(steps, hostile=HOSTILE)


def test_a_lost_connection_is_made_again() -> None:
    server = FakePageServer(FakeCluster(5, 5), hz=10)

    async def steps() -> None:
        with served(server) as port:
            app = TopApp(PageClient(f"http://127.0.0.1:{port}"))
            async with app.run_test(size=(100, 30)) as pilot:
                terminal = Terminal(app, pilot, server)
                await terminal.until(lambda: terminal.rows())
                for socket in list(server.viewers):
                    asyncio.run_coroutine_threadsafe(socket.close(), socket._loop)  # type: ignore[attr-defined]
                await terminal.until(lambda: app.client.n_connected == 2)
                await terminal.until(lambda: "healthy" in terminal.text("#status"))

    asyncio.run(asyncio.wait_for(steps(), 300))


def test_a_small_map_counts_what_is_left_out() -> None:
    async def steps(terminal: Terminal) -> None:
        state = terminal.app.client.state
        text = str(node_map(state, "cpu", 20, 1))
        listed = len(text.splitlines()[0].partition(")")[2])
        assert f"and {40 - listed} more nodes" in text
        rows = list(TABLES["nodes"].rows(state, "cpu"))
        assert matching(rows, "READY eu-1a")
        assert matching(rows, "nowhere") == []
        assert [one.key for one in in_order(rows, 0, is_down=True)] == sorted(state.names)[::-1]

    run(steps)


@pytest.mark.parametrize("text", ["", "nonsense", "ftp://h:1", "http://h", "http://h:x"])
def test_invalid_addresses(text: str) -> None:
    answer = CliRunner().invoke(cli, ["top", text])
    assert answer.exit_code == 2
    assert "URL: Invalid value" in answer.output


def test_nothing_there_and_no_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = CliRunner().invoke(cli, ["top", "127.0.0.1:9"])
    assert answer.exit_code == 1
    assert "unable to connect to http://127.0.0.1:9" in answer.output
    monkeypatch.setattr(run_top.importlib.util, "find_spec", lambda _: None)
    answer = CliRunner().invoke(cli, ["top", "127.0.0.1:9"])
    assert answer.exit_code == 1
    assert "pip install 'stowplan[top]'" in answer.output
