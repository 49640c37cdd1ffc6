"""Experiments in folders: how many runs are done, running and failed."""

from __future__ import annotations

from pathlib import Path

from stowplan.objects.encoding.tree import Tree

RUNS, FAILURES, PART, REPORT = "runs", "failures", ".part", "report.html"
FOLDERS_MAX = 200
DEPTH_MAX = 2


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
            "report": (folder / REPORT).is_file(),
        }
        found.append((changed, tree))
    found.sort(key=lambda one: (-one[0], one[1]["folder"]))
    return [tree for _, tree in found]


def _candidates(folder: Path, depth: int) -> list[Path]:
    """Folders with runs; hidden ones and those that may not be read are left out."""
    # The second file is there when the experiment has ended, the third while it runs.
    marks = (folder / name for name in ("experiment.json", ".lock"))
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
