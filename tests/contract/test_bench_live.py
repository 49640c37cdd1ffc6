"""`make bench-live` measures what it says; here in small, and no figure is looked at."""

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "live.py"


@pytest.fixture(scope="module")
def live() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_live", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_part_runs(live: ModuleType) -> None:
    figures = asyncio.run(live.writes(40, durable=True))
    figures += asyncio.run(live.events(30, watchers=3))
    figures += asyncio.run(live.memory(30))
    figures += asyncio.run(live.applies(20))
    assert [figure.what for figure in figures] == [
        "pod creations, on disk",
        "bindings, on disk",
        "watch events to 3 watchers",
        "30 pods stored",
        "applies without a change",
    ]
    assert all("/s" in figure.got for figure in figures)
