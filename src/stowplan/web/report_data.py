"""Folders of runs and experiments, as reports read them. The one module that knows the files.

A run's folder has what `stowplan simulate --out` writes, and in an experiment also `run.json`,
`measures.json` and, of a replay, `fairness.csv`. An experiment's folder has `experiment.json`,
`measures.csv`, `comparison.json` and its runs below `runs/`; `table.csv` is that of the FGD
experiment.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.node_use import NodeUse, decode_runs

SUMMARY, PLACEMENTS, SERIES, USAGE = "summary.json", "placements.jsonl", "series.csv", "usage.json"
EXPERIMENT, MEASURES, COMPARISON, TABLE, FAIRNESS = (
    "experiment.json",
    "measures.csv",
    "comparison.json",
    "table.csv",
    "fairness.csv",
)
EXPECTED = "the results of `stowplan simulate --out` or `stowplan experiment`"

Tree = dict[str, Any]
Floats = NDArray[np.float64]


class PlacementLine(msgspec.Struct, frozen=True):
    """The fields of a line of `placements.jsonl` that reports read."""

    pod: str
    node: str = ""
    reason: str = ""
    arrived_s: float = 0.0
    bound_s: float | None = None
    ended_s: float | None = None
    wait_s: float | None = None


class RunResults(msgspec.Struct):
    """A run. label: its policy in comparisons, "" for the only run. series: column -> values.
    shares: of `use`, uint8 (n_resources, n_nodes, n_samples). fairness: columns of `fairness.csv`,
    empty where it is not there."""

    label: str
    summary: Tree
    placements: list[PlacementLine]
    series: dict[str, Floats]
    use: NodeUse | None
    shares: NDArray[np.uint8] | None
    seed: int = 0
    description: Tree = {}
    fairness: dict[str, Floats] = {}

    @property
    def is_replay(self) -> bool:
        """True for a run in virtual time."""
        return "replay" in self.summary

    def times(self, name: str) -> Floats:
        """float (n_pods,): a time of each pod in seconds; infinite for what has not happened."""
        values = [getattr(one, name) for one in self.placements]
        return np.array([np.inf if value is None else value for value in values], dtype=float)

    def requests(self) -> Floats:
        """float (n_pods, n_resources): requested amounts."""
        assert self.use is not None
        shape = len(self.use.sizes), len(self.use.resources)
        sizes = np.array(self.use.sizes, dtype=float).reshape(shape)
        found: Floats = sizes[np.array(self.use.pod_sizes, dtype=np.intp)]
        return found

    def offered(self) -> Floats:
        """float (n_resources,): allocatable amounts of all nodes together."""
        assert self.use is not None
        shape = len(self.use.nodes), len(self.use.resources)
        total: Floats = np.array(self.use.allocatable, dtype=float).reshape(shape).sum(axis=0)
        return total


class RunEntry(msgspec.Struct, frozen=True):
    """A run in `experiment.json`."""

    key: str
    policy: str = ""
    workload: str = ""
    options: Tree = {}
    seed: int = 0
    status: str = ""

    @property
    def setting(self) -> str:
        """Workload and options: what policies are compared on."""
        given = [f"{name}={value}" for name, value in self.options.items()]
        return ", ".join(part for part in (self.workload, *given) if part)


class Measurement(msgspec.Struct, frozen=True):
    """A row of `measures.csv`."""

    policy: str
    setting: str
    seed: int
    measure: str
    value: float


class ExperimentResults(msgspec.Struct):
    """An experiment. failures: key of a run -> why it failed. runs: folder of the runs' folders."""

    folder: Path
    description: Tree
    entries: list[RunEntry]
    measurements: list[Measurement]
    comparison: Tree
    failures: dict[str, str]
    runs: str = "runs"

    def run(self, entry: RunEntry) -> RunResults | None:
        """The results of a run; None where it has only measures, or failed."""
        folder = self.folder / self.runs / entry.key
        if not (folder / SUMMARY).is_file():
            return None
        run = read_run(folder)
        run.label, run.seed = entry.policy, entry.seed
        return run


def read_results(folder: str | Path) -> RunResults | ExperimentResults:
    """What a folder has; raises InputError."""
    path = Path(folder)
    if not path.is_dir():
        got = "not a directory" if path.exists() else "no such file or directory"
        raise InputError(str(folder), "", got, EXPECTED)
    if (path / EXPERIMENT).is_file():
        return read_experiment(path)
    if (path / SUMMARY).is_file() and (path / PLACEMENTS).is_file():
        return read_run(path)
    seeds = sorted(path.glob("seed-*/" + SUMMARY), key=lambda one: _number(one.parent.name))
    if seeds:
        return _seeds(path, [one.parent for one in seeds])
    if (path / TABLE).is_file():
        return ExperimentResults(path, {"title": path.name}, [], [], {}, {})
    if (path / SUMMARY).is_file():
        raise InputError(str(path / PLACEMENTS), "", "no such file or directory", EXPECTED)
    raise InputError(str(folder), "", f"neither {EXPERIMENT} nor {SUMMARY} in it", EXPECTED)


def _number(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _seeds(path: Path, folders: list[Path]) -> ExperimentResults:
    """The runs of `simulate --seeds`, as an experiment with one policy."""
    entries = [
        RunEntry(one.name, policy="simulate", seed=_number(one.name), status="done")
        for one in folders
    ]
    return ExperimentResults(path, {"title": path.name}, entries, [], {}, {}, "")


def read_run(folder: Path) -> RunResults:
    """The results of a run; raises InputError."""
    summary = _tree(folder / SUMMARY)
    place = folder / PLACEMENTS
    lines = _decoded(place, lambda data: _LINES.decode_lines(data)) if place.is_file() else []
    use = shares = None
    if (folder / USAGE).is_file():
        use = _decoded(folder / USAGE, _USE.decode)
        shape = len(use.resources), len(use.nodes), len(use.at)
        shares = _decoded(folder / USAGE, lambda _: decode_runs(use.shares, shape))
        if len(use.pod_sizes) != len(lines):
            got = f"{len(use.pod_sizes)} pods"
            raise InputError(str(folder / USAGE), "pod_sizes", got, f"{len(lines)}, as {place}")
    series = _columns(folder / SERIES) if (folder / SERIES).is_file() else {}
    described = _tree(folder / "run.json") if (folder / "run.json").is_file() else {}
    seed = summary.get("seed", 0)
    fairness = _columns(folder / FAIRNESS) if (folder / FAIRNESS).is_file() else {}
    return RunResults("", summary, lines, series, use, shares, seed, described, fairness)


def run_of_files(files: dict[str, bytes], command: str) -> RunResults:
    """The results of a run from its files, not yet written."""
    use = _USE.decode(files[USAGE]) if USAGE in files else None
    shares = None
    if use is not None:
        shares = decode_runs(use.shares, (len(use.resources), len(use.nodes), len(use.at)))
    return RunResults(
        "",
        msgspec.json.decode(files[SUMMARY]),
        _LINES.decode_lines(files[PLACEMENTS]),
        _columns_of(files[SERIES].decode(), SERIES) if SERIES in files else {},
        use,
        shares,
        description={"command": command},
    )


def read_experiment(folder: Path) -> ExperimentResults:
    """The results of an experiment; raises InputError."""
    described = _tree(folder / EXPERIMENT)
    try:
        entries = msgspec.convert(described.get("runs", []), list[RunEntry])
    except msgspec.ValidationError as problem:
        raise InputError.at(str(folder / EXPERIMENT), "runs", problem) from None
    comparison = _tree(folder / COMPARISON) if (folder / COMPARISON).is_file() else {}
    failures = {}
    for entry in entries:
        place = folder / "failures" / f"{entry.key}.json"
        if place.is_file():
            found = _tree(place)
            texts = (found.get(name) for name in ("error", "message", "text"))
            failures[entry.key] = next((str(one) for one in texts if one), "failed")
    measured = _measurements(folder / MEASURES) if (folder / MEASURES).is_file() else []
    return ExperimentResults(folder, described, entries, measured, comparison, failures)


def read_table(path: Path) -> list[tuple[str, str, str, int, list[float]]]:
    """The lines of `table.csv`: metric, workload, policy, seed, and a figure per percent of arrived
    load; raises InputError."""
    found = []
    lines = csv.reader(io.StringIO(read_bytes(path).decode()))
    header = next(lines, [])
    if header[:4] != ["metric", "workload", "policy", "seed"]:
        wanted = "the header metric,workload,policy,seed,0,1,..."
        raise InputError(str(path), "line 1", repr(",".join(header)[:60]), wanted)
    for number, cells in enumerate(lines, start=2):
        try:
            metric, workload, policy, seed, *figures = cells
            found.append((metric, workload, policy, int(seed), [float(one) for one in figures]))
        except ValueError:
            wanted = "a metric, workload, policy, whole seed, and numbers"
            raise InputError(str(path), f"line {number}", "", wanted) from None
    return found


_LINES: msgspec.json.Decoder[PlacementLine] = msgspec.json.Decoder(PlacementLine)
_USE = msgspec.json.Decoder(NodeUse)


def _decoded(path: Path, decode: Any) -> Any:
    try:
        return decode(read_bytes(path))
    except (msgspec.DecodeError, ValueError) as problem:
        if isinstance(problem, InputError):
            raise
        raise InputError.at(str(path), "", problem) from None


def _tree(path: Path) -> Tree:
    found = _decoded(path, msgspec.json.decode)
    if not isinstance(found, dict):
        raise InputError(str(path), "", f"a {type(found).__name__}", "an object")
    return found


def _columns(path: Path) -> dict[str, Floats]:
    return _columns_of(_decoded(path, bytes.decode), str(path))


def _columns_of(text: str, source: str) -> dict[str, Floats]:
    header, _, rest = text.partition("\n")
    names = next(csv.reader([header]), [])
    if names[:1] != ["time_s"]:
        raise InputError(source, "line 1", repr(header[:60]), "a header that begins with time_s")
    if not rest.strip():
        return {name: np.zeros(0) for name in names}
    try:
        table = np.loadtxt(io.StringIO(rest), delimiter=",", ndmin=2)
    except ValueError as problem:
        raise InputError.at(source, "", problem) from None
    if table.shape[1] != len(names):
        raise InputError(source, "", f"{table.shape[1]} columns", f"{len(names)}, as the header")
    return dict(zip(names, table.T, strict=True))


def _measurements(path: Path) -> list[Measurement]:
    rows = csv.DictReader(io.StringIO(read_bytes(path).decode()))
    return list(_measured(rows, path))


def _measured(rows: Iterable[dict[str, str]], path: Path) -> Iterable[Measurement]:
    fixed = {"policy", "workload", "seed", "measure", "value"}
    for number, row in enumerate(rows, start=2):
        options = {name: value for name, value in row.items() if name not in fixed and value}
        entry = RunEntry("", workload=row.get("workload", ""), options=options)
        try:
            if row["value"] != "":
                yield Measurement(
                    row["policy"],
                    entry.setting,
                    int(row["seed"]),
                    row["measure"],
                    float(row["value"]),
                )
        except (KeyError, ValueError, TypeError):
            wanted = "policy,workload,...,seed,measure,value"
            raise InputError(str(path), f"line {number}", repr(row)[:80], wanted) from None
