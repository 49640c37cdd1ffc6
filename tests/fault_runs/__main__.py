"""`python -m tests.fault_runs`: fault runs of a range of seeds, on several processors.

A long series is run in parts: `--runs 20000 --first 0`, then `--first 20000`. How many ran is
printed also when it is interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.fault_runs.families import FAMILIES, run_seeds

CHUNK_MAX = 50
"""Seeds per task: few enough that a progress line comes every minute."""
FAILURES_PRINTED_MAX = 5


def main(arguments: list[str]) -> int:
    """Run, print progress and the result; 1 if a run failed, 130 if interrupted."""
    given = _parsed(arguments)
    total = 0
    code = 0
    for family in given.family or FAMILIES:
        done, failed, is_whole = _run(family, range(given.first, given.first + given.runs), given)
        total += done
        code = code or (1 if failed else 0)
        if not is_whole:
            code = 130
            break
    print(f"{total:,} runs in all")
    return code


def _parsed(arguments: list[str]) -> argparse.Namespace:
    families = ", ".join(f"{name} ({what})" for name, (what, _) in FAMILIES.items())
    parser = argparse.ArgumentParser(prog="python -m tests.fault_runs", description=__doc__)
    parser.add_argument(
        "family", nargs="*", metavar="FAMILY", help=f"{families}. Default: each of them."
    )
    parser.add_argument("--runs", type=_count, default=100, help="runs of each family (100)")
    parser.add_argument("--first", type=int, default=0, help="first seed (0)")
    parser.add_argument("--workers", type=_count, default=1, help="processes (1)")
    given = parser.parse_args(arguments)
    for name in given.family:
        if name not in FAMILIES:
            parser.error(f'unknown family "{name}": one of {", ".join(FAMILIES)}')
    if given.first < 0:
        parser.error("--first: must be 0 or more")
    return given


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _run(family: str, seeds: range, given: argparse.Namespace) -> tuple[int, int, bool]:
    """Run seeds of a family; how many ran, how many failed, and whether all ran."""
    began = time.monotonic()
    failures: list[str] = []
    counts: Counter[str] = Counter()
    size = min(CHUNK_MAX, -(-len(seeds) // given.workers))
    tasks = [seeds[at : at + size] for at in range(0, len(seeds), size)]
    done, is_whole = 0, True
    with ProcessPoolExecutor(given.workers) as pool:
        running: dict[Future[tuple[list[str], Counter[str]]], int] = {
            pool.submit(run_seeds, family, task): len(task) for task in tasks
        }
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    found, happened = future.result()
                    done += running.pop(future)
                    failures += found
                    counts += happened
                    _print_progress(family, done, len(seeds), len(failures), began)
        except KeyboardInterrupt:
            is_whole = False
            pool.shutdown(wait=False, cancel_futures=True)
    for failure in failures[:FAILURES_PRINTED_MAX]:
        print(failure)
    last = seeds[-1]
    ran = f"{done:,} of {len(seeds):,} runs, seeds {seeds[0]} to {last}, {len(failures)} failed"
    print(f"{family}: {ran}, {time.monotonic() - began:.0f} s")
    print("  " + ", ".join(f"{what} {number:,}" for what, number in counts.most_common()))
    return done, len(failures), is_whole


def _print_progress(family: str, done: int, n_runs: int, n_failed: int, began: float) -> None:
    text = f"{family}: {done:,} of {n_runs:,}, {n_failed} failed, {time.monotonic() - began:.0f} s"
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
