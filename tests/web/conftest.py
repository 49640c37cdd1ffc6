"""The browser, started once for all tests of the page and of reports."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.web.browser import Browser, browser

REQUIRED = "STOWPLAN_REQUIRE_BROWSER"
"""Set to 1, a skipped test of this folder is a failed one, but for those marked `other_browser`."""


@pytest.fixture(scope="session")
def page() -> Iterator[Browser]:
    """A browser, on the worker that has the group `browser`."""
    with browser() as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    is_optional = item.get_closest_marker("other_browser") is not None
    if report.skipped and os.environ.get(REQUIRED) == "1" and not is_optional:
        report.outcome = "failed"
        report.longrepr = f"{REQUIRED} is set, and the test was skipped: {report.longrepr}"
    return report
