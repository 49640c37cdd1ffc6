"""Reports: what they contain, and what is wrong with folders."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.inputs.input_error import InputError
from stowplan.web.charts import BarChart, HeatMap, IntervalChart, LineChart, ReportPage, ReportTable
from stowplan.web.experiment_report import experiment_report
from stowplan.web.page import PageWriter
from stowplan.web.published_figures import PublishedTable, published_sections
from stowplan.web.report import run_report, write_report
from stowplan.web.report_data import ExperimentResults, RunResults, read_results, run_of_files
from tests.web.report_folders import (
    CLOSING,
    MARKUP,
    experiment_folder,
    filled,
    queued_experiment,
    replayed,
    run_folder,
    write_json,
)


def items(report: ReportPage) -> dict[str, Any]:
    """Charts and tables by title."""
    return {item.title: item for section in report.sections for item in section.items}


def of_run(folder: Path) -> ReportPage:
    found = read_results(folder)
    assert isinstance(found, RunResults)
    return run_report(found, "run")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return experiment_folder(tmp_path_factory.mktemp("experiment"))


# One run.


def test_the_charts_of_a_replay(tmp_path: Path) -> None:
    found = items(of_run(run_folder(tmp_path)))
    assert {"Utilization: requested of allocatable", "Pending pods in the queue"} <= found.keys()
    assert {"Nodes: requested of allocatable", "By namespace", "What was run"} <= found.keys()
    use = found["Utilization: requested of allocatable"]
    assert [one.name for one in use.series] == ["cpu", "memory"]
    means = replayed().summary["over_time"]["utilisation"]
    assert max(use.series[0].y) == pytest.approx(100 * means["cpu"]["peak"], abs=0.01)
    waits = found["Distribution of waits"]
    # The pod that never fits counts: 60 of 61 were bound.
    assert waits.series[0].y[-1] == pytest.approx(100 * 60 / 61, abs=0.01)
    names = [one.name for one in waits.series[1:]]
    assert sorted(names) == [MARKUP, "default", "research", "web"]


def test_the_allocation_of_a_fill_ends_where_the_summary_does() -> None:
    run = run_of_files(filled().files(), "stowplan simulate")
    found = items(run_report(run, "fill"))
    chart = found["Allocation against arrived load"]
    by_name = {one.name: one for one in chart.series}
    share = filled().summary["utilisation"]["cpu"]["share"]
    assert by_name["cpu"].y[-1] == pytest.approx(100 * share, abs=0.01)
    ideal = by_name["all of it"]
    assert ideal.x == ideal.y
    assert "Distribution of waits" not in found


def test_the_shares_of_namespaces_are_those_of_the_placements() -> None:
    run = run_of_files(replayed().files(), "")
    table = items(run_report(run, ""))["By namespace"]
    at = {column.name: k for k, column in enumerate(table.columns)}
    pods = sum(row[at["Pods"]] for row in table.rows)
    assert pods == len(replayed().placements)
    for name in ("Requested share", "Allocated share"):
        assert sum(row[at[name]] for row in table.rows) == pytest.approx(100)
    rows = {row[0]: row for row in table.rows}
    # It asks for 64 CPU from the first minute to the end, and gets none.
    assert rows["default"][at["Allocated share"]] == 0
    assert rows["default"][at["Placed"]] == 0
    waits = [p.wait_s for p in replayed().placements if p.pod.startswith("web/")]
    assert rows["web"][at["Mean wait"]] == pytest.approx(np.mean(waits))


def test_the_heat_map_names_every_node_and_its_values_stand_in_a_table() -> None:
    run = run_of_files(replayed().files(), "")
    chart = items(run_report(run, ""))["Nodes: requested of allocatable"]
    assert isinstance(chart, HeatMap)
    assert chart.layers[0].rows == ["n0", "n1", "n2", "n3", "n4", MARKUP]
    raw = np.frombuffer(base64.b64decode(chart.layers[0].values), dtype=np.uint8)
    cells = raw.reshape(6, len(chart.at)) / 200
    assert cells.max() == pytest.approx(1.0)
    page = PageWriter(script=True).page(ReportPage("", "", [], [section_of(chart)]))
    assert page.count("<tr>") == 1 + 6


def section_of(chart: Any) -> Any:
    from stowplan.web.charts import Section

    return Section("", [chart])


# Experiments.


def test_policies_are_compared_with_bands_over_seeds(experiment: Path) -> None:
    results = read_results(experiment)
    assert isinstance(results, ExperimentResults)
    found = items(experiment_report(results))
    use = found["Utilization of cpu"]
    assert isinstance(use, LineChart)
    assert [one.name for one in use.series] == ["default", MARKUP]
    for one in use.series:
        assert len(one.low) == len(one.y) == len(one.high) > 10
        assert all(a <= b <= c for a, b, c in zip(one.low, one.y, one.high, strict=True))
    bars = found["wait_s.mean"]
    assert isinstance(bars, BarChart)
    mean = replayed(0, 2.0).summary["waits_s"]["mean"]
    assert bars.series[1].values == pytest.approx([mean + 0.5])
    assert bars.series[1].high == pytest.approx([mean + 1])
    estimates = found["Difference from default: small, queue=1"]
    assert isinstance(estimates, IntervalChart)
    (one,) = estimates.estimates
    assert (one.name, one.value, one.low, one.high) == (MARKUP, 50.0, 40.0, 60.0)
    table = found["Differences from default, with 95% intervals"]
    assert table.rows[0][3] == f"{MARKUP} waits 50 % more (95 % CI 40 to 60)"
    assert found["Failed runs"].rows == [[MARKUP, "small, queue=1", 9, f"plugin failed: {CLOSING}"]]
    assert len(found["Runs"].rows) == 5
    assert ["command", "stowplan experiment small.yaml"] in found["What was run"].rows


def test_an_experiment_shows_the_fairness_of_each_policy_over_time(tmp_path: Path) -> None:
    """Two queues by label; the policy for another scheduler name places nothing."""
    folder = queued_experiment(tmp_path)
    results = read_results(folder)
    assert isinstance(results, ExperimentResults)
    page = experiment_report(results)
    (section,) = (one for one in page.sections if one.title.startswith("Fairness"))
    assert section.texts == ["idle placed no pods and has no fairness."]
    found = {item.title: item for item in section.items}
    (line,) = found["Fairness over time"].series
    assert line.name == "fair"
    assert all(0.5 <= value <= 1 for value in line.y if value is not None)
    shares = found["What queues have of what they deserve: fair"]
    assert [one.name for one in shares.series] == ["team-a", "team-b"]
    table = found["By policy and queue, first seed"]
    assert {tuple(row[:2]) for row in table.rows} == {
        (policy, queue) for policy in ("fair", "idle") for queue in ("team-a", "team-b")
    }
    for one in page.sections:
        if one.title == "What differs":
            assert "idle has no value of" in " ".join(one.texts)
    assert "Fairness over time" in items(of_run(folder / "runs" / results.entries[0].key))


def test_an_experiment_with_measures_only_has_its_tables(tmp_path: Path) -> None:
    runs = [{"key": "a", "policy": "one", "workload": "w", "seed": 1, "status": "done"}]
    write_json(tmp_path / "experiment.json", {"title": "t", "runs": runs})
    (tmp_path / "measures.csv").write_text("policy,workload,seed,measure,value\none,w,1,m,\n")
    assert write_report(tmp_path).name == "report.html"
    (tmp_path / "measures.csv").write_text("policy,workload,seed,measure,value\none,w,1,m,3\n")
    results = read_results(tmp_path)
    assert isinstance(results, ExperimentResults)
    found = items(experiment_report(results))
    assert found["All measures"].rows == [["w", "m", "one", 3.0, 3.0, 3.0, 1]]


def test_the_seeds_of_simulate_are_a_comparison_of_one_policy(tmp_path: Path) -> None:
    for seed in (0, 1):
        replayed(seed).write(tmp_path / f"seed-{seed}")
    write_json(tmp_path / "summary.json", {"seeds": [0, 1]})
    results = read_results(tmp_path)
    assert isinstance(results, ExperimentResults)
    found = items(experiment_report(results))
    assert len(found["Utilization: requested of allocatable"].series[0].low) > 10


# The figures of the FGD paper.


def table_row(metric: str, workload: str, policy: str, seed: int, value: float) -> Any:
    return metric, workload, policy, seed, [value] * 131


def test_published_figures_are_medians_and_deviations() -> None:
    rows = [table_row("alloc_pct", "default", "FGD", 42 + k, v) for k, v in enumerate((90, 94, 95))]
    rows += [table_row("frag_pct_of_idle", "default", "Random", 42, 30.0)]
    for workload, value in (("multigpu20", 80.0), ("multigpu50", 90.0), ("cpu050", 70.0)):
        rows += [table_row("alloc_pct", workload, "FGD", 42 + k, value + k) for k in range(2)]
    assert PublishedTable.of(rows).policies == ["FGD", "Random"]
    (section,) = published_sections(rows)
    found = {item.title: item for item in section.items}
    line = found["Figure 9(a): unallocated GPUs"].series[0]
    assert (line.y[0], line.low[0], line.high[0]) == (6.0, 5.5, 8.0)
    assert found["Figure 7(b): fragments of idle GPUs"].series[0].name == "Random"
    bars = next(item for title, item in found.items() if title.startswith("Figure 12"))
    assert bars.groups == ["20%", "50%"]
    assert bars.series[0].values == [19.5, 9.5]
    assert bars.series[0].high[0] - 19.5 == pytest.approx(np.std([20, 19], ddof=1))
    assert next(item for title, item in found.items() if "Figure 14" in title).groups == ["5%"]
    assert not any("Figure 11" in title for title in found)


# Pages.


@pytest.mark.parametrize("script", [True, False])
def test_the_policy_allows_what_is_in_the_page_and_no_more(
    experiment: Path, tmp_path: Path, script: bool
) -> None:
    page = write_report(experiment, tmp_path / "r.html", script=script).read_text()
    match = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert match is not None
    policy = dict(rule.split(" ", 1) for rule in unescape(match[1]).split("; "))
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    for kind in ("script", "style"):
        texts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in texts]
        assert [f"'sha256-{one.decode()}'" for one in hashes] == [
            *filter(None, [policy.pop(f"{kind}-src", "")])
        ]
    assert policy == {}
    assert (page.count("<script") == 2) is script
    assert not re.search(r'<[^>]* (style|on\w+)="', page)
    assert not re.search(r'(src|href)="(?!#)', page)


@pytest.mark.parametrize("script", [True, False])
def test_names_are_text(experiment: Path, tmp_path: Path, script: bool) -> None:
    page = write_report(experiment, tmp_path / "r.html", script=script).read_text()
    assert "<img" not in page
    assert "<script>alert" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_a_folder_gives_the_same_bytes_each_time(experiment: Path, tmp_path: Path) -> None:
    first = write_report(experiment, tmp_path / "a.html").read_bytes()
    assert first == write_report(experiment, tmp_path / "b.html").read_bytes()


def test_a_report_of_many_pods_stays_small(tmp_path: Path) -> None:
    sizes = []
    # Above 20,000 pods a report has no map by intervals, which grows with them.
    for n_pods in (21_000, 40_000):
        write_many(tmp_path, n_pods)
        sizes.append(write_report(tmp_path).stat().st_size)
    assert sizes[1] < 600_000
    assert sizes[1] < 1.2 * sizes[0]


def write_many(folder: Path, n_pods: int) -> None:
    """A replay of many pods with a series of 2,000 rows, as it would be."""
    at = np.arange(n_pods, dtype=float)
    lines = [
        f'{{"pod":"ns/p{k}","node":"n{k % 900}","reason":"","arrived_s":{k},"bound_s":{k + 0.5},'
        f'"ended_s":{k + 99},"wait_s":{k % 97 + 0.5}}}'
        for k in range(n_pods)
    ]
    (folder / "placements.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f"{k},{k % 50},{(k % 100) / 100}" for k in range(2000)]
    (folder / "series.csv").write_text("time_s,queue,utilisation.cpu\n" + "\n".join(rows) + "\n")
    summary = {"pods": n_pods, "placed": n_pods, "nodes": 900, "utilisation": {}, "replay": {}}
    write_json(folder / "summary.json", summary | {"ended_at_s": float(at[-1])})
    use = {
        "axis": "time_s",
        "at": [0.0, 1.0],
        "resources": ["cpu"],
        "nodes": [f"n{k}" for k in range(900)],
        "allocatable": [[4000]] * 900,
        "shares": "",
        "sizes": [[100], [200]],
        "pod_sizes": [k % 2 for k in range(n_pods)],
        "grouped_by": "namespace",
        "groups": ["ns"],
        "pod_groups": [0] * n_pods,
    }
    from stowplan.simulation.results.node_use import encode_runs

    use["shares"] = encode_runs(np.zeros((1, 900, 2), dtype=np.uint8))
    write_json(folder / "usage.json", use)


# Bad input.


def break_file(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("summary.json", "{", "summary.json: "),
        ("summary.json", "[]", "summary.json: Invalid value: a list: expected an object"),
        ("placements.jsonl", '{"node": 3}\n', "placements.jsonl: "),
        ("series.csv", "time_s,queue\n1,x\n", "series.csv: "),
        ("series.csv", "time_s,queue\n1\n", "series.csv: Invalid value: 1 columns: expected 2"),
        (
            "series.csv",
            "",
            "series.csv: line 1: Invalid value: '': expected a header that begins with time_s",
        ),
        ("series.csv", "null\n", "series.csv: line 1: Invalid value: 'null': expected a header"),
        ("usage.json", "{}", "usage.json: "),
        ("measures.csv", "", ""),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    run_folder(tmp_path)
    break_file(tmp_path, name, text)
    if not message:
        # A file that does not belong to a run is not read.
        write_report(tmp_path)
        return
    with pytest.raises(InputError) as caught:
        write_report(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_files_that_are_not_text_or_not_there(tmp_path: Path) -> None:
    run_folder(tmp_path)
    (tmp_path / "series.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"series\.csv: 'utf-8' codec"):
        write_report(tmp_path)
    (tmp_path / "placements.jsonl").unlink()
    with pytest.raises(InputError, match=r"placements\.jsonl: no such file or directory"):
        write_report(tmp_path)


def test_usage_of_another_run_is_refused(tmp_path: Path) -> None:
    run_folder(tmp_path)
    lines = (tmp_path / "placements.jsonl").read_text().splitlines()
    break_file(tmp_path, "placements.jsonl", "\n".join(lines[1:]) + "\n")
    with pytest.raises(InputError, match=r"usage\.json: pod_sizes: .*61 pods: expected 60, as"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("experiment.json", '{"runs": [{"policy": "a"}]}', "experiment.json: runs: "),
        ("measures.csv", "policy,workload,seed,measure,value\na,b,c,d,1\n", "measures.csv: line 2"),
        ("comparison.json", '{"results": 3}', "comparison.json: "),
        ("table.csv", "a,b\n", "table.csv: line 1: Invalid value: 'a,b': expected"),
        ("table.csv", "metric,workload,policy,seed,0\nx,y,z,w,1\n", "table.csv: line 2"),
    ],
)
def test_a_broken_file_of_an_experiment_is_named(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    write_json(tmp_path / "experiment.json", {"title": "t", "runs": []})
    break_file(tmp_path, name, text)
    with pytest.raises(InputError) as caught:
        write_report(tmp_path)
    assert message in str(caught.value)


def test_folders_without_results(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory: expected the results of"):
        write_report(tmp_path / "none")
    with pytest.raises(InputError, match=r"neither experiment\.json nor summary\.json in it"):
        write_report(tmp_path)
    run_folder(tmp_path)
    with pytest.raises(InputError, match="a directory: expected a file"):
        write_report(tmp_path, tmp_path)


def test_a_run_without_usage_or_series_has_what_is_left(tmp_path: Path) -> None:
    run_folder(tmp_path)
    for name in ("usage.json", "series.csv"):
        (tmp_path / name).unlink()
    found = items(of_run(tmp_path))
    assert "Distribution of waits" in found
    assert isinstance(found["What was run"], ReportTable)
    assert "Nodes: requested of allocatable" not in found


def test_data_blocks_are_json(experiment: Path, tmp_path: Path) -> None:
    page = write_report(experiment, tmp_path / "r.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    kinds = {chart["kind"] for chart in json.loads(text)}
    assert kinds == {"lines", "bars", "intervals", "heat"}
