"""The walk of a researcher: scrub a run to where it is congested, and take the picture."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.simulation_source import SimulationSource
from tests.web.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

CLICKS_MAX = 3


def waiting(result: Simulation, at: float) -> int:
    """Pods without a node at a time, in seconds."""
    return sum(
        one.arrived_s <= at < (np.inf if one.bound_s is None else one.bound_s)
        for one in result.placements
        if isinstance(one, TimedPlacement)
    )


def test_from_the_page_to_a_picture_of_the_congestion(page: Browser, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    cluster = generate_workload(6, 150, 3)
    cluster.pods.append(builders.pod("picky", cpu="1m", node_selector={"disk": "none"}))
    result = simulate(cluster, replay=ReplayOptions(until_s=40_000))
    most = max(waiting(result, at) for at in range(0, 40_000, 50))
    assert most > 10
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(SimulationSource(result, read_deciders(None), 5))
        page.driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
        )
        page.visit(f"{server.url}/")
        n_clicks = 0
        # The curve over the slider says where.
        page.until("return document.querySelector('.scrub svg')")
        peak = float(page.run("return document.querySelector('.scrub svg').dataset.peak"))
        label = page.run("return document.querySelector('.scrub svg').getAttribute('aria-label')")
        assert "Pods waiting over the run: at most" in label
        slider = page.run("return document.querySelector('.scrub input')")
        width = slider.rect["width"]
        # The thumb stays within the slider.
        offset = 8 + (width - 16) * peak - width / 2
        ActionChains(page.driver).move_to_element_with_offset(slider, offset, 0).click().perform()
        n_clicks += 1
        page.until("return location.hash.includes('at=')")
        found = int(
            page.run("return document.querySelector('nav .badge:not([hidden])').textContent")
        )
        assert found > most / 2
        button = "return document.querySelector('.toolbar button[title^=\"Save the map\"]')"
        page.run(button).click()
        n_clicks += 1
        end = time.monotonic() + 240
        while not (files := list(tmp_path.glob("nodes-cpu-*.png"))):
            assert time.monotonic() < end, "no picture was saved"
            time.sleep(0.05)
        data = files[0].read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        across, down = struct.unpack(">II", data[16:24])
        assert across > 400
        assert down > 60
        assert page.logged() == []
        assert n_clicks <= CLICKS_MAX
        # A link to this moment shows the same.
        address = page.run("return location.href")
        texts_script = """
        const all = (selector) => [...document.querySelectorAll(selector)];
        const texts = (selector) => all(selector).map((one) => one.textContent);
        return [texts('#time output')[0], texts('.badge')[1]];
        """
        before = page.run(texts_script)
        page.visit(address)
        same = f"return JSON.stringify((() => {{{texts_script}}})()) === arguments[0]"
        page.until(same, json.dumps(before, separators=(",", ":")))
        # Amounts do not say why this one waits: its last try does.
        page.visit(f"{server.url}/#/pending?filter=picky")
        row = "return [...document.querySelectorAll('tbody tr')].map((one) => one.textContent)"
        affinity = f"{row}.some((text) => text.includes('selector, when last tried'))"
        page.until(affinity, seconds=60)
    finally:
        server.stop()
