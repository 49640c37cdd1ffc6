"""Plots of docs/performance.md: growth with nodes, classes and pods, and the cost per stage.

Measures with `stowplan bench`, one process per point, writes the figures beside the plots, and
draws them. Run: python bench/plots.py [FOLDER] [--pods N] [--redraw]; or python bench/plots.py
--table FILE.json [--wide FILE.json] with the output of `stowplan bench -o json`, and of it with
`--nodes 50000`, for the table of that page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot
from matplotlib.axes import Axes

FIGURES = "figures.json"
SHAPES = ("basic", "affinity", "spread", "anti", "preferred")
NODES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)
TEMPLATES = (1, 10, 50, 100, 200, 500, 1000, 2000, 10_000)
EXISTING = (0, 20_000, 50_000, 100_000, 150_000)
STAGES = (*SHAPES, "templates", "different", "unfit")

Series = dict[str, list[list[float]]]
"""Series name -> points (x, pods per second)."""

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.figsize": (7, 3.6),
    "font.size": 9,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    # Text remains text, and equal figures give equal files.
    "svg.fonttype": "none",
    "svg.hashsalt": "stowplan",
}


def result(shape: str, *options: str) -> dict[str, Any]:
    """Result of `stowplan bench` for a case."""
    command = [sys.executable, "-m", "stowplan", "bench", shape, "-o", "json", *options]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(ran.stdout)["results"]
    if not found:
        raise SystemExit(f"{shape} {' '.join(options)}: not measured")
    return dict(found[0])


def growth(shapes: Iterable[str], option: str, values: Iterable[int], pods: int) -> Series:
    """Rate per case and option value."""
    values = list(values)
    return {
        shape: [
            [value, result(shape, "--pods", str(pods), option, str(value))["pods_per_s"]]
            for value in values
        ]
        for shape in shapes
    }


def measured(pods: int) -> dict[str, Any]:
    """All figures."""
    stages = {
        shape: result(shape, "--stages", "--repeat", "1", "--pods", str(pods))["stages_us"]
        for shape in STAGES
    }
    return {
        "pods": pods,
        "nodes": growth(SHAPES, "--nodes", NODES, pods),
        "classes": growth(["templates"], "--templates", TEMPLATES, pods),
        "existing": growth(SHAPES, "--existing", EXISTING, pods),
        "stages": stages,
    }


def draw_growth(series: Series, label: str, path: Path, *, logarithmic: bool = True) -> None:
    """Line plot, one line per series."""
    figure, axes = pyplot.subplots()
    for name, points in series.items():
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=3, label=name)
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes.set_xlabel(label)
    axes.set_ylabel("pods/s")
    if len(series) > 1:
        label_above(axes)
    save(axes, path)
    pyplot.close(figure)


def draw_stages(stages: dict[str, dict[str, float]], path: Path) -> None:
    """Stacked bars, one per case, by stage."""
    figure, axes = pyplot.subplots()
    names = list(stages)
    left = [0.0] * len(names)
    for stage in stages[names[0]]:
        widths = [stages[name][stage] for name in names]
        axes.barh(names, widths, left=left, label=stage)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("us per pod")
    label_above(axes)
    save(axes, path)
    pyplot.close(figure)


def label_above(axes: Axes) -> None:
    """A legend in one line, outside the data."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6)


def save(axes: Axes, path: Path) -> None:
    """Write the figure, without a date."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    # matplotlib writes trailing blanks, which git reports.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def results_in(path: Path) -> list[dict[str, Any]]:
    """The results of a report of `stowplan bench -o json`."""
    return list(json.loads(path.read_text(encoding="utf-8"))["results"])


def table(results: list[dict[str, Any]], wide: dict[str, float]) -> str:
    """Markdown table of cases, with the range of runs in brackets. wide: rates by case at 50,000
    nodes."""
    head = "shape", "nodes", "pods", "pods/s", "at 50,000 nodes", "p50, p99 ms", "MiB"
    head += "kube-scheduler", "factor"
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in results:
        if one["pods_per_s"] is None:
            continue
        runs = f" ({min(one['runs']):,.0f} to {max(one['runs']):,.0f})"
        runs = runs if len(one["runs"]) > 1 else ""
        waits = f"{one['p50_ms']:,.1f}, {one['p99_ms']:,.1f}"
        unit = "" if one["unit"] == "pods" else f" {one['unit']}"
        floor = "" if one["floor"] is None else f"{one['floor']:,.0f}"
        factor = "" if one["factor"] is None else f"{one['factor']:,.0f}"
        at_wide = f"{wide[one['shape']]:,.0f}" if one["shape"] in wide else ""
        lines.append(
            f"| {one['shape']} | {one['nodes']:,} | {one['pods']:,}{unit} "
            f"| {one['pods_per_s']:,.0f}{runs} | {at_wide} | {waits} "
            f"| {one['memory_mb']:,.0f} | {floor} | {factor} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, unless --redraw, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="docs/plots", type=Path)
    parser.add_argument("--pods", type=int, default=10_000, help="pods measured per point")
    parser.add_argument("--redraw", action="store_true", help="do not measure again")
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="print the table instead")
    parser.add_argument("--wide", type=Path, metavar="FILE.json", help="at 50,000 nodes")
    given = parser.parse_args()
    if given.table is not None:
        wide = [] if given.wide is None else results_in(given.wide)
        print(table(results_in(given.table), {one["shape"]: one["pods_per_s"] for one in wide}))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    kept = given.folder / FIGURES
    if not given.redraw:
        kept.write_text(json.dumps(measured(given.pods), indent=1) + "\n", encoding="utf-8")
    figures = json.loads(kept.read_text(encoding="utf-8"))
    with mpl.rc_context(STYLE):
        draw_growth(figures["nodes"], "nodes", given.folder / "nodes.svg")
        draw_growth(figures["classes"], "templates", given.folder / "classes.svg")
        placed = "pods that are there already"
        draw_growth(figures["existing"], placed, given.folder / "pods.svg", logarithmic=False)
        draw_stages(figures["stages"], given.folder / "stages.svg")


if __name__ == "__main__":
    mpl.use("svg")
    main()
