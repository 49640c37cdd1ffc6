"""What `stowplan bench` does: measure case by case, print beside kube-scheduler's figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
import msgspec
from rich.console import Console
from rich.text import Text

from stowplan.benchmarks.baselines import MEASURED, PUBLISHED
from stowplan.benchmarks.benchmark_workload import WorkloadSizes
from stowplan.benchmarks.catalog import (
    CASES,
    COLD,
    KAI_SESSIONS,
    KUEUE_SESSIONS,
    NAMES,
    SESSIONS,
    START,
    VOLCANO_SESSIONS,
    check_case_name,
)
from stowplan.benchmarks.comparison import compare_result, read_earlier
from stowplan.benchmarks.measurement import (
    BenchmarkResult,
    RecordingCost,
    environment_facts,
    measure,
    peak_mb,
)
from stowplan.benchmarks.recording_cost import measure_recording
from stowplan.benchmarks.sessions.kai_benchmarks import kai_seconds
from stowplan.benchmarks.sessions.kueue_benchmarks import BASELINE, kueue_seconds
from stowplan.benchmarks.sessions.session_benchmarks import CROWDED_NODES, session_seconds
from stowplan.benchmarks.sessions.volcano_benchmarks import volcano_seconds
from stowplan.benchmarks.start_time import cold_seconds, start_seconds
from stowplan.cli.options import TREES
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console

START_NODES = 5000
COLD_PODS = 10_000
_SOURCES = {MEASURED: "m", PUBLISHED: "p"}


class BenchSettings(NamedTuple):
    """How every case is measured; None for the settings of the case."""

    nodes: int | None
    pods: int | None
    existing: int
    templates: int
    repeat: int
    stages: bool
    engine: str | None
    record: bool


class BenchFailed(click.ClickException):
    """A case could not be measured; the text says why."""


def run_benchmarks(
    names: Sequence[str],
    settings: BenchSettings,
    output: str,
    compare: str | None,
    *,
    in_process: bool,
) -> int:
    """Measure the cases and print the results; the exit code."""
    chosen = [check_case_name(name) for name in names] or list(NAMES)
    before = None if compare is None else read_earlier(compare)
    results, failed = _run_cases(
        chosen, settings, _measure_in_process if in_process else _measure_in_subprocess
    )
    if before is not None:
        results = [compare_result(result, before.get(result.shape)) for result in results]
    if output in TREES:
        report = {"machine": environment_facts(), "results": results, "failed": failed}
        print_tree(report, output)
    else:
        _print(results, stdout_console(), comparing=before is not None)
    is_short = any(result.done < result.pods for result in results)
    return 1 if is_short or failed else 0


def _run_cases(
    names: Sequence[str],
    settings: BenchSettings,
    measure_case: Callable[[str, BenchSettings], BenchmarkResult],
) -> tuple[list[BenchmarkResult], dict[str, str]]:
    """The results, and case -> why it has none. Prints a line per case to standard error."""
    results: list[BenchmarkResult] = []
    failed: dict[str, str] = {}
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for index, name in enumerate(names, start=1):
        try:
            with console.status(f"{index} of {len(names)}: {name}"):
                result = measure_case(name, settings)
        except BenchFailed as problem:
            failed[name] = problem.message
            console.print(Text(f"{name}: {problem.message}"))
            continue
        results.append(result)
        console.print(Text(_line(result)))
    return results, failed


def _measure_in_process(name: str, settings: BenchSettings) -> BenchmarkResult:
    """The result of a case, measured in this process."""
    nodes, pods, existing, templates, repeat, stages, engine, record = settings
    if name in (START, COLD):
        n_nodes, n_pods = nodes or START_NODES, 1 if name == START else pods or COLD_PODS
        try:
            seconds = (
                start_seconds(n_nodes, repeat) if name == START else cold_seconds(n_nodes, n_pods)
            )
        except subprocess.CalledProcessError as problem:
            raise BenchFailed(_failure_text(problem.returncode, problem.stderr)) from None
        return BenchmarkResult(name, n_nodes, n_pods, done=n_pods, seconds=seconds)
    if name == SESSIONS:
        n_nodes = nodes or CROWDED_NODES
        seconds = session_seconds(n_nodes, repeat)
        return BenchmarkResult(SESSIONS, n_nodes, 1, done=1, memory_mb=peak_mb(), seconds=seconds)
    if name in (VOLCANO_SESSIONS, KAI_SESSIONS):
        n_nodes = nodes or CROWDED_NODES
        seconds = volcano_seconds(n_nodes) if name == VOLCANO_SESSIONS else kai_seconds(n_nodes)
        return BenchmarkResult(name, n_nodes, 1, done=1, memory_mb=peak_mb(), seconds=seconds)
    if name == KUEUE_SESSIONS:
        return _measure_kueue(nodes)
    shape = CASES[name]
    sizes = WorkloadSizes(nodes or shape.nodes, pods or shape.pods, existing, templates)
    result = measure(shape, sizes, repeat, stages=stages, engine=engine)
    if record:
        cost = measure_recording(shape, sizes, repeat, engine)
        result = msgspec.structs.replace(result, recording=cost)
    return result


def _measure_kueue(n_queues: int | None) -> BenchmarkResult:
    """Kueue's admission. n_queues: of the smaller shape; the other one is as much smaller."""
    part = 1.0 if n_queues is None else n_queues / BASELINE.n_queues
    seconds = kueue_seconds(part)
    n_queues = n_queues or BASELINE.n_queues
    return BenchmarkResult(
        KUEUE_SESSIONS, n_queues, 1, done=1, memory_mb=peak_mb(), seconds=seconds
    )


def _measure_in_subprocess(name: str, settings: BenchSettings) -> BenchmarkResult:
    """The result of a case, measured in a process of its own, with its own memory and caches."""
    arguments = ["bench", name, "--in-process", "-o", "json"]
    for option, value in settings._asdict().items():
        if value is True:
            arguments.append(f"--{option}")
        elif value not in (None, False):
            arguments += [f"--{option}", str(value)]
    command = [sys.executable, "-m", "stowplan", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return msgspec.convert(msgspec.json.decode(ran.stdout)["results"][0], BenchmarkResult)
    except (msgspec.DecodeError, IndexError):
        raise BenchFailed(_failure_text(ran.returncode, ran.stderr)) from None


def _failure_text(code: int, text: str) -> str:
    lines = text.strip().splitlines()
    last = lines[-1] if lines else "no output"
    return f"the measuring process exited with code {code}: {last}"


# Output.


def _line(result: BenchmarkResult) -> str:
    if isinstance(result.seconds, dict):
        text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result.seconds.items())
        if result.memory_mb is not None:
            text += f", {result.memory_mb:,.0f} MiB"
        return f"{result.shape}: {text}"
    rate = result.pods_per_s or 0.0
    text = f"{result.shape}: {rate:,.0f} {result.unit}/s"
    if result.done < result.pods:
        text += f", but only {result.done:,} of {result.pods:,} completed"
    return text


def list_cases() -> None:
    """Print the cases that can be measured."""
    table = plain_table("", "NAME", "NODES", "PODS", "DESCRIPTION", right=("NODES", "PODS"))
    for shape in CASES.values():
        pods = f"{shape.pods:,}" + ("" if shape.unit == "pods" else f" {shape.unit}")
        table.add_row(shape.name, f"{shape.nodes:,}", pods, Text(shape.what))
    table.add_row(START, f"{START_NODES:,}", "1", "from process start to the first decision")
    text = "first decisions of a new process, kernels not compiled"
    table.add_row(COLD, f"{START_NODES:,}", f"{COLD_PODS:,}", text)
    for name, text in (
        (SESSIONS, "sessions on a crowded cluster, and for gangs on an empty one"),
        (VOLCANO_SESSIONS, "the same by Volcano's queue model, with queues in three levels"),
        (KUEUE_SESSIONS, "admission by Kueue: 15,000 workloads in 30 queues, 60,000 in 2,000"),
        (KAI_SESSIONS, "cycles of KAI's queue model, and the shapes of its scale tests"),
    ):
        sizes = (
            ("-", "-")
            if name == KUEUE_SESSIONS
            else (f"{CROWDED_NODES:,}", f"{35 * CROWDED_NODES:,}")
        )
        table.add_row(name, *sizes, text)
    stdout_console().print(table)


def _print(results: Sequence[BenchmarkResult], console: Console, *, comparing: bool) -> None:
    rates = [result for result in results if not isinstance(result.seconds, dict)]
    columns = ["NODES", "PODS", "PER S", "P50 MS", "P99 MS", "MIB", "BASELINE", "FACTOR"]
    columns += ["OLD", "RATIO"] * comparing
    table = plain_table("", "NAME", *columns, right=columns)
    for result in rates:
        table.add_row(*_row(result, comparing=comparing))
    if rates:
        console.print(table)
    _print_stages(rates, console)
    for one in rates:
        if isinstance(one.recording, RecordingCost):
            console.print(f"{one.shape}: {_recording_text(one.recording)}")
    for result in results:
        if isinstance(result.seconds, dict):
            console.print(_line(result))
    if any(result.floor for result in rates):
        for source, mark in _SOURCES.items():
            console.print(Text(f"Baseline {mark}: {source}"), soft_wrap=True)


def _recording_text(cost: RecordingCost) -> str:
    return (
        f"a recording costs {cost.decision_percent:.1f}% of the decisions' CPU time, "
        f"{cost.process_percent:.1f}% with its own thread, {cost.elapsed_percent:.1f}% of the "
        f"elapsed time; {cost.mb_per_million:.1f} MB per million pods"
    )


def _row(result: BenchmarkResult, *, comparing: bool) -> list[str]:
    def figure(value: object, digits: int = 0) -> str:
        return f"{value:,.{digits}f}" if isinstance(value, float | int) else ""

    mark = f" {_SOURCES[result.floor_source]}" if result.floor_source else ""
    unit = "" if result.unit == "pods" else f" {result.unit}"
    done = (
        figure(result.pods) if result.done == result.pods else f"{result.done:,} of {result.pods:,}"
    )
    cells = [
        result.shape,
        figure(result.nodes),
        done + unit,
        figure(result.pods_per_s),
        figure(result.p50_ms, 1),
        figure(result.p99_ms, 1),
        figure(result.memory_mb),
        figure(result.floor) + mark,
        figure(result.factor, 1),
    ]
    if comparing:
        cells += [figure(result.old_pods_per_s), figure(result.ratio, 2)]
    return cells


def _print_stages(results: Sequence[BenchmarkResult], console: Console) -> None:
    rows = [(r.shape, r.stages_us) for r in results if isinstance(r.stages_us, dict)]
    if not rows:
        return
    columns = [name.upper() for name in rows[0][1]]
    table = plain_table("\nMicroseconds per pod and stage", "NAME", *columns, right=columns)
    for shape, stages in rows:
        table.add_row(shape, *(f"{us:,.1f}" for us in stages.values()))
    console.print(table)
