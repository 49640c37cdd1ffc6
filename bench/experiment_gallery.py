"""Figures of docs/experiment-gallery.md: policies of a file of examples/experiments, compared.

    python bench/experiment_gallery.py examples/experiments/backfill.yaml \
        [--arrivals poisson,rate=18] [--seeds 8] [--traces FOLDER_OF_OPENB] [--out FOLDER] \
        [--measure own.py:function] [--fail-if 'wait_p99: B > A by 5%']

Runs the policies one after another in this process, prints the means of the measures and the
verdicts, and writes measures.csv and comparison.json. With --arrivals every seed has other
arrivals; without, seeds break ties only. Exit code 1 if a condition of --fail-if holds.
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
from stowplan.experiments.measures.measure_table import Measure, compute_measures
from stowplan.experiments.measures.own_measure import own_measure
from stowplan.experiments.statistics.matrix_comparison import COMPARISON, compare_runs
from stowplan.experiments.statistics.regression_gate import failed_conditions
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


def run(plan: dict[str, Any], folder: Path, given: argparse.Namespace, own: list[Measure]) -> Rows:
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
                    for measure, value in compute_measures(found, own).items()
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


def write(folder: Path, rows: Rows, comparison: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measures.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / COMPARISON).write_bytes(comparison)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--arrivals", default="")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--traces", type=Path, default=Path())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", action="append", default=[])
    parser.add_argument("--fail-if", action="append", default=[])
    parser.add_argument("--measures", nargs="*", default=[])
    given = parser.parse_args()
    plan = yaml.safe_load(given.file.read_text())
    own = [own_measure(one) for one in given.measure]
    rows = run(plan, given.file.parent, given, own)
    comparison = compare_runs(rows, measures=given.measures, own=own)
    if given.out is not None:
        write(given.out, rows, comparison.to_json())
    print_means(rows, [policy["name"] for policy in plan["policies"]])
    print(comparison.text)
    failed = failed_conditions(rows, given.fail_if)
    for line in failed:
        print(f"Failed: {line}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
