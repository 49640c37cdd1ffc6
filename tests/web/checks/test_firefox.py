"""Firefox opens every screen without a message in its console."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.web.checks.firefox import FIREFOX, MISSING, firefox
from tests.web.fake_cluster import FakeCluster
from tests.web.fake_page_server import FakePageServer, served
from tests.web.test_page_in_browser import HOSTILE, SCREENS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.other_browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(FIREFOX is None, reason=MISSING),
]


@pytest.mark.parametrize(
    "screens",
    [
        ["nodes"],
        # Firefox takes its time: the others in `make soak`.
        pytest.param(list(SCREENS), marks=pytest.mark.soak),
    ],
    ids=["some", "all"],
)
def test_every_screen_without_a_message(tmp_path: Path, screens: list[str]) -> None:
    server = FakePageServer(FakeCluster(100, 100, HOSTILE), hz=5)

    async def steps(port: int) -> None:
        async with firefox(tmp_path) as page:
            for screen in screens:
                await page.visit(f"http://127.0.0.1:{port}/#/{screen.replace(' ', '%20')}")
                await page.until(SCREENS[screen].strip())
                await page.until("return document.querySelector('.state').dataset.state === 'live'")
                await page.until("return !document.querySelector('img')")
                assert page.messages == [], screen
            # Planted: an error of a script.
            await page.until("setTimeout(() => { throw new Error('planted'); }, 0); return true")
            for _ in range(100):
                if page.messages:
                    break
                await asyncio.sleep(0.05)
            assert "planted" in page.messages[0]

    with served(server) as port:
        asyncio.run(asyncio.wait_for(steps(port), 200))
