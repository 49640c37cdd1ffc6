"""The pictures of README and docs: made by their script, and serving where they are named."""

from __future__ import annotations

import importlib.util
import re
import struct
from pathlib import Path
from types import ModuleType

import pytest

from tests.web.browser import CHROMIUM, DRIVER, MISSING

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
SIZE = (1280, 900)
PICTURES = ("page.png", "report.png")


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG file."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def script() -> ModuleType:
    path = ROOT / "docs" / "scripts" / "page_screenshots.py"
    spec = importlib.util.spec_from_file_location("page_screenshots", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_there_and_on_a_page(name: str) -> None:
    assert size_of((IMAGES / name).read_bytes()) == SIZE
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    places = [
        page.name for page in pages if re.search(rf"!\[[^]]+\]\([a-z/]*{name}\)", page.read_text())
    ]
    assert ("README.md" in places) == (name == "page.png")
    assert any(one != "README.md" for one in places)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason=MISSING)
def test_the_script_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script()
    monkeypatch.setattr(module, "IMAGES", tmp_path)
    module.main()
    for name in PICTURES:
        data = (tmp_path / name).read_bytes()
        assert size_of(data) == SIZE
        # A blank page is a few kilobytes.
        assert len(data) > 40_000
