"""Garbage collector settings, which concern a whole process: for its entry point only."""

from __future__ import annotations

import atexit
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


@contextlib.contextmanager
def uncollected_imports() -> Iterator[None]:
    """What the block imports is never looked at by the collector: it lives as long as the
    process."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def infrequent_collections() -> Iterator[None]:
    """The collector runs less often: commands that simulate make many objects, of which few are in
    cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def freeze_at_exit() -> None:
    """No collection when the interpreter ends: the operating system takes all memory back."""
    atexit.register(gc.freeze)


def freeze_long_lived_objects() -> None:
    """Collect once, exempt what is left from later collections, and switch the collector on."""
    gc.collect()
    gc.freeze()
    gc.enable()
