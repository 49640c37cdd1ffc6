"""Figures of docs/experiment-gallery.md: policies of a file of examples/experiments, compared.

    python bench/experiment_gallery.py examples/experiments/backfill.yaml \
        [--arrivals poisson,rate=18] [--seeds 8] [--traces FOLDER_OF_OPENB] [--rows FILE.csv]

Runs the policies one after another in this process, prints the means of the measures and the
verdicts. With --arrivals every seed has other arrivals; without, seeds break ties only.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

import stowplan
from stowplan.experiments.measures.measure_table import compute_measures
from stowplan.experiments.statistics.matrix_comparison import compare_runs
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.workloads.arrivals import parse_arrivals, with_arrivals

OPENB = ("openb_node_list_gpu_node.csv", "openb_pod_list_{}.csv")
SAMPLE_S = 300.0
COLUMNS = ("policy", "workload", "seed", "measure", "value")

Rows = list[dict[str, Any]]


def workload(entry: Any, folder: Path, traces: Path) -> tuple[str, Cluster]:
    if isinstance(entry, str):
        return entry, read_cluster([traces / name.format(entry) for name in OPENB])
    files = [entry["files"]] if isinstance(entry["files"], str) else entry["files"]
    return entry["name"], read_cluster([folder / file for file in files])


def config_of(policy: dict[str, Any], folder: Path, work: Path) -> Path:
    if "config" in policy:
        return folder / policy["config"]
    file = work / f"{policy['name']}.yaml"
    file.write_text(yaml.safe_dump(policy["configuration"]))
    return file


def run(plan: dict[str, Any], folder: Path, given: argparse.Namespace) -> Rows:
    name, cluster = workload(plan["workloads"][0], folder, given.traces)
    replay = stowplan.ReplayOptions(sample_s=SAMPLE_S) if plan["mode"] == "replay" else None
    rows: Rows = []
    with TemporaryDirectory() as work:
        for seed in range(given.seeds):
            used = cluster
            if given.arrivals:
                used = with_arrivals(cluster, parse_arrivals(given.arrivals), seed)
            for policy in plan["policies"]:
                config = str(config_of(policy, folder, Path(work)))
                found = stowplan.simulate(used, config=config, seed=seed, replay=replay)
                rows += [
                    dict(zip(COLUMNS, (policy["name"], name, seed, measure, value), strict=True))
                    for measure, value in compute_measures(found).items()
                ]
                print(f"seed {seed}, {policy['name']}", file=sys.stderr, flush=True)
    return rows


def print_means(rows: Rows, policies: list[str]) -> None:
    print("measure", *policies, sep="\t")
    for measure in dict.fromkeys(row["measure"] for row in rows):
        means = []
        for policy in policies:
            values = [
                row["value"]
                for row in rows
                if (row["policy"], row["measure"]) == (policy, measure) and row["value"] is not None
            ]
            means.append(f"{sum(values) / len(values):.6g}" if values else "")
        if any(means):
            print(measure, *means, sep="\t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--arrivals", default="")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--traces", type=Path, default=Path())
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--measures", nargs="*", default=[])
    given = parser.parse_args()
    plan = yaml.safe_load(given.file.read_text())
    rows = run(plan, given.file.parent, given)
    if given.rows is not None:
        with given.rows.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print_means(rows, [policy["name"] for policy in plan["policies"]])
    print(compare_runs(rows, measures=given.measures).text)


if __name__ == "__main__":
    main()
