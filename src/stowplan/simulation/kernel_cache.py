"""Kernel cache: whether compiled kernels are on disk, and their compilation in the background.

Numba caches compiled code on disk; loading it takes a third of a second. Compiling takes seconds,
once per machine and version. A background process compiles while NumPy kernels place pods; it
outlives the command, so that the next command finds the kernels.

Source: Numba 0.61 to 0.68, numba/core/caching.py: location and header of cache files.
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
    """True when the kernels are loaded, or cached on disk for this source and Numba version."""
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
    """File name pattern of Numba's index of the outermost kernel."""
    python = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    return f"{source.stem}.run-*.{python}.nbi"


def _folder(source: Path) -> Path:
    """Numba's cache folder for a source file: the first usable one of three."""
    beside = source.parent / "__pycache__"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if not given and os.access(beside if beside.exists() else source.parent, os.W_OK):
        return beside
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = f"{source.parent.name}_{hashlib.sha1(str(source.parent).encode()).hexdigest()}"
    return Path(given or Path(home, "numba"), folder)


def _is_current(file: Path, numba: bytes, stamp: bytes) -> bool:
    """True for an index file of this Numba version and this source."""
    data = file.read_bytes()
    return numba in data[:64] and stamp in data


class KernelCompilation:
    """Compilation of the kernels in a background process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start the compilation unless the kernels are cached."""
        if is_cached():
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMPILE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # The process survives the end or interrupt of the terminal's job.
            start_new_session=True,
        )

    @property
    def is_under_way(self) -> bool:
        """True while the compilation runs."""
        return self._process is not None

    def poll(self) -> None:
        """Load the kernels when the compilation has finished."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            if code == 0:
                kernel_loading.load_kernels()


BACKGROUND_COMPILATION = KernelCompilation()
"""Compilation of this process; commands start it, library calls do not."""


def compile_alone() -> None:
    """Compile and cache the kernels, unless another process does; takes some seconds."""
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
    """Place two pods by kernel, so that everything a run calls is compiled."""
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
