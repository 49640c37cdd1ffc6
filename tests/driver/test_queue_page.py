"""The examples of docs/queue.md, run unchanged."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "queue.md").read_text(encoding="utf-8")
THREADS, ASYNCIO = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(source, "docs/queue.md", "exec"), names)
    return names


def until(holds: Any) -> bool:
    """True as soon as it holds; False when it does not within four minutes."""
    deadline = time.monotonic() + 240
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(holds())


def test_the_thread_example_respects_the_quota() -> None:
    names = run(THREADS)
    queue, sent, workers = names["queue"], names["sent"], names["workers"]
    for worker in workers:
        worker.start()
    try:
        assert until(lambda: len(sent) == 2 and len(queue) == 1)
        names["more_quota"](queue)
        assert until(lambda: len(sent) == 3)
    finally:
        queue.close()
        for worker in workers:
            worker.join(timeout=240)
    assert sorted(sent) == ["mail-0", "mail-1", "mail-2"]


def test_the_asyncio_example_retries_after_a_second() -> None:
    began = time.monotonic()
    seen = asyncio.run(run(ASYNCIO)["main"]())
    assert seen == [("large", 1), ("small", 1), ("small", 2)]
    assert time.monotonic() - began > 1
