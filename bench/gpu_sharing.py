"""The published table of the GPU sharing experiment: our figures, the published ones, and the
difference.

Run: python bench/gpu_sharing.py FOLDER [--workload NAME] [--policy NAME] [--seed N]
[--published FILE.csv.gz] [--columns] [--out TABLE.csv], FOLDER being that of the OpenB files. Or
with --table TABLE.csv, which `stowplan experiment examples/fgd.yaml` writes, in place of FOLDER.
Options may be repeated; without them all workloads of the published file are run. Exit status 1 if
a figure of a policy other than Random differs, or the mean of Random by more than two standard
deviations.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from stowplan.experiments.gpu_sharing.experiment import N_COLUMNS, run_experiment
from stowplan.experiments.gpu_sharing.openb_workload import WORKLOADS, read_workload
from stowplan.experiments.gpu_sharing.published_table import (
    Table,
    differences,
    mean_and_deviation,
    read_table,
    table_text,
)
from stowplan.inputs.input_error import InputError
from stowplan.plugins.gpu_share.policies import GpuPolicy

PUBLISHED = Path(__file__).parents[1] / "tests/conformance/data/gpushare/expected_seeds.csv.gz"
SEEDS = range(42, 52)
AT = 100
"""The column that is printed where not all are."""


def main() -> int:
    """Run the experiments that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="Run the experiments on these files.")
    parser.add_argument("--table", type=Path, help="Take our figures from this file.")
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--policy", action="append", choices=[one.value for one in GpuPolicy])
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--published", type=Path, default=PUBLISHED)
    parser.add_argument("--columns", action="store_true", help="Print all columns.")
    parser.add_argument("--out", type=Path, help="Write our figures into this file.")
    asked = parser.parse_args()
    if (asked.folder is None) == (asked.table is None):
        parser.error("one of FOLDER and --table is needed")
    theirs = read_table(asked.published)
    if asked.table is not None:
        return compare_table(read_table(asked.table), theirs, columns=asked.columns)
    workloads = asked.workload or [w for w in WORKLOADS if any(run[0] == w for run in theirs)]
    ours: Table = {}
    print(
        "workload     policy         seed  metric                ours    published  difference  s"
    )
    n_wrong = 0
    for name in workloads:
        workload = read_workload(asked.folder, name)
        for policy in asked.policy or [one.value for one in GpuPolicy]:
            for seed in asked.seed or SEEDS:
                began = time.process_time()
                run = name, policy, seed
                ours[run] = run_experiment(workload, GpuPolicy(policy), seed)
                seconds = time.process_time() - began
                n_wrong += report(run, ours, theirs, seconds, columns=asked.columns)
            if policy == GpuPolicy.RANDOM:
                n_wrong += report_mean(name, ours, theirs)
    if asked.out is not None:
        asked.out.write_text(table_text(ours))
    print(f"{len(ours)} runs, {n_wrong} with figures that differ")
    return 1 if n_wrong else 0


def compare_table(ours: Table, theirs: Table, *, columns: bool) -> int:
    """Compare the runs of a table with the published ones; the exit status."""
    both = [run for run in ours if run in theirs]
    n_wrong = sum(report(run, ours, theirs, 0.0, columns=columns) for run in both)
    random = {run[0] for run in both if run[1] == GpuPolicy.RANDOM}
    n_wrong += sum(report_mean(name, ours, theirs) for name in sorted(random))
    text = f"{len(both)} of {len(ours)} runs are published, {n_wrong} with figures that differ"
    print(text)
    return 1 if n_wrong or not both else 0


def report(
    run: tuple[str, str, int], ours: Table, theirs: Table, seconds: float, *, columns: bool
) -> bool:
    """Print a run; True if it should equal the published one and does not."""
    begin = f"{run[0]:<12} {run[1]:<14} {run[2]}"
    published = theirs.get(run)
    if published is None:
        for metric, figures in ours[run].items():
            print(f"{begin}    {metric:<20} {figures[AT]:>9} {'-':>11} {'-':>11}  {seconds:.1f}")
        return False
    for one in differences(ours[run], published):
        mine, other = ours[run][one.metric], published[one.metric]
        worst = "equal" if not one.n_different else f"{one.largest:.6g} in column {one.column}"
        print(
            f"{begin}    {one.metric:<20} {mine[AT]:>9} {other[AT]:>11}"
            f" {mine[AT] - other[AT]:>11.6g}  {seconds:.1f}  all columns: {worst}"
        )
        if columns:
            for column in range(N_COLUMNS):
                print(f"    {column:>3} {mine[column]:>10} {other[column]:>10}")
    return run[1] != GpuPolicy.RANDOM and any(
        one.n_different for one in differences(ours[run], published)
    )


def report_mean(workload: str, ours: Table, theirs: Table) -> bool:
    """Print the mean of Random at AT; True if it is too far from the published one."""
    runs = [run for run in ours if run[:2] == (workload, GpuPolicy.RANDOM)]
    both = [run for run in theirs if run[:2] == (workload, GpuPolicy.RANDOM)]
    if not both:
        return False
    mean, deviation = mean_and_deviation([theirs[run]["alloc_pct"][AT] for run in both])
    mine, _ = mean_and_deviation([ours[run]["alloc_pct"][AT] for run in runs])
    figures = f"{mine:.2f}, published {mean:.2f}, deviation {deviation:.2f}"
    print(f"{workload:<12} Random, mean: {figures}")
    return len(runs) == len(both) and abs(mine - mean) > 2 * deviation


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
