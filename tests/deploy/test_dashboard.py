"""deploy/grafana.json: every expression names metrics and labels that the scheduler exposes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stowplan.driver.live import metrics_recorder
from stowplan.driver.live.metrics_help import HELP

FILE = Path(__file__).parent.parent.parent / "deploy" / "grafana.json"
NAME = re.compile(r"\b((?:scheduler|stowplan|leader_election|rest_client|volcano|process)_\w+)\{")
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Of prometheus-client's ProcessCollector."""
SUFFIXES = ("_bucket", "_sum", "_count")
HISTOGRAM_ENDS = ("_seconds", "_attempts", "_victims", "_milliseconds", "_microseconds")

Tree = dict[str, Any]


def dashboard() -> Tree:
    tree: Tree = json.loads(FILE.read_text())
    return tree


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def unknown(expression: str) -> list[str]:
    """Metrics of an expression that are not exposed; the expression itself if it has none."""
    names = NAME.findall(expression)
    return [name for name in names if not is_exposed(name)] if names else [expression]


def is_exposed(name: str) -> bool:
    if name in PROCESS:
        return True
    for suffix in SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name and base in HELP:
            return base.endswith(HISTOGRAM_ENDS)
    # A histogram has no series of its own name.
    is_histogram = name.endswith(HISTOGRAM_ENDS) and name not in GAUGES
    return name in HELP and not is_histogram


GAUGES = {"volcano_pod_preemption_victims", "volcano_total_preemption_attempts"}


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_names_metrics_that_exist(expression: str) -> None:
    assert unknown(expression) == []
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize(
    "expression",
    [
        "sum(scheduler_pending_podz{})",
        "sum(scheduler_pod_scheduling_sli_duration_seconds{})",
        "rate(scheduler_pending_pods_bucket{}[1m])",
        "up",
    ],
)
def test_an_expression_over_no_metric_is_seen(expression: str) -> None:
    assert unknown(expression)


def test_metrics_of_profiles_have_panels() -> None:
    text = "\n".join(expressions())
    for name in (
        metrics_recorder.ATTEMPTS,
        metrics_recorder.SLI_SECONDS,
        metrics_recorder.ATTEMPT_SECONDS,
        metrics_recorder.PREEMPTIONS,
    ):
        assert name in text


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
