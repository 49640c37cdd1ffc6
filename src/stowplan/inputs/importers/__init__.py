"""Importers: jobs of other controllers, expanded to pods and gangs.

Jobs are expanded after all files are read, since they refer to other objects (a TrainJob to its
runtime, a labelled Job to its LocalQueue). Their pods take the position of the job in its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec

from stowplan.inputs.importers.imported_objects import (
    ImportLookup,
    list_names,
    queue_name_of,
    used,
)
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.manifests import ManifestInventory, full_kind, group_of, untyped_title
from stowplan.inputs.validation.object_validation import ObjectValidator, ValidationResult
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.kai.grouping.sub_groups import REPLICA_SPECS

Tree = dict[str, Any]

IMPORTERS: Mapping[tuple[str, str], str] = {
    ("batch.volcano.sh", "Job"): "volcano_job",
    ("jobset.x-k8s.io", "JobSet"): "jobset",
    ("trainer.kubeflow.org", "TrainJob"): "train_job",
    **{("kubeflow.org", kind): "kubeflow_job" for kind in REPLICA_SPECS},
    ("kubeflow.org", "Notebook"): "notebook",
    **{("ray.io", kind): "ray" for kind in ("RayCluster", "RayJob", "RayService")},
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "lws",
}
"""(group, kind) -> module that expands it."""
LABELLED = {("batch", "Job"): "kueue"}
"""The same for kinds that are imported only with Kueue's queue label."""
LOOKED_UP = {
    ("trainer.kubeflow.org", "TrainingRuntime"),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"),
    ("kueue.x-k8s.io", "LocalQueue"),
    ("kueue.x-k8s.io", "ClusterQueue"),
}
"""Kinds that importers look up and that are not expanded."""
_GLOBAL = {"ClusterTrainingRuntime", "ClusterQueue"}


class ImportSource(NamedTuple):
    """An object to expand. position: index of its pods in the inventory. found: its mistakes."""

    tree: Tree
    place: str
    position: int
    importer: str
    found: ValidationResult | None = None

    @property
    def is_faulty(self) -> bool:
        """Whether it has mistakes that are reported as errors."""
        return self.found is not None and self.found.is_fatal


class ImportedJobs:
    """Objects to import, and notes about them."""

    def __init__(self, validation: ObjectValidator) -> None:
        self.validation = validation
        self._sources: list[ImportSource] = []
        self._trees: dict[tuple[str, str], Tree] = {}
        self._titles: dict[str, list[str]] = {}
        self._unmodelled: dict[str, dict[str, None]] = {}
        self._remarks: list[str] = []
        self._seen: set[bytes] = set()

    def takes(self, tree: Tree, path: str) -> bool:
        """True for an object that is imported or looked up."""
        key = group_of(tree, path), tree["kind"]
        return (
            key in IMPORTERS or key in LOOKED_UP or (key in LABELLED and bool(queue_name_of(tree)))
        )

    def add(
        self,
        tree: Tree,
        path: str,
        place: str,
        position: int,
        found: ValidationResult | None = None,
    ) -> None:
        """Add an object, to be expanded later; raises DecodeError for a duplicate. found: its
        mistakes, which are reported when it is expanded, or at once."""
        kind = str(tree["kind"])
        title = untyped_title(tree, path)
        meta = tree.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(name, str) or not name:
            raise DecodeError(mismatch("", "a name"), f"{title}: metadata.name")
        key = name if kind in _GLOBAL else f"{meta.get('namespace') or 'default'}/{name}"
        slot = full_kind(tree, path), key
        if slot in self._trees:
            raise DecodeError("Duplicate value", title)
        source = ImportSource(tree, place, position, "", found)
        # Of an object with mistakes only those are reported, not what follows from them elsewhere.
        kept = {**tree, "spec": {}} if source.is_faulty and self._is_looked_up(tree, path) else tree
        self._trees[slot] = kept
        group_kind = group_of(tree, path), kind
        importer = IMPORTERS.get(group_kind) or LABELLED.get(group_kind, "")
        if importer:
            self._sources.append(source._replace(importer=importer))
        else:
            self.validation.report(place, found)

    def _is_looked_up(self, tree: Tree, path: str) -> bool:
        return (group_of(tree, path), tree["kind"]) in LOOKED_UP

    def expand(self, inventory: ManifestInventory) -> None:
        """Expand all jobs and add their objects to the inventory."""
        if not self._sources:
            return
        known = ImportLookup(inventory, self._trees)
        made: list[tuple[int, int]] = []
        for source in self._sources:
            before = len(inventory.entries)
            try:
                self._expand(source, inventory, known)
            except DecodeError as problem:
                self.validation.report_unreadable(source.place, problem, source.found)
            else:
                self.validation.report(source.place, source.found)
            made.append((source.position, len(inventory.entries) - before))
        self._remarks = list(known.remarks)
        _move(inventory, made)

    def _expand(
        self, source: ImportSource, inventory: ManifestInventory, known: ImportLookup
    ) -> None:
        module = import_module(f"stowplan.inputs.importers.{source.importer}")
        tree = source.tree
        checks = self.validation.applies(tree)
        for one in module.expand(tree, known):
            # The workload itself, with which its importer begins, is validated where it is read.
            if checks and (group_of(one, ""), one["kind"]) not in IMPORTERS:
                self._validate(one, source)
            inventory.add_item(one, "", source.place)
        kind = full_kind(tree, "")
        self._titles.setdefault(kind, []).append(untyped_title(tree, "").partition(" ")[2])
        paths = dict.fromkeys(used(tree, module.UNMODELLED))
        self._unmodelled.setdefault(kind, {}).update(paths)

    def _validate(self, made: Tree, source: ImportSource) -> None:
        """Validate a created object, once per spec."""
        key = msgspec.msgpack.encode(made.get("spec"))
        if key not in self._seen:
            self._seen.add(key)
            # Owners that are not stored have no uid.
            meta = {k: v for k, v in made["metadata"].items() if k != "ownerReferences"}
            found = self.validation.of({**made, "metadata": meta})
            if found is not None:
                known = source.found.mistakes if source.found is not None else ()
                mistakes = tuple(one for one in found.mistakes if one not in known)
                title = f"{untyped_title(source.tree, '')}: {found.title}"
                self.validation.report(
                    source.place, ValidationResult(title, mistakes, found.is_fatal)
                )

    def notes(self) -> list[str]:
        """Notes: what was imported, and which of its fields are not modelled."""
        found = []
        for kind, titles in self._titles.items():
            unmodelled = ", ".join(self._unmodelled[kind])
            more = f"; not modelled: {unmodelled}" if unmodelled else ""
            found.append(f"{kind} read as pods and gangs: {list_names(titles)}{more}")
        return found + self._remarks


def _move(inventory: ManifestInventory, made: list[tuple[int, int]]) -> None:
    """Move created entries from the end to the positions of their sources."""
    n_read = len(inventory.entries) - sum(count for _, count in made)
    read, rest = inventory.entries[:n_read], iter(inventory.entries[n_read:])
    entries = []
    done = 0
    for position, count in made:
        entries += read[done:position]
        entries += (next(rest) for _ in range(count))
        done = position
    inventory.entries = [*entries, *read[done:]]
