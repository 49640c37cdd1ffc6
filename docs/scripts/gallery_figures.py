"""Draws the figures of docs/experiment-gallery.md from the folders of its three experiments.

    python docs/scripts/gallery_figures.py FOLDER

FOLDER has the results in `packing`, `backfill` and `preemption`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from stowplan.web.charts import Axis, BarChart, Bars, Chart, ReportTable
from stowplan.web.experiment_report import experiment_report
from stowplan.web.report_data import ExperimentResults, read_experiment
from stowplan.web.single_file import static_text
from stowplan.web.svg import svg_of

IMAGES = Path(__file__).parents[1] / "images"
MARGIN = 10
DRAWN = (
    "svg",
    ".grid",
    ".rule",
    ".line",
    ".band",
    ".bar",
    ".interval",
    ".dot",
    ".whisker",
    ".cursor",
)
"""Beginnings of the rules of the report's style sheet that charts need."""
FIGURES: dict[str, dict[str, str]] = {
    "packing": {"load": "Allocation of GPU cards", "fragments": "gpu_cards."},
    "backfill": {"waits": "Distribution of waits", "differences": "Difference from "},
    "preemption": {"waits": "queue_wait.", "differences": "Difference from "},
}
"""Experiment -> figure -> beginning of a chart's title, or of the measures that it shows."""


def style() -> str:
    """The style of charts, for a file of its own."""
    text = static_text("report.css")
    variables = re.findall(
        r"^:root \{.*?^\}|^@media \(prefers-color-scheme.*?^\}", text, re.MULTILINE | re.DOTALL
    )
    colours = "\n".join(variables).replace(":root", "svg").replace("color-scheme: light dark;", "")
    rules = [line for line in text.splitlines() if line.startswith((*DRAWN, ".reference"))]
    return "\n".join((colours, *rules))


def standalone(chart: Chart) -> str:
    """The chart with its style, and a margin around it."""
    start, rest = svg_of(chart).split(">", 1)
    width, height = map(float, re.findall(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', start)[0])
    box = f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    start = re.sub(r'width="[^"]*" height="[^"]*" viewBox="[^"]*"', f'viewBox="{box}"', start)
    place = f'x="{-MARGIN}" y="{-MARGIN}" width="100%" height="100%"'
    back = f'<rect {place} fill="var(--panel)"/>'
    return f"{start}><style>\n{style()}\n</style>{back}{rest}\n"


def bars_of(results: ExperimentResults, family: str) -> BarChart:
    """Means of the measures of a family over the seeds, by policy."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in results.measurements:
        if one.measure.startswith(family):
            mine = found.setdefault(one.policy, {})
            mine.setdefault(one.measure.removeprefix(family), []).append(one.value)
    policies = results.description["policies"]
    unit, factor = ("time", 1) if "wait" in family else ("percent", 100)
    groups = sorted(
        {name for mine in found.values() for name, values in mine.items() if any(values)}
    )
    series = []
    for colour, policy in enumerate(policies):
        values = [found[policy].get(group) for group in groups]
        values = [one and [factor * value for value in one] for one in values]
        means = [sum(one) / len(one) if one else None for one in values]
        low = [min(one) if one else None for one in values]
        high = [max(one) if one else None for one in values]
        has_ends = any(one and len(one) > 1 for one in values)
        series.append(
            Bars(policy, means, low if has_ends else (), high if has_ends else (), colour)
        )
    return BarChart(family.rstrip("."), "", groups, Axis(family, unit), series)


def main() -> None:
    """Draw all figures."""
    (folder,) = map(Path, sys.argv[1:])
    for experiment, figures in FIGURES.items():
        results = read_experiment(folder / experiment)
        sections = experiment_report(results).sections
        charts = [item for one in sections for item in one.items if not is_table(item)]
        for name, title in figures.items():
            if title.endswith("."):
                chart: Chart = bars_of(results, title)
            else:
                chart = next(one for one in charts if one.title.startswith(title))
            file = IMAGES / f"gallery-{experiment}-{name}.svg"
            file.write_text(standalone(chart), encoding="utf-8")


def is_table(item: object) -> bool:
    """True for a table of a report."""
    return isinstance(item, ReportTable)


if __name__ == "__main__":
    main()
