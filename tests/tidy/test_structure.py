"""Structure: no cycles, no class defined twice, one meaning per module name, no crowded folder.

Source: docs/decisions/ and ARCHITECTURE.md, "Packages". Each check is shown a tree that breaks it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from tests.tidy import tree

PACKAGE = "stowplan"
FOLDER_MAX = 15
# `apis/core/` has a file per kind; style and design allow it more.
FOLDERS_LARGER = {PurePath("src/stowplan/apis/core")}
# A command, its work and what it calls have the name of the command.
COMMANDS = PurePath("src/stowplan/cli/commands")
# Module names that occur more than once -> the one thing that they mean.
MEANINGS = {
    "access_reviews": "TokenReview and SubjectAccessReview: answered, and sent",
    "cron_job": "CronJob: the kind and its controller",
    "decider": "a Decider: the protocol, and one per lane",
    "deployment": "Deployment: the kind and its controller",
    "endpoint_slice": "EndpointSlice: the kind and its controller",
    "endpoints": "Endpoints: the kind, and what is written to it",
    "errors": "errors with the texts that users read: of the API server, of the command line",
    "heap": "a heap",
    "hints": "queueing hints of a family of plugins",
    "horizontal_pod_autoscaler": "HorizontalPodAutoscaler: the kind and its controller",
    "jobs": "jobs of sessions: the values, their table, and those of kube-batch v0.5",
    "kernel_terms": "kernel terms: the types, and those of a plugin",
    "node": "Node: the kind and the value",
    "nodes": "nodes of sessions, and of kube-batch v0.5",
    "options": "options of the part that the package is",
    "persistent_volume": "PersistentVolume: the kind and its controller",
    "plugin_io": "plugin I/O: what is pending, and its execution",
    "pod": "Pod: the kind and the value",
    "preempt_preview": "preempt-preview: the command, its run, the answer",
    "priority": "pod priority: admission and session plugin, named as the originals",
    "proportion": "the session plugin, and that of kube-batch v0.5",
    "replica_set": "ReplicaSet: the kind and its controller",
    "replication_controller": "ReplicationController: the kind and its controller",
    "resource_claim": "ResourceClaim: the kind and its controller",
    "resource_quota": "ResourceQuota: the kind, its admission and its controller",
    "runtime_class": "RuntimeClass: the kind and its admission",
    "service_account": "ServiceAccount: the kind and its controller",
    "session": "a session, and one of kube-batch v0.5",
    "taint_toleration": "TaintToleration: the plugin and the 1.13 priority",
    "tiers": "tiers of session plugins, and those of kube-batch v0.5",
    "timestamps": "RFC 3339 timestamps",
    "volume_claims": "volume claims of pods",
    "capacity": "capacity: the command, its run, its table, its answers",
    "eta": "eta: the command, its run, its answers",
    "what_if": "what-if: the command, its run, its table; packages of its parts",
}


def module_name(path: PurePath) -> str:
    """`src/stowplan/queue/heap.py` as `stowplan.queue.heap`."""
    parts = path.with_suffix("").parts
    parts = parts[parts.index(PACKAGE) :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str, modules: Iterable[str]) -> Iterator[str]:
    """Modules of `modules` that `text` imports anywhere: late and for type checking too."""
    known = set(modules)
    for node in tree.nodes(text, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif node.module in known:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in known else node.module


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module, each sorted. Source: Tarjan 1972."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(graph):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(sorted(graph[root])))]
        while work:
            module, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in stack:
                    low[module] = min(low[module], index[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[module])
                if low[module] == index[module]:
                    start = stack.index(module)
                    if len(stack) - start > 1:
                        found.append(sorted(stack[start:]))
                    del stack[start:]
    return found


def import_graph(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Module to the modules that it imports; `texts` is source by module name."""
    return {name: set(imported(text, texts)) - {name} for name, text in texts.items()}


def repeated_classes(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Class name to the modules that define it, for names with more than one definition."""
    places = defaultdict(list)
    for name, text in texts.items():
        for node in tree.nodes(text, ast.ClassDef):
            places[node.name].append(name)
    return {name: sorted(where) for name, where in sorted(places.items()) if len(where) > 1}


def crowded(paths: Iterable[PurePath]) -> list[str]:
    """Folders that hold more than FOLDER_MAX modules, `__init__` and subpackages not counted."""
    counts: dict[PurePath, int] = defaultdict(int)
    for path in paths:
        counts[path.parent] += path.name != "__init__.py"
    return [
        f"{folder}: {count} modules, at most {FOLDER_MAX}"
        for folder, count in sorted(counts.items())
        if count > FOLDER_MAX and folder not in FOLDERS_LARGER
    ]


def repeated_modules(paths: Iterable[PurePath]) -> dict[str, list[str]]:
    """Module name to the folders that have it, for names of several; commands are left out."""
    folders = defaultdict(list)
    for path in paths:
        folders[path.stem].append(path.parent)
    return {
        name: sorted(map(str, where))
        for name, where in sorted(folders.items())
        if len(where) > 1 and not name.startswith("__") and COMMANDS not in where
    }


def sources() -> dict[str, str]:
    paths = sorted((tree.ROOT / "src" / PACKAGE).rglob("*.py"))
    return {module_name(path.relative_to(tree.ROOT)): tree.read(path) for path in paths}


def test_no_import_cycles() -> None:
    assert cycles(import_graph(sources())) == []


def test_a_late_import_that_closes_a_cycle_is_found() -> None:
    texts = {
        "stowplan.a": "from stowplan.b import B",
        "stowplan.b": "def f():\n    from stowplan import c\n",
        "stowplan.c": "if TYPE_CHECKING:\n    import stowplan.a\n",
        "stowplan": "",
        "stowplan.d": "from stowplan.a import A",
    }
    assert cycles(import_graph(texts)) == [["stowplan.a", "stowplan.b", "stowplan.c"]]


def test_no_class_is_defined_twice() -> None:
    assert repeated_classes(sources()) == {}


def test_a_class_defined_twice_is_found() -> None:
    texts = {"a": "class Plan: ...", "b": "def f():\n    class Plan: ...", "c": "class Other: ..."}
    assert repeated_classes(texts) == {"Plan": ["a", "b"]}


def test_folders_are_not_crowded() -> None:
    paths = (tree.ROOT / "src").rglob("*.py")
    assert crowded(path.relative_to(tree.ROOT) for path in paths) == []


def test_a_crowded_folder_is_found() -> None:
    paths = [Path(f"src/stowplan/queue/m{i}.py") for i in range(FOLDER_MAX)]
    init = Path("src/stowplan/queue/__init__.py")
    assert crowded([*paths, init]) == []
    assert crowded([*paths, Path("src/stowplan/queue/more.py")]) != []


def test_module_names_have_one_meaning() -> None:
    paths = (tree.ROOT / "src").rglob("*.py")
    repeated = repeated_modules(path.relative_to(tree.ROOT) for path in paths)
    assert repeated.keys() == MEANINGS.keys(), {
        name: repeated.get(name, "occurs once") for name in repeated.keys() ^ MEANINGS.keys()
    }


def test_a_repeated_module_name_is_found() -> None:
    places = ("queue/status.py", "cache/status.py", "queue/__init__.py", "cache/__init__.py")
    commands = ("cli/commands/up.py", "cli/runs/up.py")
    paths = [PurePath("src/stowplan") / place for place in (*places, *commands)]
    assert repeated_modules(paths) == {"status": ["src/stowplan/cache", "src/stowplan/queue"]}
