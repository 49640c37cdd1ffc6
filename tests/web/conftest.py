"""The browser, started once for all tests of the page and of reports."""

from collections.abc import Iterator

import pytest

from tests.web.browser import Browser, browser


@pytest.fixture(scope="session")
def page() -> Iterator[Browser]:
    """A browser, on the worker that has the group `browser`."""
    with browser() as found:
        yield found
