"""Garbage collector settings, which concern a whole process: for its entry point only."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[Callable[[], None]]:
    """The collector is off until the yielded function is called, or the block ends: what is read
    at the start lives long. That function is `freeze_long_lived_objects`."""
    gc.disable()
    try:
        yield freeze_long_lived_objects
    finally:
        gc.enable()


def freeze_long_lived_objects() -> None:
    """Collect once, exempt what is left from later collections, and switch the collector on."""
    gc.collect()
    gc.freeze()
    gc.enable()
