"""What `run` and `up` load before they start: the page's questions only where there is a page."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from stowplan.cli.runs.pages.serve_page import maybe_serving_page
with maybe_serving_page({web!r}, "", "") as server:
    print("stowplan.web.serving.page_server" in sys.modules)
"""


@pytest.mark.parametrize(("web", "loaded"), [(None, "False"), ("127.0.0.1:0", "True")])
def test_the_page_is_loaded_where_it_is_served(web: str | None, loaded: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(web=web)], capture_output=True, check=True, text=True
    )
    assert ran.stdout.strip() == loaded
