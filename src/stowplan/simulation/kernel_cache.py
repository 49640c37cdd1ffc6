"""Kernel cache: whether compiled kernels are on disk, and their compilation in the background.

Numba caches compiled code on disk; importing Numba and loading that takes a third of a second.
Beside it is the same code in a file that is loaded without Numba. Compiling takes seconds, once per
machine and version. A background process compiles while NumPy kernels place pods; it outlives the
command, so that the next command finds the kernels.

Source: Numba 0.61 to 0.68, numba/core/caching.py: location and header of cache files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.cycle.engine import kernel_loading
from stowplan.messages.events import NodeAdded, PodAdded
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

EXPORT = (
    "from stowplan.simulation.kernel_cache import write_exported; write_exported()",
    "from stowplan.simulation.kernel_cache import try_exported; try_exported()",
)
"""Making the exported kernels, and trying them in a process that has not loaded Numba."""
COMPILE = (
    "from os import nice; nice(10); "
    "from stowplan.simulation.kernel_cache import compile_alone; compile_alone()"
)
"""At low priority from the first import on."""
EXPORTED, UNTRIED = "kernels.run.code", "kernels.run.untried"
DIGEST_SIZE = 32


class ExportedFile(msgspec.Struct, frozen=True, array_like=True):
    """The file of exported kernels, as MessagePack after its SHA-256.

    stamp: see `_stamp`. The rest: as in `KernelCode`; without code they cannot be exported here.
    """

    stamp: bytes
    processor: str = ""
    symbol: str = ""
    needs: tuple[str, ...] = ()
    code: bytes = b""


def _source(name: str = "kernels") -> Path | None:
    found = find_spec(f"stowplan.columns.engine.{name}")
    return None if found is None or found.origin is None else Path(found.origin)


@cache
def _version(distribution: str) -> bytes:
    """Of an installed distribution; raises ModuleNotFoundError."""
    # Imported here: it takes long, and without files nothing is compared.
    from importlib.metadata import version

    return version(distribution).encode()


def _stamp(source: Path) -> bytes:
    """What the exported kernels depend on beside the processor."""
    texts = [source.read_bytes(), source.with_name("kernel_export.py").read_bytes()]
    texts += [_version(name) for name in ("numba", "llvmlite")]
    return hashlib.sha256(b"\0".join(texts)).digest()


def _read_exported(source: Path, name: str) -> ExportedFile | None:
    """The file of exported kernels, if it is whole and made from this source."""
    try:
        data = Path(_folder(source), name).read_bytes()
        stamp = _stamp(source)
    except (OSError, ModuleNotFoundError):
        return None
    digest, body = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    if hashlib.sha256(body).digest() != digest:
        return None
    found = msgspec.msgpack.decode(body, type=ExportedFile)
    return found if found.stamp == stamp else None


def _write(place: Path, exported: ExportedFile) -> None:
    body = msgspec.msgpack.encode(exported)
    aside = place.with_name(f".{place.name}.{os.getpid()}.part")
    aside.write_bytes(hashlib.sha256(body).digest() + body)
    aside.replace(place)


def load_exported(name: str = EXPORTED) -> bool:
    """Load the exported kernels; False where there are none for this source and processor."""
    source = _source()
    found = None if source is None else _read_exported(source, name)
    if found is None or not found.code:
        return False
    # Imported here: most commands need no kernels.
    from stowplan.columns.engine import kernel_export

    if found.processor != kernel_export.processor():
        return False
    code = kernel_export.KernelCode(found.processor, found.symbol, found.needs, found.code)
    kernel_loading.use_exported(kernel_export.ExportedKernels(code))
    return True


def is_exported() -> bool:
    """True when this source has been exported, or cannot be."""
    source = _source()
    return source is not None and _read_exported(source, EXPORTED) is not None


def export_kernels() -> None:
    """Write the exported kernels. Both steps have a process of their own: wrong machine code would
    end it."""
    source = _source()
    if source is None or is_exported():
        return
    folder, stamp = _folder(source), _stamp(source)
    done = [subprocess.run([sys.executable, "-c", step], check=False).returncode for step in EXPORT]
    if any(done):
        _write(folder / EXPORTED, ExportedFile(stamp))
    else:
        Path(folder, UNTRIED).replace(folder / EXPORTED)


def write_exported() -> None:
    """Export the kernels to a file that has not been tried."""
    from stowplan.columns.engine.kernel_export import exported

    source = _source()
    assert source is not None
    made = exported()
    stamp, folder = _stamp(source), _folder(source)
    _write(
        folder / UNTRIED, ExportedFile(stamp, made.processor, made.symbol, made.needs, made.code)
    )


def try_exported() -> None:
    """Place two pods with the exported kernels that have not been tried."""
    if not load_exported(UNTRIED):
        sys.exit(1)
    run_kernels_once()


def is_cached() -> bool:
    """True when the kernels are loaded, or cached on disk for this source and Numba version."""
    if kernel_loading.is_loaded():
        return True
    return all(map(_is_source_cached, ("kernels", "preemption_kernels")))


def _is_source_cached(name: str) -> bool:
    source = _source(name)
    if source is None:
        return False
    try:
        files = list(_folder(source).glob(_name(source)))
        if not files:
            return False
        numba = _version("numba")
        stamp = hashlib.sha256(source.read_bytes()).digest()
        return any(_is_current(file, numba, stamp) for file in files)
    except (OSError, ModuleNotFoundError):
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


def _is_on_disk() -> bool:
    return is_exported() and is_cached()


def _load_cached() -> None:
    """Load Numba's kernels, which are on disk."""
    if kernel_loading.load_kernels() is not None:
        kernel_loading.warm_preemption_kernel()


class KernelCompilation:
    """Compilation of the kernels in a background process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_due = False

    def start(self) -> None:
        """Load kernels that are on disk; if some are missing, `poll` begins to compile them."""
        if not load_exported() and is_cached():
            _load_cached()
        if self._process is None and not _is_on_disk():
            kernel_loading.note_compilation(self, is_under_way=True)
            self._is_due = True

    def begin(self) -> None:
        """Start the compilation unless all kernels are on disk."""
        self._is_due = False
        if self._process is not None or _is_on_disk():
            return
        kernel_loading.note_compilation(self, is_under_way=True)
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

    def stop(self) -> None:
        """End the compilation, which otherwise outlives this process."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
            self._process = None
        self._is_due = False
        kernel_loading.note_compilation(self, is_under_way=False)

    def poll(self) -> None:
        """Begin the compilation that `start` found to be needed, and load the kernels when it has
        finished."""
        if self._is_due:
            self.begin()
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            kernel_loading.note_compilation(self, is_under_way=False)
            if code == 0 and not load_exported():
                _load_cached()


BACKGROUND_COMPILATION = KernelCompilation()
"""Compilation of this process; commands start it, library calls do not."""


def compile_alone() -> None:
    """Compile and cache the kernels, unless another process does; takes some seconds."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    name = f"stowplan-kernels-{os.getuid()}.lock"
    lock = os.open(Path(tempfile.gettempdir(), name), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(1)
    run_kernels_once()
    kernel_loading.warm_preemption_kernel()
    export_kernels()


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
