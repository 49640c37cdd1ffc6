"""Takes the picture of docs/report.md: needs chromium, chromedriver and selenium."""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium import webdriver

from stowplan.inputs.generated_workload import generate_workload
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from stowplan.web.report import write_report

IMAGE = Path(__file__).parents[1] / "images" / "report.png"
WIDTH, HEIGHT = 1280, 900


def screenshot(page: Path) -> bytes:
    """The top of a page as PNG."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        return base64.b64decode(taken["data"])
    finally:
        driver.quit()


def main() -> None:
    """Write the picture."""
    if shutil.which("chromium") is None:
        sys.exit("needs chromium and chromedriver: apt install chromium chromium-driver")
    with TemporaryDirectory() as place:
        folder = Path(place) / "generated workload"
        found = simulate(generate_workload(60, 1200, seed=3), replay=ReplayOptions())
        found.write(folder)
        IMAGE.write_bytes(screenshot(write_report(folder)))
    print(IMAGE.relative_to(IMAGE.parents[2]))


if __name__ == "__main__":
    main()
