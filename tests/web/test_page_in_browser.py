"""The live page in a real browser, over a server that speaks its data API for a generated cluster.

Each check is shown to fail with a planted fault.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.web.browser import Browser
from tests.web.fake_cluster import FakeCluster
from tests.web.fake_page_server import FakePageServer, served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

HOSTILE = "<img src=x onerror=alert(1)>"
FIRST_LOAD_MAX = 60_000
ELEMENTS_MAX = 3_000
OVERFLOW = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
CURRENT_SCREEN = """
const { left, right } = document.querySelector('#screens [aria-current]').getBoundingClientRect();
return left >= 0 && right <= document.documentElement.clientWidth;
"""
LIVE = "return document.querySelector('.state').dataset.state === 'live'"
STALE = "return document.querySelector('.state').textContent.startsWith('stale')"
ROWS = "return document.querySelectorAll('.rows tbody tr').length"
TEXT = "return document.querySelector('main').innerText"
CELLS = """
return [...document.querySelectorAll('.rows tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent));
"""
SCREENS = {
    "nodes": "return document.querySelectorAll('.rows tbody tr').length",
    "pending": "return document.querySelectorAll('.rows tbody tr').length > 5",
    "pending?by=gang": "return document.querySelectorAll('.rows tbody tr').length > 5",
    "pod?pod=ml/train-7-7": "return document.querySelector('.change')",
    "queues": "return document.querySelector('.line-chart svg')",
    "decisions?decision=5": "return document.querySelector('.scroll table')",
    "preemptions": "return document.querySelectorAll('.rows tbody tr').length > 5",
    "what-if?changes=drain x": "return document.querySelector('.map canvas')",
    "what-if?workload=ml/job/sweep": "return document.querySelector('.scroll table button')",
    "what-if?changes=queue b.weight=2": "return document.querySelector('.scroll table')",
    "experiments": "return document.querySelector('.scroll table')",
}
"""Address -> when the screen has its data."""


class Site:
    """A running page. server: what it reads."""

    def __init__(self, page: Browser, server: FakePageServer, port: int) -> None:
        self.page, self.server = page, server
        self.origin = f"http://127.0.0.1:{port}/"

    def open(self, screen: str = "", width: int = 1280, *, dark: bool = False) -> None:
        """A screen with its data."""
        address = f"#/{quote(screen, safe='?=&/')}" if screen else ""
        self.page.visit(self.origin + address, width, dark=dark)
        self.page.until(SCREENS.get(screen, SCREENS["nodes"]))


@pytest.fixture(scope="module")
def site(page: Browser) -> Iterator[Site]:
    server = FakePageServer(FakeCluster(300, 400, HOSTILE), hz=5)
    with served(server) as port:
        yield Site(page, server, port)


@pytest.fixture
def plain(page: Browser) -> Iterator[Site]:
    """Its own cluster, with plain names, which the test may stop."""
    server = FakePageServer(FakeCluster(120, 200), hz=10)
    with served(server) as port:
        yield Site(page, server, port)


# First load.


def foreign(site: Site) -> list[str]:
    """Requests to any other host."""
    return [one for one in site.page.requests() if not one.startswith((site.origin, "about:"))]


def test_first_load_is_small_and_stays_here(site: Site) -> None:
    site.server.sent_bytes.clear()
    site.open()
    sent = dict(site.server.sent_bytes)
    assert 10_000 < sum(sent.values()) <= FIRST_LOAD_MAX
    assert "/static/page/what_if_screen.js" not in sent
    assert foreign(site) == []
    # The visible rows are in the document, the others are not.
    assert 8 < site.page.run(ROWS) < 30
    # Planted: a large page, and one that asks another host.
    site.server.head = f"<!--{secrets.token_hex(FIRST_LOAD_MAX)}-->"
    site.server.head += '<link rel="stylesheet" href="http://localhost:9/other.css">'
    policy, site.server.policy = site.server.policy, "default-src * 'self'"
    try:
        site.server.sent_bytes.clear()
        site.open()
        assert sum(site.server.sent_bytes.values()) > FIRST_LOAD_MAX
        assert foreign(site) == ["http://localhost:9/other.css"]
    finally:
        site.server.head, site.server.policy = "", policy


# Names are text, and the policy is kept.


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_keeps_the_policy_and_shows_names_as_text(site: Site, screen: str) -> None:
    # The width of a telephone is the one in which something may not fit.
    site.open(screen, 390)
    text = site.page.until(TEXT)
    assert HOSTILE in text
    assert site.page.run("return document.querySelectorAll('img').length") == 0
    assert site.page.logged() == []
    assert not site.page.run(OVERFLOW)
    # The row of screens scrolls, and shows where one is, also when the count of pending pods comes.
    assert site.page.run(CURRENT_SCREEN)


def test_a_violation_and_an_overflow_would_be_seen(site: Site) -> None:
    site.server.head = "<style>body { color: red }</style><script>alert(1)</script>"
    try:
        site.open()
    finally:
        site.server.head = ""
    messages = [one for one in site.page.logged() if "Content Security Policy" in one]
    assert len(messages) == 2
    site.page.run("document.querySelector('td').innerHTML = arguments[0]", HOSTILE)
    assert site.page.run("return document.querySelectorAll('img').length") == 1
    assert not site.page.run(OVERFLOW)
    site.page.run("document.querySelector('main').firstChild.style.minWidth = '2000px'")
    assert site.page.run(OVERFLOW)
    site.open("experiments", 390)
    site.page.run("document.getElementById('screens').scrollLeft = 0")
    assert not site.page.run(CURRENT_SCREEN)


# Truth.


def wrong_rows(site: Site) -> list[str]:
    """Nodes of which the table says something else than the server's state."""
    cluster = site.server.cluster
    used = cluster.requested()["cpu"]
    found = []
    for name, state, share, requested, allocatable, pods, zone in site.page.run(CELLS):
        row = cluster.names.index(name)
        milli, offered = int(used[row]), int(cluster.allocatable["cpu"][row])
        amount = float(requested[:-1]) if requested.endswith("m") else float(requested) * 1000
        wanted = [f"{milli * 100 // offered}%", f"{offered / 1000:g}"]
        wanted += [str(int(cluster.requested()["pods"][row])), cluster.zones[cluster.zone[row]]]
        flags = int(cluster.flags[row])
        is_right = ("NotReady" in state) == bool(flags & 2) and ("Tainted" in state) == (flags > 3)
        is_right = is_right and abs(amount - milli) <= 50
        if [share, allocatable, pods, zone] != wanted or not is_right:
            found.append(name)
    return found


def settle(site: Site) -> None:
    """Stops the changes, and waits for the last ones to be shown."""
    site.server.is_paused = True
    site.page.run("return new Promise((done) => setTimeout(done, 400))")


def test_tables_say_what_the_server_has_after_changes_and_a_gap(plain: Site) -> None:
    plain.open("nodes")
    plain.page.until(f"return arguments[0] > 0 && {LIVE[7:]}", 1)
    before = plain.server.cluster.ticks
    while plain.server.cluster.ticks < before + 15:
        plain.page.run("return new Promise((done) => setTimeout(done, 100))")
    plain.server.faults.add("gap")
    while "gap" in plain.server.faults or plain.server.cluster.ticks < before + 25:
        plain.page.run("return new Promise((done) => setTimeout(done, 100))")
    settle(plain)
    assert wrong_rows(plain) == []
    assert '{"snapshot":"nodes"}' in plain.server.asked
    # Planted: a change that is never sent.
    plain.server.cluster.share[:] = 0.111
    assert len(wrong_rows(plain)) > 5


def test_the_map_has_the_colours_of_the_shares(plain: Site) -> None:
    plain.server.is_paused = True
    plain.server.cluster.share[:40] = 1.0
    plain.server.cluster.share[40:] = 0.0
    plain.open("nodes?group=none")
    pixel = """
    const box = document.querySelector('.map .box.cursor');
    const [x, y] = box.style.transform.match(/-?[\\d.]+/g).map((part) => Number(part) + 5);
    const canvas = document.querySelector('.map canvas');
    const ratio = canvas.width / canvas.clientWidth;
    const [red] = canvas.getContext('2d').getImageData(x * ratio, y * ratio, 1, 1).data;
    return [document.querySelector('.map .tip strong').textContent, red];
    """
    plain.page.run("document.querySelector('.map canvas').focus()")
    found = {}
    for key in ("\ue010", "\ue011", "\ue014", "\ue014"):
        plain.page.press(key)
        name, red = plain.page.run(pixel)
        found[name] = red
    assert found == {"node-00119": 247, "node-00000": 37, "node-00001": 37, "node-00002": 37}


# Keys.


def test_pending_by_keyboard_alone(plain: Site) -> None:
    plain.server.is_paused = True
    plain.open()
    where = "return location.hash"
    plain.page.press("2")
    plain.page.until("return document.title.startsWith('Pending') && " + ROWS[7:])
    plain.page.press("/", "t", "r", "a", "i", "n", "-", "3")
    plain.page.until("return location.hash.includes('filter=train-3')")
    plain.page.press("\ue00c", "t")
    names = [cells[0] for cells in plain.page.run(CELLS) if cells[0].startswith("ml/")]
    assert len(names) > 1
    assert all("train-3" in name for name in names)
    plain.page.press("\ue015", "\ue007")
    plain.page.until("return document.querySelector('h2.title')")
    assert plain.page.run(where).startswith(f"#/pod?pod={quote(names[1], safe='')}")
    plain.page.press("\ue00c")
    plain.page.until("return location.hash.startsWith('#/pending')")
    assert "filter=train-3" in plain.page.run(where)
    # Sorting by a header's button, which Tab reaches.
    plain.page.run("document.querySelector('th button').focus()")
    plain.page.press("\ue007")
    plain.page.until("return document.querySelector('th[aria-sort=\"ascending\"]')")
    plain.page.press("?")
    assert plain.page.run("return document.querySelector('dialog[open]').innerText")
    plain.page.press("\ue00c")
    assert not plain.page.run("return document.querySelector('dialog[open]')")


def test_a_long_queue_stays_on_the_server(page: Browser) -> None:
    server = FakePageServer(FakeCluster(50, 6_000), hz=2)
    server.complete = False
    server.is_paused = True
    with served(server) as port:
        site = Site(page, server, port)
        site.open("pending")
        page.until("return document.querySelectorAll('.rows tbody tr').length > 15")
        assert page.run("return document.querySelectorAll('*').length") < ELEMENTS_MAX
        page.run("document.querySelector('input[data-filter]').focus()")
        page.press("j", "o", "b", "-", "5", "9", "9", "0")
        page.until("return document.querySelector('.panel small').textContent.startsWith('1 of')")
        assert page.run(CELLS)[-1][0] == "batch/job-5990"
        # Planted: all rows in the document.
        page.run(
            "const row = document.querySelector('tbody tr');"
            "for (let k = 0; k < 400; k += 1) row.parentNode.append(row.cloneNode(true));"
        )
        assert page.run("return document.querySelectorAll('*').length") > ELEMENTS_MAX


def test_empty_lists_say_so_and_a_filter_finds_older_decisions(page: Browser) -> None:
    server = FakePageServer(FakeCluster(20, 0), hz=2)
    server.is_paused = True
    empty = "return document.querySelector('.empty:not([hidden])')?.textContent"
    with served(server) as port:
        site = Site(page, server, port)
        for screen in ("pending", "pending?by=gang"):
            page.visit(f"{site.origin}#/{screen}")
            assert page.until(empty) == "No pod is pending."
        # What a filter finds may be older than the stream.
        entries = "performance.getEntriesByType('resource')"
        asked = f"return {entries}.some((one) => one.name.includes('decisions?'))"
        page.visit(f"{site.origin}#/decisions")
        page.until(ROWS)
        assert not page.run(asked)
        page.visit(f"{site.origin}#/decisions?filter=other")
        page.until(asked, seconds=60)


# The address.


def test_the_address_restores_what_it_had(plain: Site) -> None:
    plain.server.is_paused = True
    screen = "nodes?resource=memory&group=pool&filter=pool=a100&sort=-share"
    plain.open(screen)
    # The label comes when it is asked for.
    plain.page.until("return document.querySelector('td:nth-child(7)')?.textContent === 'a100'")
    name = plain.page.run(CELLS)[0][0]
    plain.page.run("document.querySelector('tbody tr').click()")
    plain.page.until("return document.querySelector('.node-panel h3')")
    state = """
    return [[...document.querySelectorAll('select')].map((one) => one.value),
      document.querySelector('input[data-filter]').value,
      document.querySelector('.node-panel h2').textContent,
      [...document.querySelectorAll('tbody tr')].slice(0, 9).map((row) => row.textContent)];
    """
    before = plain.page.run(state)
    assert before[:2] == [["memory", "allocated", "pool"], "pool=a100"]
    assert name in before[2]
    plain.page.driver.refresh()
    plain.page.until("return document.querySelector('.node-panel h3')")
    plain.page.until("return document.querySelector('td:nth-child(7)')?.textContent === 'a100'")
    assert plain.page.run(state) == before
    # Planted: another address.
    plain.page.run("location.hash = location.hash.replace('memory', 'cpu')")
    plain.page.until("return document.querySelector('select').value === 'cpu'")
    assert plain.page.run(state) != before
    plain.page.driver.back()
    plain.page.until("return document.querySelector('select').value === 'memory'")
    assert plain.page.run(state)[0] == before[0]


# The connection.


def test_a_lost_server_is_stale_and_comes_back_as_it_is(page: Browser) -> None:
    server = FakePageServer(FakeCluster(60, 50), hz=10)
    with served(server) as port:
        site = Site(page, server, port)
        site.open("nodes")
        page.until(LIVE)
    page.until(STALE)
    server.epoch, server.sequences = 2, dict.fromkeys(server.sequences, 0)
    server.cluster.share[:] = 0.5
    with served(server, port):
        page.until(LIVE)
        settle(site)
        assert wrong_rows(site) == []
        cells = page.run(CELLS)
        site.open("nodes")
        assert page.run(CELLS) == cells
        # Planted: a server that is there and says nothing.
        page.until(STALE)


def test_pause_keeps_the_moment(plain: Site) -> None:
    plain.open("nodes")
    plain.page.press(" ")
    plain.page.until("return document.querySelector('.state').textContent === 'paused'")
    plain.page.run("return new Promise((done) => setTimeout(done, 300))")
    cells = plain.page.run(CELLS)
    plain.server.cluster.share[:] = 0.25
    plain.page.run("return new Promise((done) => setTimeout(done, 300))")
    assert plain.page.run(CELLS) == cells
    plain.page.press(" ")
    plain.page.until(LIVE)
    settle(plain)
    assert wrong_rows(plain) == []


# axe.


@pytest.mark.parametrize(
    ("screen", "dark"),
    [
        ("nodes", False),
        # axe takes seconds: the others in `make soak`.
        *(
            pytest.param(screen, dark, marks=pytest.mark.soak)
            for screen in SCREENS
            for dark in (True, False)
            if (screen, dark) != ("nodes", False)
        ),
    ],
)
def test_axe_finds_nothing(site: Site, screen: str, dark: bool) -> None:
    axe_selenium_python = pytest.importorskip("axe_selenium_python")
    site.open(screen, dark=dark)
    axe = axe_selenium_python.Axe(site.page.driver)
    axe.inject()
    assert problems(axe) == []
    if screen == "nodes":
        # Planted: a button without a name.
        site.page.run("document.querySelector('main').append(document.createElement('button'))")
        assert "button-name" in {one[0] for one in problems(axe)}


def problems(axe: object) -> list[tuple[str, str]]:
    """Rules that are broken, and where."""
    found = axe.run()  # type: ignore[attr-defined]
    return [
        (one["id"], f"{node['target']} {node['failureSummary']}")
        for one in found["violations"]
        for node in one["nodes"]
    ]


# Kueue.


def test_what_would_admit_a_workload_is_tried_with_a_click(plain: Site) -> None:
    plain.open("queues")
    plain.page.until("return document.querySelector('a[href*=workload]')").click()
    plain.page.until("return document.querySelector('.scroll table button')")
    text = plain.page.run(TEXT)
    assert "Pending in team-b, number 3 in the queue: WaitingForQuota" in text
    assert "borrowed by team-a 4" in text
    plain.page.run("document.querySelector('.scroll table button').click()")
    plain.page.until("return document.querySelector('main').innerText.includes('Admitted in f')")
    text = plain.page.run(TEXT)
    assert "admitted 3 → 4" in text
    assert "Pending (WaitingForQuota)" in text
    # The form has the change, so that it can be altered.
    assert plain.page.run("return document.querySelector('.change-line input').value") == (
        "team-b.nominalQuota[f/cpu]=12"
    )
    assert plain.page.logged() == []
