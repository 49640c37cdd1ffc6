"""Formats of traces: one table, and the files that each recognises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol

from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import check_word
from stowplan.inputs.traces import (
    cluster_dump,
    google_2019,
    pai_2020,
    philly,
    spot_gpu_2026,
    swf,
)
from stowplan.objects.meta import Object

DUMP = "kubectl"
"""The format whose files hold Kubernetes objects."""
SAMPLE_BYTES = 8000
_MANIFESTS = (".yaml", ".yml")


class TraceImporter(Protocol):
    """Reads the files of one format; objects and notes once all are read."""

    def read(self, file: InputFile) -> None: ...

    def objects(self) -> Iterator[tuple[str, Object]]: ...

    def notes(self) -> list[str]: ...


class TraceSample(NamedTuple):
    """The beginning of a file. columns: of its first line as CSV."""

    source: str
    suffix: str
    text: str

    @property
    def columns(self) -> set[str]:
        """The first line's cells."""
        return {cell.strip() for cell in self.text.lstrip().partition("\n")[0].split(",")}


class TraceFormat(NamedTuple):
    """A format. lost: what an import leaves out. make: None for what is read as objects."""

    title: str
    recognises: Callable[[TraceSample], bool]
    make: Callable[[], TraceImporter] | None
    lost: tuple[str, ...]


def _is_swf(sample: TraceSample) -> bool:
    return sample.suffix == ".swf"


def _is_pai(sample: TraceSample) -> bool:
    return bool(pai_2020.table_of(list(sample.columns))) or (
        any(name in sample.source for name in pai_2020.TABLES) and sample.suffix == ".csv"
    )


def _is_spot_gpu(sample: TraceSample) -> bool:
    known = (spot_gpu_2026.JOB_COLUMNS, spot_gpu_2026.NODE_COLUMNS)
    return any(set(columns) <= sample.columns for columns in known)


def _is_philly(sample: TraceSample) -> bool:
    if sample.text.lstrip().startswith("["):
        return '"jobid"' in sample.text and '"attempts"' in sample.text
    return set(philly.MACHINE_COLUMNS) <= sample.columns


def _is_google(sample: TraceSample) -> bool:
    if sample.text.lstrip()[:1] in ("{", "["):
        first = sample.text.lstrip().partition("\n")[0]
        has_table = any(f'"{name}"' in first for name in ("collection_id", "machine_id"))
        return '"time"' in first and '"type"' in first and has_table
    columns = sample.columns
    return "time" in columns and bool({"collection_id", "machine_id"} & columns)


def _is_nothing(_: TraceSample) -> bool:
    return False


FORMATS = {
    "swf": TraceFormat("Standard Workload Format", _is_swf, swf.SwfImporter, swf.LOST),
    "pai-2020": TraceFormat("Alibaba PAI 2020", _is_pai, pai_2020.PaiImporter, pai_2020.LOST),
    "spot-gpu-2026": TraceFormat(
        "Alibaba spot GPU 2026", _is_spot_gpu, spot_gpu_2026.SpotGpuImporter, spot_gpu_2026.LOST
    ),
    "philly": TraceFormat("Philly", _is_philly, philly.PhillyImporter, philly.LOST),
    "google-2019": TraceFormat(
        "Google 2019", _is_google, google_2019.GoogleImporter, google_2019.LOST
    ),
    DUMP: TraceFormat("kubectl dump as a trace", _is_nothing, None, cluster_dump.LOST),
}
"""Format -> how it is recognised and read. OpenB and exports of schedulers' tools are read beside
manifests, see `stowplan.inputs.openb` and `stowplan.inputs.scheduler_exports`."""


class TraceFiles:
    """Collects trace files by format."""

    def __init__(self, forced: str = "") -> None:
        """forced: the format of all files but YAML; "" recognises it. Raises InputError."""
        if forced:
            check_word("trace-format", forced, FORMATS)
        self._forced = forced
        self._importers: dict[str, TraceImporter] = {}
        self.dump = cluster_dump.DumpImporter() if forced == DUMP else None

    def take(self, file: InputFile) -> bool:
        """Read a file of a trace; False for any other file. Raises InputError."""
        name = self._format_of(file)
        made = FORMATS[name].make if name else None
        if made is None:
            return False
        if name not in self._importers:
            self._importers[name] = made()
        self._importers[name].read(file)
        return True

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        return chain.from_iterable(one.objects() for one in self._importers.values())

    def notes(self) -> list[str]:
        """What was imported, what never is, and what was left out of these files; valid once
        `objects` is through."""
        found: list[str] = []
        names = [*self._importers, *([DUMP] if self.dump is not None else [])]
        for name in names:
            known = FORMATS[name]
            found.append(
                f"trace imported: {known.title}; not in the model: {'; '.join(known.lost)}"
            )
            importer = self.dump if name == DUMP else self._importers[name]
            assert importer is not None
            found += [f"{known.title}: {note}" for note in importer.notes()]
        return found

    def _format_of(self, file: InputFile) -> str:
        if self._forced and self._forced != DUMP and file.suffix not in _MANIFESTS:
            return self._forced
        if self._forced == DUMP or file.suffix in _MANIFESTS:
            return ""
        text = file.data[:SAMPLE_BYTES].decode("utf-8-sig", "replace")
        sample = TraceSample(file.source, file.suffix, text)
        return next((name for name, one in FORMATS.items() if one.recognises(sample)), "")
