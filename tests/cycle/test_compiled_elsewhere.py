"""While another process compiles the kernels, the deciding one neither waits nor compiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stowplan.cycle import decider as decider_module
from stowplan.cycle.decider import CycleDecider
from stowplan.cycle.engine import kernel_loading
from stowplan.cycle.engine.kernel_loading import note_compilation


@pytest.fixture(autouse=True)
def compiling_pays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Nothing is loaded, and every row is worth compiling; gives what has been loaded."""
    loaded: list[str] = []
    monkeypatch.setattr(decider_module, "COMPILE_ROWS_MIN", -1)
    monkeypatch.setattr(decider_module, "is_loaded", lambda: False)
    monkeypatch.setattr(decider_module, "load_kernels", lambda: loaded.append("here"))
    yield loaded
    note_compilation("owner", is_under_way=False)


def test_kernels_are_not_compiled_here_while_they_are_elsewhere(compiling_pays: list[str]) -> None:
    note_compilation("owner", is_under_way=True)
    CycleDecider().engine()
    assert kernel_loading.is_compiled_elsewhere()
    assert compiling_pays == []


def test_control_they_are_compiled_here_once_that_has_ended(compiling_pays: list[str]) -> None:
    note_compilation("owner", is_under_way=True)
    note_compilation("owner", is_under_way=False)
    CycleDecider().engine()
    assert compiling_pays == ["here"]
