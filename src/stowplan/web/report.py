"""Reports of a run or an experiment as one HTML file."""

from __future__ import annotations

from pathlib import Path

from stowplan.web import run_charts, run_tables
from stowplan.web.charts import ReportPage, Section
from stowplan.web.experiment_report import experiment_report
from stowplan.web.page import write_page
from stowplan.web.replay_maps import replay_maps
from stowplan.web.report_data import RunResults, read_results, run_of_files

REPORT = "report.html"


def write_report(
    folder: str | Path, file: str | Path | None = None, *, script: bool = True
) -> Path:
    """Write the report of a folder and return its path.

    folder: results of `stowplan simulate --out` or of `stowplan experiment`. file: None: the
    folder's `report.html`. script: False draws the charts as plain SVG. Raises InputError.
    """
    results = read_results(folder)
    path = Path(folder) / REPORT if file is None else Path(file)
    if isinstance(results, RunResults):
        write_page(run_report(results, Path(folder).resolve().name), path, script=script)
    else:
        write_page(experiment_report(results), path, script=script)
    return path


def write_run_report(
    files: dict[str, bytes], file: str | Path, command: str, *, script: bool = True
) -> None:
    """Write the report of a run that has just ended. files: its result files by name. Raises
    InputError."""
    write_page(run_report(run_of_files(files, command), "Simulation"), file, script=script)


def run_report(run: RunResults, title: str) -> ReportPage:
    """The report of one run."""
    groups = [run_charts.PolicyRuns("", [run], 0)]
    kind = "Replay in virtual time" if run.is_replay else "Placement run: each pod is tried once"
    sections = [
        Section(
            "Utilization and queue",
            [
                *run_charts.load_charts(groups),
                *run_charts.utilisation_charts(groups),
                *run_charts.queue_charts(groups),
                *run_charts.fragmentation_charts(groups),
            ],
            run_tables.autoscaler_note(run),
        ),
        Section("Waits", list(run_charts.wait_chart(groups))),
        Section(
            "Nodes",
            [
                *replay_maps(run),
                *run_charts.node_charts(groups),
                *run_charts.histogram_chart(groups),
            ],
        ),
        Section("Fairness", [*run_charts.fairness_charts(groups), *run_tables.fairness_items(run)]),
        Section("Pods without a node", list(run_tables.failure_table(run))),
        Section("What was run", [run_tables.what_was_run(run)]),
    ]
    return ReportPage(title, kind, run_tables.key_figures(run), sections)
