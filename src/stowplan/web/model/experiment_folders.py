"""Experiments in folders: how many runs are done, running and failed."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from stowplan.objects.encoding.tree import Tree

RUNS, FAILURES, PART, REPORT = "runs", "failures", ".part", "report.html"
EXPERIMENT, COMPARISON = "experiment.json", "comparison.json"
FOLDERS_MAX = 200
VERDICTS_MAX = 6
COMPARISON_MAX = 2_000_000
"""Larger files have no sentences in the list; the report reads them."""
DEPTH_MAX = 2


class _Result(msgspec.Struct):
    workload: str = ""
    verdict: str = ""


class _Comparison(msgspec.Struct):
    results: list[_Result] = []


def experiment_trees(root: Path) -> list[Tree]:
    """Folders of `stowplan experiment` at most two levels below `root`, the latest first."""
    found: list[tuple[float, Tree]] = []
    for folder in _candidates(root, DEPTH_MAX):
        runs = folder / RUNS
        names = [entry.name for entry in runs.iterdir() if entry.is_dir()]
        failures = folder / FAILURES
        failed = len(list(failures.glob("*.json"))) if failures.is_dir() else 0
        running = sum(name.endswith(PART) for name in names)
        done = len(names) - running
        changed = max(place.stat().st_mtime for place in (folder, runs)) * 1000
        tree: Tree = {
            "folder": str(folder.relative_to(root)),
            "runs": done + running + failed,
            "done": done,
            "running": running,
            "failed": failed,
            "updated": changed,
            "ended": is_ended(folder),
            "report": (folder / REPORT).is_file(),
            "verdicts": _verdicts(folder / COMPARISON, changed),
        }
        found.append((changed, tree))
    found.sort(key=lambda one: (-one[0], one[1]["folder"]))
    return [tree for _, tree in found]


def is_ended(folder: Path) -> bool:
    """True if an experiment has been written whole."""
    return (folder / EXPERIMENT).is_file()


@lru_cache(maxsize=FOLDERS_MAX)
def _verdicts(file: Path, changed: float) -> tuple[str, ...]:
    """What differs, a sentence per policy and setting. changed: when the folder did."""
    try:
        if file.stat().st_size > COMPARISON_MAX:
            return ()
        found = msgspec.json.decode(file.read_bytes(), type=_Comparison)
    except (OSError, msgspec.MsgspecError):
        # There is none before the end, and none of a single policy.
        return ()
    named = ((one.workload, one.verdict) for one in found.results if one.verdict)
    texts = (f"{setting}: {verdict}" if setting else verdict for setting, verdict in named)
    return tuple(islice(texts, VERDICTS_MAX))


def _candidates(folder: Path, depth: int) -> list[Path]:
    """Folders with runs; hidden ones and those that may not be read are left out."""
    # The first file is there when the experiment has ended, the second while it runs.
    marks = (folder / name for name in (EXPERIMENT, ".lock"))
    if (folder / RUNS).is_dir() and any(mark.is_file() for mark in marks):
        return [folder]
    if depth == 0:
        return []
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    found: list[Path] = []
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
            found += _candidates(entry, depth - 1)
            if len(found) >= FOLDERS_MAX:
                break
    return found[:FOLDERS_MAX]
