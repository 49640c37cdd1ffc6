"""Charts of runs: of one, by resource, or of several policies, each over its seeds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stowplan.simulation.results.node_use import ABSENT
from stowplan.web.charts import Axis, BarChart, Bars, Chart, HeatMap, Layer, LineChart, Series
from stowplan.web.curves import Curve, band, distribution, line, numbers, wait_grid
from stowplan.web.report_data import RunResults

Floats = NDArray[np.float64]

TIME = Axis("virtual time", "time", low=0.0)
STATES = {
    "active": "active",
    "backoff": "backoff",
    "unschedulable": "unschedulable",
    "gated": "gated",
    "awaiting_session": "waiting for a session",
    "awaiting_extender": "waiting for an extender",
}
LABELS = {"stowplan.dev/gpu-milli": "GPU cards"}
ROWS_MAX, COLUMNS_MAX = 240, 120
"""Of a heat map; above it neighbours are averaged."""
LOAD_POINTS = 201
SHARE = "queue_share."
SHARES_CHARTED_MAX, SHARES_LINES = 6, 8
"""Policies with a chart of the shares of their queues, and queues in it."""


class PolicyRuns(NamedTuple):
    """Runs of one policy, which differ in their seed. colour: index of the palette."""

    label: str
    runs: list[RunResults]
    colour: int


def label_of(resource: str) -> str:
    """The name of a resource in charts."""
    return LABELS.get(resource, resource)


def resources_of(groups: Sequence[PolicyRuns]) -> list[str]:
    """Resources of the runs, those that matter most first."""
    found: dict[str, None] = {}
    for group in groups:
        for run in group.runs:
            if run.use is not None:
                found.update(dict.fromkeys(run.use.resources))
    return list(found)


def series_curves(runs: Sequence[RunResults], name: str, factor: float = 1.0) -> list[Curve]:
    """A column of `series.csv` of each run that has it."""
    return [
        Curve(run.series["time_s"], run.series[name] * factor)
        for run in runs
        if name in run.series and len(run.series["time_s"])
    ]


def _by_group(groups: Sequence[PolicyRuns], name: str, factor: float = 1.0) -> list[Series]:
    """A line per policy of a column of `series.csv`."""
    known = [(group, series_curves(group.runs, name, factor)) for group in groups]
    return [line(group.label, found, colour=group.colour) for group, found in known if found]


def utilisation_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Requested share over time: one chart of a run's resources, else one per resource."""
    y = Axis("requested of allocatable", "percent", low=0.0)
    names = [name for name in resources_of(groups) if _has(groups, f"utilisation.{name}")]
    if len(groups) == 1:
        runs = groups[0].runs
        series = [
            line(label_of(name), series_curves(runs, f"utilisation.{name}", 100)) for name in names
        ]
        title = "Utilization: requested of allocatable"
        return [LineChart(title, TIME, y, series, is_step=True)] if series else []
    return [
        LineChart(
            f"Utilization of {label_of(name)}",
            TIME,
            y,
            _by_group(groups, f"utilisation.{name}", 100),
            is_step=True,
        )
        for name in names
    ]


def _has(groups: Sequence[PolicyRuns], name: str) -> bool:
    return any(name in run.series for group in groups for run in group.runs)


def queue_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Pending pods over time."""
    y = Axis("pods", "count", low=0.0)
    if not _has(groups, "queue"):
        return []
    if len(groups) > 1:
        series = _by_group(groups, "queue")
        return [LineChart("Pending pods in the queue", TIME, y, series, is_step=True)]
    runs = groups[0].runs
    series = [
        line(label, series_curves(runs, name))
        for name, label in STATES.items()
        if any(name in run.series and run.series[name].any() for run in runs)
    ]
    note = "" if series else "No sample found a pod waiting."
    title = "Pending pods in the queue"
    if not series:
        series = [line("pods in the queue", series_curves(runs, "queue"))]
    found: list[Chart] = [LineChart(title, TIME, y, series, is_step=True, note=note)]
    columns = dict.fromkeys(name for run in runs for name in run.series)
    pending = [name for name in columns if name.startswith("pending.")]
    pending.sort(
        key=lambda name: -max(run.series[name].max() for run in runs if name in run.series)
    )
    if pending:
        rows = [line(name.partition(".")[2], series_curves(runs, name)) for name in pending[:7]]
        found.append(
            LineChart("Pending pods by the plugins that rejected them", TIME, y, rows, is_step=True)
        )
    return found


def fragmentation_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Free amounts that pods cannot use, over time."""
    y = Axis("of the free amount", "percent", low=0.0)
    if len(groups) == 1:
        runs = groups[0].runs
        series = [
            line(label_of(name), series_curves(runs, f"fragmentation.{name}", 100))
            for name in resources_of(groups)
            if _has(groups, f"fragmentation.{name}")
        ]
        title = "Fragmentation: free, and of no use to a typical pod"
        found: list[Chart] = []
        if series:
            found.append(LineChart(title, TIME, y, series, is_step=True))
        return found + _card_charts(runs)
    name = "gpu_cards.fragment"
    if _has(groups, name):
        y = Axis("of all cards", "percent", low=0.0)
        series = _by_group(groups, name, 100)
        return [LineChart("Fragments of GPU cards", TIME, y, series, is_step=True)]
    return [
        LineChart(
            f"Fragmentation of {label_of(resource)}",
            TIME,
            y,
            _by_group(groups, f"fragmentation.{resource}", 100),
            is_step=True,
        )
        for resource in resources_of(groups)[:1]
        if _has(groups, f"fragmentation.{resource}")
    ]


def _card_charts(runs: list[RunResults]) -> list[Chart]:
    prefix = "gpu_cards."
    columns = dict.fromkeys(name for run in runs for name in run.series if name.startswith(prefix))
    series = [
        line(name.removeprefix(prefix).replace("_", " "), series_curves(runs, name, 100))
        for name in columns
    ]
    y = Axis("of all cards", "percent", low=0.0)
    title = "GPU cards: idle, fragments and their causes"
    return [LineChart(title, TIME, y, series, is_step=True)] if series else []


def wait_chart(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Distribution of waits, per policy; of one run per queue or namespace too."""
    if not any(run.is_replay and run.placements for group in groups for run in group.runs):
        return []
    rows: list[tuple[str, list[Floats], int | None]] = [
        (group.label or "all pods", [run.times("wait_s") for run in group.runs], group.colour)
        for group in groups
    ]
    if len(groups) == 1 and len(groups[0].runs) == 1:
        rows += [(name, [waits], None) for name, waits in _waits_by_group(groups[0].runs[0])]
    grid = wait_grid([one for _, waits, _ in rows for one in waits])
    series = [distribution(name, waits, grid, colour) for name, waits, colour in rows]
    x = Axis("wait from arrival to binding", "time", is_log=True)
    least = min((value for one in series for value in one.y if value is not None), default=0.0)
    # Where most pods are bound at once, the rest is what one wants to see.
    y = Axis(
        "of pods",
        "percent",
        low=max(0.0, least // 10 * 10 - 10) if least >= 50 else 0.0,
        high=100.0,
    )
    note = "Pods that were never bound count, so a line may end below 100%."
    return [LineChart("Distribution of waits", x, y, series, is_step=True, note=note)]


def _waits_by_group(run: RunResults) -> list[tuple[str, Floats]]:
    use = run.use
    if use is None or not 1 < len(use.groups) <= 7:
        return []
    waits, places = run.times("wait_s"), np.array(use.pod_groups)
    return [(name, waits[places == k]) for k, name in enumerate(use.groups)]


def load_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Allocated against arrived requests, both of the cluster's capacity: of runs whose pods stay.

    Source: FGD (Weng et al., USENIX ATC 2023), the axis of figures 7 and 9.
    """
    drawable = [
        group._replace(runs=[run for run in group.runs if run.use is not None and _stays(run)])
        for group in groups
    ]
    drawable = [group for group in drawable if group.runs]
    names = resources_of(drawable)
    if not names:
        return []
    x = Axis("arrived requests, of the cluster's capacity", "percent", low=0.0)
    y = Axis("allocated", "percent", low=0.0)
    found: list[Chart] = []
    for resource in names if len(groups) > 1 else [""]:
        series = []
        for group in drawable:
            wanted = [resource] if resource else names
            for name in wanted:
                curves = [_load_curve(run, name) for run in group.runs]
                label = group.label if resource else label_of(name)
                series.append(_load_line(label, curves, group.colour if resource else None))
        series = [one for one in series if one.x]
        ends = [value for one in series for value in (one.x[-1],) if value is not None]
        if not ends:
            continue
        ideal = Series("all of it", [0.0, max(ends)], [0.0, max(ends)], is_reference=True)
        of = f" of {label_of(resource)}" if resource else ""
        title = f"Allocation{of} against arrived load"
        found.append(LineChart(title, x, y, [*series, ideal]))
    return found


def _stays(run: RunResults) -> bool:
    return not run.is_replay or not run.summary["replay"].get("departures", True)


def _load_curve(run: RunResults, resource: str) -> Curve:
    """Percent allocated by percent arrived, pod by pod."""
    assert run.use is not None
    if resource not in run.use.resources or not run.placements:
        return Curve(np.zeros(0), np.zeros(0))
    place = run.use.resources.index(resource)
    offered = run.offered()[place]
    if not offered:
        return Curve(np.zeros(0), np.zeros(0))
    asks = run.requests()[:, place] * 100 / offered
    placed = np.array([bool(one.node) for one in run.placements])
    zero = np.zeros(1)
    arrived, bound = asks.cumsum(), np.where(placed, asks, 0).cumsum()
    return Curve(np.concatenate([zero, arrived]), np.concatenate([zero, bound]))


def _load_line(name: str, curves: Sequence[Curve], colour: int | None) -> Series:
    known = [curve for curve in curves if len(curve.x) and curve.x[-1] > 0]
    if not known:
        return Series(name, [], [])
    grid = np.linspace(0, min(curve.x[-1] for curve in known), LOAD_POINTS)
    values = np.stack([np.interp(grid, curve.x, curve.y) for curve in known])
    if len(known) == 1:
        return Series(name, numbers(grid), numbers(values[0]), colour=colour)
    return band(name, grid, values, colour)


def fairness_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Jain's index over time, a line per policy; then what each queue has of what it deserves, a
    chart per policy, of its first seed."""
    series = [
        line(group.label or "Jain's index", curves, colour=group.colour)
        for group in groups
        if (curves := _fairness_curves(group.runs, "fairness_jain"))
    ]
    if not series:
        return []
    note = "1 where all queues have the same part of what they deserve; no value while none has."
    y = Axis("Jain's index", "number", low=0.0, high=1.0)
    found: list[Chart] = [LineChart("Fairness over time", TIME, y, series, note=note)]
    y = Axis("allocated of deserved", "percent", low=0.0)
    for group in groups[:SHARES_CHARTED_MAX]:
        run = group.runs[:1]
        names = [name for one in run for name in one.fairness if name.startswith(SHARE)]
        shares = [
            line(name.removeprefix(SHARE), _fairness_curves(run, name, 100)) for name in names
        ]
        if shares:
            of = f": {group.label}" if group.label else ""
            title = f"What queues have of what they deserve{of}"
            found.append(LineChart(title, TIME, y, shares[:SHARES_LINES]))
    return found


def _fairness_curves(runs: Sequence[RunResults], name: str, factor: float = 1.0) -> list[Curve]:
    """A column of `fairness.csv` of each run in which it has a value."""
    found = []
    for run in runs:
        values = run.fairness.get(name)
        if values is not None and not np.isnan(values).all():
            found.append(Curve(run.fairness["time_s"], values * factor))
    return found


def node_charts(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Nodes over time: a layer per resource, or per policy and resource of each first seed."""
    first = [(group, group.runs[0]) for group in groups if group.runs and group.runs[0].use]
    n_resources = 4 if len(groups) == 1 else 2
    layers: list[Layer] = []
    at: list[float] = []
    axis = TIME
    for group, run in first:
        assert run.use is not None
        assert run.shares is not None
        if not run.use.nodes or len(run.use.at) < 2:
            continue
        places = np.unique(np.linspace(0, len(run.use.at) - 1, COLUMNS_MAX).round().astype(int))
        if not layers:
            at = [run.use.at[k] for k in places]
            axis = TIME if run.use.axis == "time_s" else Axis("pods tried", "count")
        elif len(places) != len(at):
            places = np.linspace(0, len(run.use.at) - 1, len(at)).round().astype(int)
        for k, resource in enumerate(run.use.resources[:n_resources]):
            has = (run.shares[k] != ABSENT).any(axis=1)
            if not has.any():
                continue
            known = [name for name, is_there in zip(run.use.nodes, has, strict=True) if is_there]
            rows, cells = averaged(known, run.shares[k][has][:, places])
            name = label_of(resource)
            name = f"{group.label}: {name}" if len(groups) > 1 else name
            layers.append(Layer(name, rows, base64.b64encode(cells.tobytes()).decode()))
    if not layers:
        return []
    many = len(groups) > 1 or len(groups[0].runs) > 1
    note = "The first seed of each policy. " if many else ""
    return [HeatMap("Nodes: requested of allocatable", axis, at, layers, note=note.strip())]


def averaged(names: list[str], shares: NDArray[np.uint8]) -> tuple[list[str], NDArray[np.uint8]]:
    """At most `ROWS_MAX` rows: means of neighbouring nodes, whose first and last are named."""
    if len(names) <= ROWS_MAX:
        return names, np.ascontiguousarray(shares)
    edges = np.linspace(0, len(names), ROWS_MAX + 1).round().astype(int)
    is_known = shares != ABSENT
    totals = np.add.reduceat(np.where(is_known, shares, 0).astype(float), edges[:-1], axis=0)
    counts = np.add.reduceat(is_known.astype(float), edges[:-1], axis=0)
    means = np.divide(totals, counts, out=np.full(totals.shape, float(ABSENT)), where=counts > 0)
    labels = [
        names[a] if b - a == 1 else f"{names[a]} to {names[b - 1]} ({b - a} nodes)"
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    return labels, means.round().astype(np.uint8)


def histogram_chart(groups: Sequence[PolicyRuns]) -> list[Chart]:
    """Nodes by their share at the busiest sample, in ten buckets."""
    series: list[Bars] = []
    names = ["0%", *(f"{k}%" for k in range(10, 101, 10)), "above"]
    for group in groups:
        run = next((one for one in group.runs if one.use is not None and one.use.nodes), None)
        if run is None or run.use is None or run.shares is None or not run.shares.size:
            continue
        busiest = _busiest(run.shares)
        for k, resource in enumerate(run.use.resources[: 3 if len(groups) == 1 else 1]):
            known = run.shares[k][:, busiest]
            known = known[known != ABSENT].astype(int)
            places = np.where(known == 0, 0, np.minimum((known + 19) // 20, 11))
            counts = np.bincount(places, minlength=12).tolist()
            label = label_of(resource) if len(groups) == 1 else group.label
            series.append(Bars(label, counts, colour=None if len(groups) == 1 else group.colour))
    if not series:
        return []
    if all(one.values[-1] == 0 for one in series):
        names = names[:-1]
        series = [Bars(one.name, one.values[:-1], colour=one.colour) for one in series]
    of = "" if len(groups) == 1 else f" of {label_of(resources_of(groups)[0])}"
    y = Axis("nodes", "count", low=0.0)
    title = f"Nodes by requested share{of}, when most is requested"
    return [BarChart(title, "requested of allocatable, up to", names, y, series)]


def _busiest(shares: NDArray[np.uint8]) -> int:
    totals = np.where(shares[0] == ABSENT, 0, shares[0]).astype(int).sum(axis=0)
    return int(np.argmax(totals)) if totals.size else 0
