"""When the kernels are compiled in another process: from the first decision on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stowplan.cycle.engine import kernel_loading
from stowplan.simulation import kernel_cache
from stowplan.simulation.kernel_cache import COMPILE, KernelCompilation


class Compiling:
    """A process that has not ended. begun: the programs of all."""

    def __init__(self, command: list[str], **_: Any) -> None:
        BEGUN.append(command[-1])
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


BEGUN: list[str] = []


@pytest.fixture
def compilation(monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelCompilation]:
    """One on whose disk there are no kernels."""
    BEGUN.clear()
    monkeypatch.setattr(kernel_cache, "load_exported", lambda: False)
    monkeypatch.setattr(kernel_cache, "is_exported", lambda: False)
    monkeypatch.setattr(kernel_cache, "is_cached", lambda: False)
    monkeypatch.setattr(kernel_cache.subprocess, "Popen", Compiling)
    made = KernelCompilation()
    yield made
    kernel_loading.note_compilation(made, is_under_way=False)


def test_the_start_leaves_the_processor_to_the_first_decision(
    compilation: KernelCompilation,
) -> None:
    compilation.start()
    assert BEGUN == []
    assert kernel_loading.is_compiled_elsewhere(), "the decider would compile by itself"
    compilation.poll()
    assert BEGUN == [COMPILE]
    compilation.poll()
    assert BEGUN == [COMPILE]


def test_without_a_start_nothing_is_compiled(compilation: KernelCompilation) -> None:
    compilation.poll()
    assert BEGUN == []


def test_a_stop_before_the_first_decision_leaves_nothing(compilation: KernelCompilation) -> None:
    compilation.start()
    compilation.stop()
    assert not kernel_loading.is_compiled_elsewhere()
    compilation.poll()
    assert BEGUN == []


def test_kernels_on_disk_are_not_compiled(
    compilation: KernelCompilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "load_exported", lambda: True)
    monkeypatch.setattr(kernel_cache, "is_exported", lambda: True)
    monkeypatch.setattr(kernel_cache, "is_cached", lambda: True)
    compilation.start()
    compilation.poll()
    assert BEGUN == []


def test_the_process_has_a_low_priority_before_it_imports_anything() -> None:
    first, _, _ = COMPILE.partition("from stowplan")
    assert "nice(10)" in first
