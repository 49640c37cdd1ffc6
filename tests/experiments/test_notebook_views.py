"""What notebooks show of comparisons: verdicts, means and intervals."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from stowplan.experiments.statistics.matrix_comparison import compare_runs
from stowplan.objects.encoding.html_summary import NamedInterval, html_intervals


def test_a_comparison_shows_intervals() -> None:
    rows = [
        {"policy": policy, "workload": "w", "seed": seed, "measure": "wait_mean", "value": value}
        for policy, shift in (("spread", 0.0), ("<b>", 3.0))
        for seed, value in enumerate([shift + 10 + k / 10 for k in range(10)])
    ]
    found = compare_runs(rows, baseline="spread")
    html = found._repr_html_()
    root = ET.fromstring(html)
    assert repr(found) == "ExperimentComparison(spread, <b>; baseline spread)"
    assert root.findtext("strong") == repr(found)
    tables = root.findall("table")
    assert [cell.text for cell in tables[1].findall("tbody/tr/td")] == [
        "w",
        "wait_mean",
        "<b>",
        "13.45",
        "10.45",
    ]
    svg = root.find("svg")
    assert svg is not None
    assert svg.get("aria-label") == "Differences from spread with intervals"
    texts = [one.text or "" for one in svg.findall("text")]
    assert texts[0] == "wait_mean: <b>"
    assert texts[1].startswith("+28.7% (+28")


def test_intervals_lie_around_their_common_zero() -> None:
    one, other = NamedInterval("a", -0.5, -1.0, 0.0), NamedInterval("b", 0.5, 0.25, 1.0, True)
    svg = ET.fromstring(html_intervals([one, other], "x"))
    zero, first, second = svg.findall("line")
    ends = [float(line.get(name, "")) for line in (first, second) for name in ("x1", "x2")]
    middle = float(zero.get("x1", ""))
    assert ends == [middle - 110, middle, middle + 27.5, middle + 110]
    assert [dot.get("fill") for dot in svg.findall("circle")] == ["none", "#2f7fb5"]
    assert html_intervals([], "x") == ""
