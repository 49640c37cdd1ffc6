"""Tables of results: their schema, frames, and Parquet files where pyarrow is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stowplan
from stowplan.experiments.export.result_tables import (
    SCHEMA,
    export_parquet,
    measures_table,
    pods_table,
    read_measures,
    read_runs,
    series_table,
)
from stowplan.experiments.measures.run_result import RunResult
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError

ROWS = "policy,workload,speedup,seed,measure,value\nA,day,2,1,placed,9\nB,day,2,1,wait_mean,\n"


def experiment(folder: Path) -> Path:
    (folder / "measures.csv").write_text(ROWS)
    cluster = generate_workload(10, 30, 1)
    stowplan.simulate(cluster, replay=stowplan.ReplayOptions()).write(folder / "runs" / "a1")
    stowplan.simulate(cluster).write(folder / "runs" / "b2")
    return folder


def test_the_tables_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    folder = experiment(tmp_path)
    runs = read_runs(folder)
    assert list(runs) == ["a1", "b2"]
    pods, series = pods_table(runs), series_table(runs)
    assert list(pods.columns) == list(SCHEMA["pods"])
    assert list(series.columns) == list(SCHEMA["series"])
    for table in (pods, series):
        assert len({len(values) for values in table.columns.values()}) == 1
    assert pods.columns["run"].count("b2") == 30
    # A fill has no times.
    assert pods.columns["arrived_s"][-1] is None
    assert set(series.columns["run"]) == {"a1"}
    measures = measures_table(read_measures(folder))
    assert measures.columns == {
        "policy": ["A", "B"], "workload": ["day", "day"], "seed": [1, 1],
        "measure": ["placed", "wait_mean"], "value": [9.0, None], "speedup": ["2", "2"],
    }  # fmt: skip
    single = read_runs(folder / "runs" / "b2")
    assert list(single) == ["b2"]
    assert isinstance(single["b2"], RunResult)


def test_tables_become_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = SimpleNamespace(DataFrame=dict)
    monkeypatch.setitem(sys.modules, "pandas", fake)
    frame = measures_table(
        [{"policy": "A", "workload": "w", "seed": 1, "measure": "m", "value": 2}]
    )
    assert frame.to_frame()["value"] == [2.0]


def test_parquet_files_can_be_read_back(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    folder = experiment(tmp_path)
    files = export_parquet(folder, tmp_path / "out")
    assert [file.name for file in files] == ["measures.parquet", "pods.parquet", "series.parquet"]
    for file in files:
        table = parquet.read_table(file)
        name = file.stem
        types = {field.name: str(field.type) for field in table.schema}
        wanted = {
            column: kind.replace("float64", "double") for column, kind in SCHEMA[name].items()
        }
        assert {column: types[column] for column in wanted} == wanted
        assert table.schema.metadata[b"stowplan.schema"] == f"{name}/1".encode()
    assert parquet.read_table(files[0]).column("value").to_pylist() == [9.0, None]
    assert parquet.read_table(files[0]).schema.field("speedup").type == "string"


def test_without_pyarrow_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install stowplan\[parquet\]"):
        export_parquet(tmp_path)


def test_a_file_that_is_no_table_of_measures(tmp_path: Path) -> None:
    (tmp_path / "measures.csv").write_text("policy,seed\nA,1\n")
    with pytest.raises(InputError, match="no column workload"):
        read_measures(tmp_path)
    with pytest.raises(InputError, match=r"measures\.csv: no such file"):
        read_measures(tmp_path / "absent")
