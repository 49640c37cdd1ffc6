"""Exports of other schedulers' tools as lists of objects: kube-scheduler-simulator, KAI.

Both are JSON with a list of objects per kind, which have no apiVersion and kind. KAI's is packed as
`snapshot.json` in a zip archive. A recording of kube-scheduler-simulator has a line of JSON per
change of an object, of which the state at its end is read.

Source: kube-scheduler-simulator, simulator/snapshot (ResourcesForSnap) and simulator/recorder
(Record); KAI-Scheduler, pkg/scheduler/plugins/snapshot (Snapshot).
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from stowplan.inputs.counts import count_of
from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import InputError
from stowplan.objects.kai.bind_request import KAI_BIND_API_VERSION
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_API_VERSION,
    KAI_QUEUE_API_VERSION,
    KAI_TOPOLOGY_API_VERSION,
)
from stowplan.objects.kai.node_topology import NODE_TOPOLOGY_API_VERSION

Tree = dict[str, Any]

ZIP_MAGIC = b"PK\x03\x04"
KAI_FILE = "snapshot.json"
UNPACKED_MAX = 4 * 2**30
"""Bytes of an unpacked archive."""

SIMULATOR: dict[str, tuple[str, str]] = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "pvs": ("v1", "PersistentVolume"),
    "pvcs": ("v1", "PersistentVolumeClaim"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "priorityClasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "namespaces": ("v1", "Namespace"),
}
"""Field of kube-scheduler-simulator's export -> apiVersion and kind."""
KAI: dict[str, tuple[str, str]] = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "queues": (KAI_QUEUE_API_VERSION, "Queue"),
    "podGroups": (KAI_GROUP_API_VERSION, "PodGroup"),
    "topologies": (KAI_TOPOLOGY_API_VERSION, "Topology"),
    "bindRequests": (KAI_BIND_API_VERSION, "BindRequest"),
    "nodeResourceTopologies": (NODE_TOPOLOGY_API_VERSION, "NodeResourceTopology"),
    "priorityClasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "persistentVolumes": ("v1", "PersistentVolume"),
    "persistentVolumeClaims": ("v1", "PersistentVolumeClaim"),
    "storageClasses": ("storage.k8s.io/v1", "StorageClass"),
    "csiStorageCapacities": ("storage.k8s.io/v1", "CSIStorageCapacity"),
    "csiDrivers": ("storage.k8s.io/v1", "CSIDriver"),
    "resourceClaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceSlices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceClasses": ("resource.k8s.io/v1", "DeviceClass"),
}
"""Field of `rawObjects` in KAI's snapshot -> apiVersion and kind."""
SIMULATOR_NOTE = (
    "an export of kube-scheduler-simulator has no Services, controllers, disruption budgets and "
    "CSI objects; its schedulerConfig is not read: use --config"
)
KAI_NOTE = (
    "a KAI snapshot has no Services and CSINodes, and by its version no PersistentVolumes or no "
    "disruption budgets; its config is not read: use --config, or --compat kai"
)

_RECORD = re.compile(
    rb'\s*(?P<listed>\[\s*)?\{\s*("time"\s*:\s*"[^"]*"\s*,\s*)?"(event|resource)"\s*:'
)
"""Beginning of a recording: lines of JSON, or a list, as earlier versions wrote it."""
_PUT, _DELETED = ("Add", "Update"), "Delete"


class _Recorded(NamedTuple):
    """An object of a recording, as it was last."""

    tree: Tree
    place: str


class SimulatorRecordings:
    """The objects at the end of recordings of kube-scheduler-simulator, in order of creation.

    last: time of the last change, "" without one.
    """

    def __init__(self) -> None:
        self.last = ""
        self.n_changes = self.n_cut = 0
        self._objects: dict[tuple[str, ...], _Recorded] = {}

    def takes(self, file: InputFile) -> bool:
        """True if a file is a recording, which is read; raises InputError."""
        begin = _RECORD.match(file.data[:200])
        if begin is None:
            return False
        for place, record in self._records(file, is_list=begin["listed"] is not None):
            self._apply(record, f"{file.source}: {place}")
        return True

    def items(self) -> Iterator[_Recorded]:
        """The objects."""
        return iter(self._objects.values())

    def notes(self) -> list[str]:
        """What was read, and what not."""
        if not self.n_changes:
            return []
        changes = count_of(self.n_changes, "change")
        found = [
            f"the state after {changes} of a recording of kube-scheduler-simulator, at {self.last}"
        ]
        if self.n_cut:
            found.append("the recording's last line is incomplete and left out")
        return found

    def _records(self, file: InputFile, *, is_list: bool) -> Iterator[tuple[str, Any]]:
        if is_list:
            try:
                found = msgspec.json.decode(file.data, type=list[Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                raise InputError.at(file.source, "", str(problem)) from None
            yield from ((f"[{index}]", one) for index, one in enumerate(found))
            return
        lines = file.data.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield f"line {number}", msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                if number == len(lines) and not line.endswith(b"\n"):
                    self.n_cut += 1
                    return
                raise InputError.at(file.source, f"line {number}", str(problem)) from None

    def _apply(self, record: Any, place: str) -> None:
        tree = record.get("resource") if isinstance(record, dict) else None
        meta = tree.get("metadata") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(meta, dict):
            raise InputError(place, "resource", "", "an object with metadata")
        event = record.get("event")
        names = (tree.get("apiVersion"), tree.get("kind"), meta.get("namespace"), meta.get("name"))
        identity = tuple(str(one or "") for one in names)
        self.n_changes += 1
        self.last = str(record.get("time", ""))
        if event in _PUT:
            self._objects[identity] = _Recorded(tree, place)
        elif event == _DELETED:
            self._objects.pop(identity, None)
        else:
            raise InputError(place, "event", repr(event), f"one of {', '.join(_PUT)}, {_DELETED}")


def unzipped(file: InputFile) -> InputFile:
    """The file, or the snapshot in an archive; raises InputError."""
    if not file.data.startswith(ZIP_MAGIC):
        return file
    try:
        with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
            if archive.getinfo(KAI_FILE).file_size > UNPACKED_MAX:
                raise InputError(file.source, KAI_FILE, "over 4 GiB", "a smaller snapshot")
            return InputFile(file.source, ".json", archive.read(KAI_FILE))
    except KeyError:
        got = "an archive without it"
        raise InputError(file.source, KAI_FILE, got, "a KAI snapshot, or unpacked files") from None
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as problem:
        raise InputError.at(file.source, "", f"unable to unzip: {problem}") from None


def export_of(tree: Any, place: str) -> tuple[Tree, list[str]] | None:
    """The objects of an export as a List, and what it leaves out; None for anything else. Raises
    InputError."""
    if not isinstance(tree, dict) or "kind" in tree:
        return None
    raw = tree.get("rawObjects")
    if isinstance(raw, dict):
        return _listed(raw, KAI, f"{place}: rawObjects"), [KAI_NOTE, *_not_read(raw)]
    if isinstance(tree.get("pods"), list) and isinstance(tree.get("nodes"), list):
        return _listed(tree, SIMULATOR, place), [SIMULATOR_NOTE]
    return None


def _listed(tree: Tree, kinds: dict[str, tuple[str, str]], place: str) -> Tree:
    items: list[Tree] = []
    for field, (version, kind) in kinds.items():
        values = tree.get(field) or []
        if not isinstance(values, list):
            raise InputError(place, field, repr(values)[:40], "a list")
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                raise InputError(place, f"{field}[{index}]", repr(value)[:40], "an object")
            items.append({**value, "apiVersion": version, "kind": kind})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _not_read(raw: Tree) -> list[str]:
    """What a KAI snapshot has that is not read."""
    left = {field: values for field, values in raw.items() if field not in KAI and values}
    if not left:
        return []
    counts = ", ".join(f"{len(values):,} {field}" for field, values in left.items())
    pods = count_of(len(raw.get("pods") or []), "pod")
    return [f"not read of the KAI snapshot ({pods}): {counts}"]
