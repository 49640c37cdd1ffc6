"""Takes the pictures of docs/report.md and docs/page.md: needs chromium, chromedriver, selenium."""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.web.report import write_report
from stowplan.web.serving.page_server import PageServer
from stowplan.web.serving.simulation_source import SimulationSource

IMAGES = Path(__file__).parents[1] / "images"
READY = """
const isReplay = document.querySelector('.state')?.textContent === 'replay';
return isReplay && document.querySelector('.rows tbody tr td:nth-child(7)')?.textContent;
"""
WIDTH, HEIGHT = 1280, 900


def screenshot(address: str, is_ready: str = "return true") -> bytes:
    """The top of a page as PNG. is_ready: script whose value is true once all is shown."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(address)
        WebDriverWait(driver, 30).until(lambda page: page.execute_script(is_ready))
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        return base64.b64decode(taken["data"])
    finally:
        driver.quit()


def screenshot_of_page(found: Simulation) -> bytes:
    """The first screen of the page of a finished run."""
    server = PageServer(ListenAddress("127.0.0.1", 0))
    server.start()
    try:
        server.use(SimulationSource(found, read_deciders(None), 1))
        return screenshot(f"{server.url}/#/nodes?at=30000", READY)
    finally:
        server.stop()


def main() -> None:
    """Write the pictures."""
    if shutil.which("chromium") is None:
        sys.exit("needs chromium and chromedriver: apt install chromium chromium-driver")
    with TemporaryDirectory() as place:
        folder = Path(place) / "generated workload"
        found = simulate(generate_workload(60, 1200, seed=3), replay=ReplayOptions())
        found.write(folder)
        (IMAGES / "report.png").write_bytes(screenshot(write_report(folder).as_uri()))
    busy = simulate(generate_workload(240, 6000, seed=3), replay=ReplayOptions(until_s=40_000))
    (IMAGES / "page.png").write_bytes(screenshot_of_page(busy))


if __name__ == "__main__":
    main()
