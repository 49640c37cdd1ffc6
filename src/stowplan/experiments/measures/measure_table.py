"""The measures of a run: one table of names, units, directions and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.experiments.measures.node_costs import node_costs
from stowplan.experiments.measures.run_result import RunResult
from stowplan.objects.devices.gpu_cards import COUNT_KEY
from stowplan.simulation.simulate import Simulation
from stowplan.simulation.simulate_jobs import JobSimulation

Value = float | None
Values = Mapping[str, Value]
NOT_MEASURED = ("pods", COUNT_KEY)
"""Resources that are no measures: numbers of pods, and of cards, which pods request otherwise."""
QUEUES_MAX = 50
"""Queues with a measure of their own, those with the most pods; all count in the others."""


class Measure(msgspec.Struct, frozen=True):
    """A measure.

    better: `lower`, `higher`, or "" where neither is. compute: the value, None where a run has
    none; of a family the values by the part of the name behind the point. of: what a family has a
    value for, "" for a single measure. compared: whether comparisons of policies contain it unless
    others are named; few are, since every further one takes significance from the others.
    """

    name: str
    unit: str
    better: str
    compute: Callable[[RunResult], Value | Values]
    text: str
    of: str = ""
    compared: bool = False


def compute_measures(
    run: RunResult | Simulation | JobSimulation, own: Iterable[Measure] = ()
) -> dict[str, Value]:
    """Measure -> value of a run, in the order of the table; None where the run has no value.

    own: further measures, see `own_measure`. Members of families are named `FAMILY.MEMBER`, and
    only those that the run has.
    """
    result = run if isinstance(run, RunResult) else RunResult.of(run)
    found: dict[str, Value] = {}
    for measure in (*MEASURES, *own):
        value = measure.compute(result)
        if isinstance(value, Mapping):
            found |= {f"{measure.name}.{name}": one for name, one in value.items()}
        else:
            found[measure.name] = value
    return {name: None if value is None else float(value) for name, value in found.items()}


def measure_of(name: str, own: Iterable[Measure] = ()) -> Measure | None:
    """The measure, or the family, of a name; None for an unknown one."""
    known = {one.name: one for one in (*MEASURES, *own)}
    family = known.get(name.partition(".")[0])
    return known.get(name) or (family if family is not None and family.of else None)


# Functions of the table.


def _figure(*path: str) -> Callable[[RunResult], Value]:
    """A number of the summary."""

    def compute(run: RunResult) -> Value:
        found: Any = run.summary
        for name in path:
            if name not in found:
                return None
            found = found[name]
        return float(found)

    return compute


def _percentile(name: str, share: int) -> Callable[[RunResult], Value]:
    """A nearest-rank percentile of sorted values: always one that occurred."""

    def compute(run: RunResult) -> Value:
        values: Floats = getattr(run, name)
        n = values.shape[0]
        return float(values[-(-share * n // 100) - 1]) if n else None

    return compute


def _mean(name: str) -> Callable[[RunResult], Value]:
    def compute(run: RunResult) -> Value:
        values: Floats = getattr(run, name)
        return float(values.mean()) if values.shape[0] else None

    return compute


def _over_time(kind: str, figure: str) -> Callable[[RunResult], Values]:
    """Figures of the summary's `over_time`, by resource."""

    def compute(run: RunResult) -> Values:
        found = run.summary.get("over_time", {}).get(kind, {})
        return {name: one[figure] for name, one in found.items() if name not in NOT_MEASURED}

    return compute


def _placed_share(run: RunResult) -> Value:
    n_pods = run.summary["pods"]
    return run.summary["placed"] / n_pods if n_pods else None


def _allocation(run: RunResult) -> Values:
    if run.is_replay:
        return _over_time("utilisation", "peak")(run)
    found = run.summary["utilisation"]
    return {name: one["share"] for name, one in found.items() if name not in NOT_MEASURED}


def _card_fragments(run: RunResult) -> Values:
    """Fragments of GPU cards as shares of all cards, together and by cause."""
    over_time = run.summary.get("over_time", {}).get("gpu_cards")
    if over_time:
        return {name: one["mean"] for name, one in over_time.items() if name != "idle"}
    cards = run.summary.get("gpu_cards")
    if not cards or not cards["cards"]:
        return {}
    whole = cards["cards"] * 1000
    causes = {name: milli / whole for name, milli in cards["by_cause"].items()}
    return {"fragment": cards["of_capacity"], **causes}


def _jain(run: RunResult) -> Value:
    found = run.fairness
    return None if found is None else found.mean_jain()


def _queue_share(run: RunResult) -> Values:
    found = run.fairness
    if found is None:
        return {}
    wanted = largest_queues(run)
    return {name: share for name, share in found.means().items() if name in wanted}


def _queue_wait(run: RunResult) -> Values:
    used = run.occupancy
    if used is None or not run.is_replay:
        return {}
    waits, queue = run.times("wait_s"), used.queue[: len(run.placements)]
    found = {}
    for name in largest_queues(run):
        chosen = waits[(queue == used.queues.index(name)) & ~np.isnan(waits)]
        found[name] = float(chosen.mean()) if chosen.shape[0] else None
    return found


def largest_queues(run: RunResult) -> list[str]:
    """The queues with the most pods, sorted by name."""
    used = run.occupancy
    if used is None:
        return []
    counts = np.bincount(used.queue, minlength=len(used.queues))
    rows = np.argsort(-counts, kind="stable")[:QUEUES_MAX]
    return sorted(used.queues[row] for row in rows.tolist())


def _makespan(run: RunResult) -> Value:
    """None where no pod has ended: the summary has 0 there, which would be the best."""
    return _figure("makespan_s")(run) or None


def _preempted(run: RunResult) -> Value:
    return _figure("preemption", "victims")(run)


def _evictions(run: RunResult) -> Values:
    found: Any = run.summary.get("preemption", {})
    return {cause: float(number) for cause, number in found.get("causes", {}).items()}


def _consolidation_moves(run: RunResult) -> Value:
    if _preempted(run) is None:
        return None
    return _evictions(run).get("consolidation", 0.0)


MEASURES = (
    Measure("pods", "pods", "", _figure("pods"), "pods that arrived"),
    Measure("placed", "pods", "higher", _figure("placed"), "pods with a node at the end", "", True),
    Measure("placed_share", "", "higher", _placed_share, "the same as a share of all pods"),
    Measure(
        "wait_mean", "s", "lower", _mean("waits_s"),
        "time from arrival to the first binding, of pods that were bound", "", True,
    ),
    Measure("wait_p50", "s", "lower", _percentile("waits_s", 50), "median of the same", "", True),
    Measure("wait_p90", "s", "lower", _percentile("waits_s", 90), "90th percentile", "", True),
    Measure("wait_p99", "s", "lower", _percentile("waits_s", 99), "99th percentile", "", True),
    Measure("wait_max", "s", "lower", _percentile("waits_s", 100), "the longest"),
    Measure(
        "slowdown_mean", "", "lower", _mean("slowdowns"),
        "time from arrival to end per run time of at least 10 s, of pods that ended", "", True,
    ),
    Measure("slowdown_p50", "", "lower", _percentile("slowdowns", 50), "median of the same"),
    Measure("slowdown_p99", "", "lower", _percentile("slowdowns", 99), "99th percentile"),
    Measure(
        "makespan", "s", "lower", _makespan,
        "time from the first arrival to the last end; none where no pod ended", "", True,
    ),
    Measure(
        "utilisation", "", "higher", _over_time("utilisation", "mean"),
        "requested share of the allocatable amount, mean while pods arrived", "resource", True,
    ),
    Measure(
        "allocation", "", "higher", _allocation,
        "requested share of the allocatable amount: at the end of a fill, the peak of a replay",
        "resource", True,
    ),
    Measure(
        "fragmentation", "", "lower", _over_time("fragmentation", "mean"),
        "share of the free amount that pods requesting it cannot use, mean while pods arrived",
        "resource",
    ),
    Measure(
        "gpu_cards", "", "lower", _card_fragments,
        "fragments of GPU cards as a share of all cards, together (`fragment`) and by cause",
        "cause", True,
    ),
    Measure("victims", "pods", "lower", _preempted, "pods that were preempted", "", True),
    Measure("evictions", "pods", "lower", _evictions, "the same by action", "action"),
    Measure(
        "consolidation_moves", "pods", "lower", _consolidation_moves,
        "pods that KAI-Scheduler's consolidation moved to make room; 0 by other schedulers",
    ),
    Measure(
        "preemptors", "pods", "", _figure("preemption", "preemptors"), "pods that preempted others"
    ),
    Measure(
        "restarts", "pods", "lower", _figure("restarts"),
        "pods created again after an eviction or the loss of their node",
    ),
    Measure("refusals", "attempts", "lower", _figure("refusals"), "failed scheduling attempts"),
    Measure(
        "fairness_jain", "", "higher", _jain,
        "Jain's index of what queues have of what they deserve, mean while pods arrived", "", True,
    ),
    Measure(
        "queue_share", "", "", _queue_share,
        "allocated per deserved amount, mean while the queue requests something", "queue",
    ),
    Measure("queue_wait", "s", "lower", _queue_wait, "mean wait of the queue's pods", "queue"),
    Measure(
        "energy", "kWh", "lower", lambda run: node_costs(run).energy_kwh,
        "energy of nodes that have `stowplan.dev/busy-watts`", "", True,
    ),
    Measure(
        "price", "", "lower", lambda run: node_costs(run).price,
        "price of nodes that have `stowplan.dev/hourly-price`, or of an autoscaler's", "", True,
    ),
    Measure(
        "used_price", "", "lower", lambda run: node_costs(run).used_price,
        "the same, only while a node has pods",
    ),
)  # fmt: skip
"""All measures, in the order in which results list them."""
