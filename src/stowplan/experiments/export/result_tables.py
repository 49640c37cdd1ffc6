"""Tables of results, with a documented schema: frames of pandas and polars, Parquet files.

`measures`: a row per run and measure. `pods`: a row per pod. `series`: a row per sample and
measure. Parquet needs pyarrow (`pip install stowplan[parquet]`); DuckDB, polars and pandas read the
files. The schema is `SCHEMA`, and `docs/experiment-measures.md` describes it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.experiments.measures.measure_series import measures_over_time
from stowplan.experiments.measures.run_result import RunResult
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.dataframes import to_dataframe

SCHEMA_VERSION = "1"
SCHEMA: dict[str, dict[str, str]] = {
    "measures": {
        "policy": "string", "workload": "string", "seed": "int64",
        "measure": "string", "value": "float64",
    },
    "pods": {
        "run": "string", "pod": "string", "node": "string", "reason": "string",
        "message": "string", "arrived_s": "float64", "bound_s": "float64", "started_s": "float64",
        "ended_s": "float64", "wait_s": "float64", "refusals": "int64", "restarts": "int64",
    },
    "series": {
        "run": "string", "time_s": "float64", "measure": "string", "value": "float64",
    },
}  # fmt: skip
"""Table -> column -> type of Arrow. `measures` has a string column more for each option of the
experiment. Values and times that there are not are null."""
MEASURES_CSV = "measures.csv"
RUNS = "runs"


class ResultTable(msgspec.Struct):
    """A table of the schema. columns: name -> values of equal number."""

    name: str
    columns: dict[str, list[Any]]

    def to_frame(self, library: str = "") -> Any:
        """A DataFrame of pandas or polars."""
        return to_dataframe(self.columns, library)

    def write_parquet(self, file: str | Path) -> None:
        """Write a Parquet file, compressed by zstd; raises ImportError without pyarrow."""
        arrow, parquet = _pyarrow()
        types = {"string": arrow.string(), "int64": arrow.int64(), "float64": arrow.float64()}
        known = SCHEMA[self.name]
        fields = [(name, types[known.get(name, "string")]) for name in self.columns]
        schema = arrow.schema(fields, metadata={"stowplan.schema": f"{self.name}/{SCHEMA_VERSION}"})
        table = arrow.table(self.columns, schema=schema)
        parquet.write_table(table, str(file), compression="zstd")


def measures_table(rows: Iterable[Mapping[str, Any]]) -> ResultTable:
    """The table `measures` of rows as in `measures.csv`."""
    found = list(rows)
    options = list(
        dict.fromkeys(name for row in found for name in row if name not in SCHEMA["measures"])
    )
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA["measures"]}
    columns |= {name: [] for name in options}
    for row in found:
        for name, values in columns.items():
            values.append(_cell(name, row.get(name)))
    return ResultTable("measures", columns)


def pods_table(runs: Mapping[str, RunResult]) -> ResultTable:
    """The table `pods` of runs by key."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA["pods"]}
    for key, run in runs.items():
        for one in run.placements:
            columns["run"].append(key)
            for name in SCHEMA["pods"]:
                if name != "run":
                    columns[name].append(getattr(one, name, None))
    return ResultTable("pods", columns)


def series_table(runs: Mapping[str, RunResult]) -> ResultTable:
    """The table `series` of runs by key."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA["series"]}
    for key, run in runs.items():
        series = measures_over_time(run)
        for name, values in series.columns.items():
            known = ~np.isnan(values)
            columns["run"] += [key] * int(known.sum())
            columns["time_s"] += series.times[known].tolist()
            columns["measure"] += [name] * int(known.sum())
            columns["value"] += values[known].tolist()
    return ResultTable("series", columns)


def read_measures(folder: str | Path) -> list[dict[str, str]]:
    """The rows of an experiment's `measures.csv`; raises InputError."""
    place = Path(folder) / MEASURES_CSV
    rows = list(csv.DictReader(io.StringIO(read_bytes(place).decode("utf-8-sig"))))
    for row in rows[:1]:
        missing = [name for name in SCHEMA["measures"] if name not in row]
        if missing:
            wanted = ", ".join(SCHEMA["measures"])
            raise InputError(str(place), "line 1", f"no column {missing[0]}", wanted)
    return rows


def read_runs(folder: str | Path) -> dict[str, RunResult]:
    """The runs of an experiment's folder by key, sorted; or the one run of a simulation's folder,
    under its name. Raises InputError."""
    place = Path(folder)
    if not (place / RUNS).is_dir():
        return {place.name: RunResult.read(place)}
    runs = sorted(one for one in (place / RUNS).iterdir() if (one / "summary.json").exists())
    return {one.name: RunResult.read(one) for one in runs}


def export_parquet(
    folder: str | Path, to: str | Path | None = None, keys: Iterable[str] | None = None
) -> list[Path]:
    """Write the tables of an experiment's or a simulation's folder as Parquet files into `to`, by
    default the folder itself; returns the files. keys: of an experiment's runs, None for all in
    the folder. Raises InputError, and ImportError without pyarrow."""
    _pyarrow()
    target = Path(folder) if to is None else Path(to)
    chosen = None if keys is None else set(keys)
    found = read_runs(folder)
    runs = {key: run for key, run in found.items() if chosen is None or key in chosen}
    tables = [pods_table(runs), series_table(runs)]
    if (Path(folder) / MEASURES_CSV).exists():
        tables.insert(0, measures_table(read_measures(folder)))
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for table in tables:
        file = target / f"{table.name}.parquet"
        table.write_parquet(file)
        files.append(file)
    return files


def _cell(name: str, value: Any) -> Any:
    """A value in the type of its column; None where there is none."""
    kind = SCHEMA["measures"].get(name, "string")
    if value is None or (value == "" and kind != "string"):
        return None
    return {"string": str, "int64": int, "float64": float}[kind](value)


def check_pyarrow() -> None:
    """Raise InputError unless Parquet files can be written."""
    try:
        _pyarrow()
    except ImportError as problem:
        raise InputError.at("--parquet", "", problem) from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("pyarrow"):
            raise
        raise ImportError("Parquet needs pyarrow: pip install stowplan[parquet]") from None
