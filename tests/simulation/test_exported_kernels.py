"""Exported kernels: machine code loaded without Numba places pods as NumPy's kernels do, and is
loaded only where it was made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import kernel_export
from stowplan.columns.engine.kernel_export import ExportedKernels, KernelCode
from stowplan.cycle.engine import kernel_loading
from stowplan.simulation import kernel_cache
from stowplan.simulation.kernel_cache import EXPORTED, UNTRIED, ExportedFile
from tests.property.engine_objects import spreads
from tests.property.engine_twins import Course, Twins
from tests.soak import examples

COURSES = {
    "anything": Course(),
    "ties are random": Course(random_ties=True, foreign=2),
    "no node, or one or two": Course(sizes=(0, 1, 2), random_ties=True),
    "many nodes": Course(sizes=(60, 120), wishes=(spreads,)),
}
TRY = "; import sys; sys.exit('numba' in sys.modules)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with exported kernels that have not been tried."""
    place = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(place))
        source = kernel_cache._source()
        assert source is not None
        kernel_cache._folder(source).mkdir()
        kernel_cache.write_exported()
        return kernel_cache._folder(source)


@pytest.fixture
def cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ExportedFile:
    """The exported kernels as tried ones, in the folder that is used."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder.parent))
    monkeypatch.setattr(kernel_loading, "_exported", [])
    (folder / EXPORTED).write_bytes((folder / UNTRIED).read_bytes())
    source = kernel_cache._source()
    assert source is not None
    found = kernel_cache._read_exported(source, EXPORTED)
    assert found is not None
    return found


def code_of(file: ExportedFile) -> KernelCode:
    return KernelCode(file.processor, file.symbol, file.needs, file.code)


@pytest.fixture
def exported(cached: ExportedFile) -> ExportedKernels:
    return ExportedKernels(code_of(cached))


def run_course(course: Course, seed: int, n_steps: int, kernels: Any) -> Twins:
    twins = Twins(seed, course, kernels)
    twins.walk(n_steps)
    return twins


@pytest.mark.parametrize("name", COURSES)
def test_every_course_chooses_the_nodes_of_the_walk(name: str, exported: ExportedKernels) -> None:
    @settings(max_examples=examples(6))
    @given(st.integers(0, 2**32 - 1), st.integers(3, 24))
    def look(seed: int, n_steps: int) -> None:
        run_course(COURSES[name], seed, n_steps, exported)

    look()


class StaleArrays(ExportedKernels):
    """Kernels that do not notice that an array is another one."""

    def _take(self, i: int, array: Any) -> None:
        if self._arrays[i] is None or self._arrays[i].shape != array.shape:
            super()._take(i, array)


def test_most_pods_are_placed_by_them_and_stale_arrays_are_noticed(
    cached: ExportedFile, exported: ExportedKernels
) -> None:
    twins = run_course(Course(sizes=(12, 30), foreign=4), 1, 60, exported)
    assert twins.counted["placed"] > 120
    with pytest.raises((AssertionError, IndexError)):
        run_course(Course(sizes=(12, 30), foreign=4), 1, 60, StaleArrays(code_of(cached)))


def test_arrays_of_another_type_or_order_are_refused(exported: ExportedKernels) -> None:
    with pytest.raises(TypeError, match="array 0 is int32/2, wanted int64/2 in C order"):
        exported._take(0, np.zeros((2, 2), dtype=np.int32))
    with pytest.raises(TypeError, match="array 0 is int64/2, wanted int64/2 in C order"):
        exported._take(0, np.zeros((4, 4), dtype=np.int64)[:, :2])


def test_they_are_loaded_where_they_were_made(
    cached: ExportedFile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / EXPORTED
    assert kernel_cache.is_exported()
    assert kernel_cache.load_exported()
    assert isinstance(kernel_loading._exported[0], ExportedKernels)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert not kernel_cache.is_exported()
    assert not kernel_cache.load_exported()
    file.unlink()
    assert not kernel_cache.load_exported()
    kernel_cache._write(file, msgspec.structs.replace(cached, stamp=b"another source"))
    assert not kernel_cache.load_exported()
    kernel_cache._write(file, cached)
    monkeypatch.setattr(kernel_export, "processor", lambda: "another processor")
    assert not kernel_cache.load_exported()


def try_in_a_process(folder: Path) -> int:
    """Exit code of a process that places pods with the untried kernels, 1 if it loads Numba."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder.parent)}
    command = [sys.executable, "-c", kernel_cache.EXPORT[1] + TRY]
    return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


def test_a_process_without_numba_places_pods_with_them(folder: Path, cached: ExportedFile) -> None:
    assert try_in_a_process(folder) == 0
    kernel_cache._write(folder / UNTRIED, msgspec.structs.replace(cached, code=b"no code"))
    assert try_in_a_process(folder) != 0
    kernel_cache._write(folder / UNTRIED, cached)


@pytest.mark.parametrize(
    ("codes", "has_code"), [((0, 0), True), ((1, 1), False), ((0, -11), False)]
)
def test_code_that_fails_is_noted_and_not_tried_again(
    codes: tuple[int, int],
    has_code: bool,
    folder: Path,
    cached: ExportedFile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / EXPORTED).unlink()
    left = list(codes)

    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], left.pop(0))

    monkeypatch.setattr(kernel_cache.subprocess, "run", run)
    kernel_cache.export_kernels()
    assert kernel_cache.is_exported()
    assert kernel_cache.load_exported() is has_code
    kernel_cache.export_kernels()
    assert left == []
    kernel_cache._write(folder / UNTRIED, cached)


def test_kernels_of_numba_are_preferred_once_loaded(exported: ExportedKernels) -> None:
    from stowplan.columns.engine import kernels

    kernel_loading.use_exported(exported)
    assert kernel_loading.is_loaded()
    assert kernel_loading.load_kernels() is kernels
