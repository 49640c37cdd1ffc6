"""A cluster that Volcano schedules, from its objects: what scheduling reads of it, the
configuration of its scheduler, and what is not modelled.

Source: volcano master of 2026-08-20, cmd/scheduler/app/options/options.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stowplan.config.queue_models.queue_model_choice import SCHEDULER, VOLCANO
from stowplan.config.queue_models.scheduler_config_map import CONFIG_MAP, scheduler_file_of
from stowplan.inputs.counts import count_of
from stowplan.inputs.importers.imported_objects import Tree, list_names, mapping

DEFAULT_SOURCE = "default configuration of Volcano"

_COUNTED = (
    "Node", "Pod", "PodGroup.scheduling.volcano.sh", "Queue.scheduling.volcano.sh",
    "Job.batch.volcano.sh", "HyperNode.topology.volcano.sh",
)  # fmt: skip
_LEFT_OUT = frozenset({CONFIG_MAP, "Secret", "Event", "Event.events.k8s.io"})
_GROUP = ".volcano.sh"
_KNOWN = frozenset(name for name in _COUNTED if name.endswith(_GROUP))
_OTHER_KINDS = {
    "Command.bus.volcano.sh": "what vcctl asks for",
    "CronJob.batch.volcano.sh": "Jobs that they will create",
    "JobFlow.flow.volcano.sh": "Jobs that they will create",
    "JobTemplate.flow.volcano.sh": "Jobs that flows make of them",
    "NodeShard.shard.volcano.sh": "nodes of each scheduler",
    "Numatopology.nodeinfo.volcano.sh": "NUMA nodes",
}
"""Kind of Volcano that is not read -> what is therefore missing."""
_ANNOTATIONS = {
    "volcano.sh/numa-topology-policy": "plugin numa-aware",
    "volcano.sh/task-topology-affinity": "plugin task-topology",
    "volcano.sh/task-topology-anti-affinity": "plugin task-topology",
    "volcano.sh/task-topology-task-order": "plugin task-topology",
}
"""Annotation without effect here -> what reads it."""

_CONFIG_FLAG = "scheduler-conf"
_FLAGS = {
    "csi-storage": "limits of CSI storage",
    "feature-gates": "feature gates",
    "ignored-provisioners": "claims of these provisioners count",
    "minimum-feasible-nodes": "all nodes are looked at",
    "minimum-percentage-nodes-to-find": "all nodes are looked at",
    "node-selector": "all nodes count",
    "percentage-nodes-to-find": "all nodes are looked at",
    "plugins-dir": "custom plugins",
    "scheduler-sharding-mode": "all nodes count",
}
"""Flag of Volcano's scheduler that changes decisions and is not read -> what that means here."""


class ImportedVolcano(msgspec.Struct, frozen=True):
    """What an import found.

    configuration: text of a configuration file. source: where it was, for people and errors.
    objects: those that are read, in order. counts: kind -> number. notes: what is not modelled, and
    what was chosen.
    """

    configuration: str
    source: str
    objects: list[Tree]
    counts: dict[str, int]
    notes: list[str]


def volcano_cluster_of(trees: Iterable[Tree]) -> ImportedVolcano:
    """Sort the objects of a cluster; those of kinds that make no difference stay."""
    kept: list[Tree] = []
    files: list[tuple[Tree, str, str]] = []
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for tree in trees:
        kind = _full_kind(tree)
        found = scheduler_file_of(tree)
        if found is not None:
            files.append((tree, *found))
        if kind in _LEFT_OUT:
            continue
        if kind.endswith(_GROUP) and kind not in _KNOWN:
            dropped[kind] += 1
            continue
        counts[kind] += 1
        kept.append(tree)
    flags, namespace = _flags(kept)
    file = _chosen(files, namespace)
    notes = [*_notes_on_files(files, file), *_notes_on_flags(flags)]
    for kind, count in sorted(dropped.items()):
        what = _OTHER_KINDS.get(kind, "their effect")
        notes.append(f"not modelled: {count_of(count, kind, kind)} ({what})")
    notes += _notes_on_annotations(kept)
    text, source = (file[2], _title(file)) if file is not None else ("", DEFAULT_SOURCE)
    counted = {kind.partition(".")[0]: counts[kind] for kind in _COUNTED}
    return ImportedVolcano(_configuration(text, flags), source, kept, counted, notes)


def _full_kind(tree: Tree) -> str:
    group, slash, _ = str(tree.get("apiVersion") or "").partition("/")
    kind = str(tree.get("kind") or "")
    return f"{kind}.{group}" if slash else kind


def _meta(tree: Tree) -> Tree:
    found = tree.get("metadata")
    return found if isinstance(found, dict) else {}


# The configuration file.


def _chosen(files: list[tuple[Tree, str, str]], namespace: str) -> tuple[Tree, str, str] | None:
    """The file of the scheduler: in its namespace, if it is known, else the first."""
    beside = (one for one in files if namespace and _meta(one[0]).get("namespace") == namespace)
    return next(beside, files[0] if files else None)


def _title(file: tuple[Tree, str, str]) -> str:
    meta = _meta(file[0])
    place = f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
    return f"ConfigMap {place}: {file[1]}"


def _notes_on_files(
    files: list[tuple[Tree, str, str]], chosen: tuple[Tree, str, str] | None
) -> Iterator[str]:
    if chosen is None:
        yield "no ConfigMap with a volcano-scheduler.conf: Volcano's default configuration is used"
    for one in files:
        if one is not chosen:
            yield f"not used: {_title(one)}"


def _configuration(text: str, flags: dict[str, list[str]]) -> str:
    """The file, with what flags say in the block `batch`."""
    options: dict[str, Any] = {}
    if flags.get("scheduler-name"):
        options["schedulerNames"] = list(dict.fromkeys(flags["scheduler-name"]))
    for name, option in (("schedule-period", "schedulePeriod"), ("default-queue", "defaultQueue")):
        if flags.get(name):
            options[option] = flags[name][-1]
    if flags.get("priority-class"):
        options["priorityClass"] = flags["priority-class"][-1] not in ("false", "0", "f", "F")
    lines = [f"{SCHEDULER}: {VOLCANO}"] if f"{SCHEDULER}:" not in text else []
    lines += [text.rstrip()] if text.strip() else []
    if options:
        lines.append(f"batch: {msgspec.json.encode(options).decode()}")
    return "\n".join(lines) + "\n"


# The flags of the scheduler.


def _flags(trees: Iterable[Tree]) -> tuple[dict[str, list[str]], str]:
    """Flags of the first container that reads such a file, by name, and its namespace."""
    for tree in trees:
        for container in _containers(tree):
            words = [*_texts(container.get("command")), *_texts(container.get("args"))]
            found = _parse_flags(words)
            if _CONFIG_FLAG in found:
                return found, str(_meta(tree).get("namespace") or "")
    return {}, ""


def _containers(tree: Tree) -> Iterator[Tree]:
    if tree.get("kind") not in ("Pod", "Deployment"):
        return
    spec = tree.get("spec")
    if tree["kind"] == "Deployment" and isinstance(spec, dict):
        spec = mapping(mapping(spec, "template"), "spec")
    listed = spec.get("containers") if isinstance(spec, dict) else None
    yield from (one for one in listed or () if isinstance(one, dict))


def _texts(tree: Any) -> list[str]:
    return [one for one in tree if isinstance(one, str)] if isinstance(tree, list) else []


def _parse_flags(words: list[str]) -> dict[str, list[str]]:
    """Name -> values; a word without `=` has its value in the next word, or is a switch."""
    found: dict[str, list[str]] = {}
    for place, word in enumerate(words):
        # Images with a shell have all of it in one word.
        parts = word.split() if " " in word else [word]
        for part in parts:
            if not part.startswith("-"):
                continue
            name, equals, text = part.lstrip("-").partition("=")
            after = words[place + 1] if place + 1 < len(words) else ""
            if not equals:
                text = after if after and not after.startswith("-") else "true"
            found.setdefault(name, []).append(text.strip("\"'"))
    return found


def _notes_on_flags(flags: dict[str, list[str]]) -> Iterator[str]:
    for name in sorted(flags.keys() & _FLAGS.keys()):
        yield f"not modelled: --{name}={','.join(flags[name])} of the scheduler ({_FLAGS[name]})"


def _notes_on_annotations(trees: Iterable[Tree]) -> Iterator[str]:
    users: dict[str, list[str]] = {}
    for tree in trees:
        notes = _meta(tree).get("annotations")
        for name in _ANNOTATIONS.keys() & (notes.keys() if isinstance(notes, dict) else ()):
            title = f"{tree.get('kind')} {_meta(tree).get('name')}"
            users.setdefault(name, []).append(title)
    for name, titles in sorted(users.items()):
        yield f"not modelled: {name} ({_ANNOTATIONS[name]}) of {list_names(titles)}"
