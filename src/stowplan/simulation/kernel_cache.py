"""Kernel cache: whether the compiled kernels are on disk, and having them compiled beside the walk.

Numba keeps what it has compiled on disk, where another process loads it in a third of a second.
Compiling takes seconds, once per machine and version: a process of its own does that while pods are
decided by the walk, and goes on when the command has ended, so that the next one finds them.

Source: Numba 0.61 to 0.68, numba/core/caching.py, for where its files are and what they begin with.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.cycle.engine import kernel_loading
from stowplan.messages.events import NodeAdded, PodAdded
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

COMPILE = "from stowplan.simulation.kernel_cache import compile_alone; compile_alone()"
NICENESS = 10


def is_cached() -> bool:
    """True when kernels need not be compiled: they are loaded, or kept on disk as they are now."""
    if kernel_loading.is_loaded():
        return True
    found = find_spec("stowplan.columns.engine.kernels")
    if found is None or found.origin is None:
        return False
    source = Path(found.origin)
    try:
        numba = version("numba").encode()
        stamp = hashlib.sha256(source.read_bytes()).digest()
        return any(_is_current(file, numba, stamp) for file in _folder(source).glob(_name(source)))
    except (OSError, PackageNotFoundError):
        return False


def _name(source: Path) -> str:
    """How the file is named in which Numba notes what is compiled of the outermost kernel."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    return f"{source.stem}.run-*.{python}.nbi"


def _folder(source: Path) -> Path:
    """Where Numba keeps what is compiled of a file: the first of three places that it can use."""
    beside = source.parent / "__pycache__"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if not given and os.access(beside if beside.exists() else source.parent, os.W_OK):
        return beside
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = f"{source.parent.name}_{hashlib.sha1(str(source.parent).encode()).hexdigest()}"
    return Path(given or Path(home, "numba"), folder)


def _is_current(file: Path, numba: bytes, stamp: bytes) -> bool:
    """True for an index by this Numba of this very source."""
    data = file.read_bytes()
    return numba in data[:64] and stamp in data


class KernelCompilation:
    """Kernels that are compiled by another process, if one was started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Have them compiled, unless they are at hand."""
        if is_cached():
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMPILE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # It goes on when the terminal's job is over or interrupted.
            start_new_session=True,
        )

    @property
    def is_under_way(self) -> bool:
        """True while they are being compiled."""
        return self._process is not None

    def look(self) -> None:
        """Load them if they have become ready: from then on the engine decides."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            if code == 0:
                kernel_loading.load_kernels()


BACKGROUND_COMPILATION = KernelCompilation()
"""Of this process; a command begins it, no library call does."""


def compile_alone() -> None:
    """Have the kernels compiled and kept, unless another process is at it; takes some seconds."""
    os.nice(NICENESS)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    name = f"stowplan-kernels-{os.getuid()}.lock"
    lock = os.open(Path(tempfile.gettempdir(), name), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(1)
    run_kernels_once()


def run_kernels_once() -> None:
    """Place two pods by kernels, so that all that a run calls is compiled."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"metadata": {"name": "node"}, "status": {"allocatable": amounts, "capacity": amounts}}
    pods = [
        convert(
            {"metadata": {"name": name, "uid": name}, "spec": {"containers": [{"name": "c"}]}}, Pod
        )
        for name in ("first", "second")
    ]
    rng = np.random.default_rng(0)
    scheduler = scheduler_for(*configuration_of(None, "kernels"), rng=rng, engine="compiled")
    scheduler.handle([NodeAdded(convert(node, Node)), *map(PodAdded, pods)], 0)
