"""Comparison of runs of one simulation with several seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.simulation.simulate import SUMMARY, Simulation, as_json

Figures = dict[str, float]


def figures_of(summary: Mapping[str, Any]) -> Figures:
    """The compared figures of a run, by name."""
    found: Figures = {"placed": summary["placed"]}
    for name, use in summary["utilisation"].items():
        if use["requested"]:
            found[f"utilisation.{name}"] = use["share"]
    if "waits_s" in summary:
        found |= {f"wait_s.{name}": value for name, value in summary["waits_s"].items()}
        if summary["makespan_s"]:
            # 0 where no pod has ended, which is no time.
            found["makespan_s"] = summary["makespan_s"]
        found["victims"] = summary["preemption"]["victims"]
        found["restarts"] = summary["restarts"]
        for name, value in summary["over_time"]["utilisation"].items():
            found[f"mean utilisation.{name}"] = value["mean"]
    return found


def compare_seeds(runs: Mapping[int, Simulation]) -> dict[str, Any]:
    """Figures of the runs by seed, and mean, minimum and maximum per figure."""
    by_seed = {seed: figures_of(run.summary) for seed, run in runs.items()}
    names = dict.fromkeys(name for figures in by_seed.values() for name in figures)
    spread = {}
    for name in names:
        values = [figures[name] for figures in by_seed.values() if name in figures]
        mean = round(sum(values) / len(values), 6)
        spread[name] = {"mean": mean, "min": min(values), "max": max(values)}
    return {
        "seeds": list(runs),
        "figures": spread,
        "runs": {str(seed): figures for seed, figures in by_seed.items()},
    }


def files_of(runs: Mapping[int, Simulation]) -> dict[str, bytes]:
    """Result files by name; of several runs, each in its own folder."""
    if len(runs) == 1:
        return next(iter(runs.values())).files()
    found = {SUMMARY: as_json(compare_seeds(runs))}
    for seed, run in runs.items():
        found |= {f"seed-{seed}/{name}": content for name, content in run.files().items()}
    return found
