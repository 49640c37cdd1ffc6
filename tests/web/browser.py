"""Debian's chromium, headless and offline, and what it says about a page."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "needs chromium and chromedriver: apt install chromium chromium-driver"
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Browser:
    """A browser with one page. Requests do not leave the machine."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, file: Path, width: int = 1280, *, dark: bool = False) -> None:
        """Open a file offline, and forget what was logged before."""
        self._network(offline=True)
        self._visit(file.as_uri(), width, dark=dark)

    def visit(self, address: str, width: int = 1280, *, dark: bool = False) -> None:
        """Load a page of a server, and forget what was logged before."""
        self._network(offline=False)
        self._visit(address, width, dark=dark)

    def _visit(self, address: str, width: int, *, dark: bool) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", {"features": [scheme]})
        # Also where only what is behind # differs.
        self.driver.get("about:blank")
        self.logged()
        self.requests()
        self.driver.get(address)

    def _network(self, *, offline: bool) -> None:
        rate = 0 if offline else -1
        conditions = {"downloadThroughput": rate, "uploadThroughput": rate}
        self.command(
            "Network.emulateNetworkConditions", {"offline": offline, "latency": 0, **conditions}
        )

    def until(self, script: str, *arguments: Any, seconds: float = 240) -> Any:
        """What the script returns once that is true."""
        end = time.monotonic() + seconds
        while True:
            found = self.run(script, *arguments)
            if found:
                return found
            assert time.monotonic() < end, f"not true within {seconds} s: {script}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Keys, to what has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def command(self, name: str, arguments: dict[str, Any]) -> None:
        self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def logged(self) -> list[str]:
        """Messages of the console since the last call: errors and policy violations too."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A new browser; the test is skipped where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    try:
        found = Browser(driver)
        found.command("Network.enable", {})
        yield found
    finally:
        driver.quit()
