"""Cluster: nodes, pods and objects, read from the files that a user names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from stowplan._deprecated import deprecated_method
from stowplan.columns.nodetable import NodeTable
from stowplan.framework import ObjectStore
from stowplan.framework.object_store import key_of
from stowplan.inputs.admission.admission_result import AdmissionResult
from stowplan.inputs.counts import count_of
from stowplan.inputs.document_reader import FileDocument, decoded, documents
from stowplan.inputs.files import InputFile, files_at
from stowplan.inputs.importers import IMPORTERS, ImportedJobs
from stowplan.inputs.importers.imported_objects import (
    JOB_SET_GROUPS,
    KUEUE_GROUP,
    queue_name_of,
    with_unread_queues,
)
from stowplan.inputs.input_error import InputError, check_word
from stowplan.inputs.manifests import ManifestInventory, Workload, group_of, items, title
from stowplan.inputs.openb import CARDS_COUNTED, OpenBReader
from stowplan.inputs.orphaned_pods import MODES as ORPHAN_MODES
from stowplan.inputs.orphaned_pods import resolve_orphans
from stowplan.inputs.scheduler_exports import (
    SimulatorRecordings,
    export_of,
    unzipped,
)
from stowplan.inputs.traces.tenant_queues import TenantQueues
from stowplan.inputs.traces.trace_formats import TraceFiles
from stowplan.inputs.validation.object_validation import ObjectValidator
from stowplan.inputs.workloads.next_run import NAME_SUFFIX, NextRun
from stowplan.inputs.workloads.workload_expansion import ExpandedCluster, expand_workloads
from stowplan.objects.encoding.html_summary import (
    html_bars,
    html_summary,
    html_table,
    html_text,
)
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.kai.bind_request import with_bind_requests
from stowplan.objects.kai.kai_kinds import KaiQueueObject
from stowplan.objects.limits import LimitRange, ResourceQuota
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue
from stowplan.objects.timing.pod_times import latest_time
from stowplan.objects.workload import DaemonSet, Job

Tree = dict[str, Any]

CSV = ".csv"
_LATEST = datetime.max.replace(tzinfo=UTC)


class Cluster(msgspec.Struct):
    """Nodes, pods and all other objects that scheduling reads.

    pods: bound, pending and finished, in the order of their files. objects: other kinds. ignored:
    kind -> number of objects that scheduling does not read. notes: limits of the model that apply.
    inputs: file -> SHA-256 of its uncompressed content. orphans: pod -> its node that is not in the
    input. not_created: pod -> why the API server would reject it (LimitRange, ResourceQuota).
    manifests: the objects as they were read, for a replay with controllers; empty unless asked for.
    origins: pod that is no object of the input -> the object whose template it has; None where that
    was imported from another kind. as_read: pod that got defaults of LimitRanges -> the pod without
    them. kueue_objects: objects of Kueue, as they were read. queued: objects with Kueue's queue
    label, the same. volcano_jobs: Jobs of Volcano, job_sets: JobSets, jobs of Kubeflow and their
    runtimes, the same; pods and groups of them are here too.
    """

    nodes: list[Node]
    pods: list[Pod]
    objects: list[Object] = []
    ignored: dict[str, int] = {}
    notes: list[str] = []
    inputs: dict[str, str] = {}
    orphans: dict[str, str] = {}
    not_created: dict[str, str] = {}
    manifests: list[Tree] = []
    origins: dict[str, Object | None] = {}
    as_read: dict[str, Pod] = {}
    kueue_objects: list[Tree] = []
    queued: list[Tree] = []
    volcano_jobs: list[Tree] = []
    job_sets: list[Tree] = []

    def __repr__(self) -> str:
        pods = f"{count_of(len(self.pods), 'pod')}, {len(self.pending()):,} of them pending"
        return f"Cluster({count_of(len(self.nodes), 'node')}, {pods})"

    def _repr_html_(self) -> str:
        """For notebooks: what is requested and allocatable, as table and bars."""
        table = self.table()
        names = [name for name in sorted(table.resources.values) if name != "pods"]
        amounts = [
            (name, int(table.requested(name).sum()), int(table.allocatable(name).sum()))
            for name in names
        ]
        rows = [(name, f"{used:,}", f"{whole:,}") for name, used, whole in amounts]
        return html_summary(
            repr(self),
            html_bars((name, used / whole) for name, used, whole in amounts if whole),
            html_table(("Resource", "Requested (milli-CPU, bytes)", "Allocatable"), rows),
            *map(html_text, self.notes),
        )

    def table(self) -> NodeTable:
        """A new node table with the bound pods."""
        table = NodeTable()
        for node in self.nodes:
            table.add_node(node)
        for pod in self.bound():
            table.add_pod(pod)
        table.refresh()
        return table

    def object_store(self) -> ObjectStore:
        """A new object store."""
        return ObjectStore(self.objects)

    world = deprecated_method("world", "object_store")

    def sources(self) -> dict[str, Object | None]:
        """Pod -> the object of the input that has its spec, where that is not the pod itself.

        As `origins`, and pods before they got defaults.
        """
        return {**self.as_read, **self.origins} if self.as_read else self.origins

    def bound(self) -> list[Pod]:
        """Pods that have a node and are not finished."""
        return [pod for pod in self.pods if pod.node_name and not pod.is_finished]

    def latest_time(self) -> datetime | None:
        """The time that stands for now: the latest that its objects show, None if they show
        none."""
        return latest_time(self.pods, (*self.nodes, *self.objects))

    def pending(self) -> list[Pod]:
        """Pending pods in arrival order.

        Sorted by creation time; pods without one come last, in the order of their files. Pods that
        are being deleted are left out.
        """
        waiting = (
            pod
            for pod in self.pods
            if not pod.node_name and not pod.is_finished and pod.metadata.deletion_timestamp is None
        )
        return sorted(waiting, key=lambda pod: pod.metadata.creation_timestamp or _LATEST)


def read_cluster(
    paths: str | Path | Iterable[str | Path],
    *,
    orphans: str = "pending",
    validate: str = "auto",
    keep_manifests: bool = False,
    trace_format: str = "",
    next_run: str = "",
) -> Cluster:
    """Read a cluster from manifests, dumps, traces, and directories of them.

    `-` is standard input. orphans: treatment of pods bound to nodes that are not in the input:
    `pending`, `ignore` or `error`. validate: `strict`, `warn` or `ignore` for all objects; `auto`:
    strict for objects that no API server has stored. keep_manifests: fill
    `Cluster.manifests`, which take several times the memory. trace_format: one of
    `stowplan.inputs.traces.trace_formats.FORMATS` for all files but YAML; "" recognises traces by
    their first line or name. next_run: a CronJob as NAMESPACE/NAME, or /NAME: where it has no pods
    that are not finished, those of its next run are created. Raises InputError.
    """
    named = _as_list(paths)
    if not named:
        raise InputError("cluster", "", "", "at least one path")
    check_word("orphans", orphans, ORPHAN_MODES)
    reading = _ClusterReader(ObjectValidator(validate), keep_manifests, trace_format, next_run)
    return reading.take_all(named).cluster(_names_of(named), orphans)


def read_objects(
    trees: Iterable[Tree],
    source: str,
    *,
    orphans: str = "pending",
    validate: str = "auto",
    keep_manifests: bool = False,
) -> Cluster:
    """The cluster of objects that are read already; see `read_cluster`. source: their name in
    errors. Raises InputError."""
    reading = _ClusterReader(ObjectValidator(validate), keep_manifests)
    for number, tree in enumerate(trees, start=1):
        reading.take_document(FileDocument(source, f"object {number}", tree))
    return reading.cluster(source, orphans)


def cluster_of(
    source: Cluster | str | Path | Iterable[str | Path], *, keep_manifests: bool = False
) -> Cluster:
    """The cluster, read with the defaults of `read_cluster` if it was not. Raises InputError."""
    if isinstance(source, Cluster):
        return source
    return read_cluster(source, keep_manifests=keep_manifests)


def read_addition(
    paths: str | Path | Iterable[str | Path], cluster: Cluster, *, validate: str = "auto"
) -> Cluster:
    """Manifests that are created in a cluster: only what they add, with `nodes` those of the
    cluster.

    Workloads are expanded, with the cluster's priority and storage classes. Raises InputError, also
    for an object that the cluster has already.
    """
    named = _as_list(paths)
    reading = _ClusterReader(ObjectValidator(validate), keep_manifests=False).take_all(named)
    named_text = _names_of(named)
    names = {(type(one), key_of(one)) for one in cluster.objects}
    for entry in reading.inventory.entries:
        one = entry.value
        if isinstance(one, Node):
            wanted = "pods and workloads; use --add-nodes for nodes"
            raise InputError(named_text, "", "a Node", wanted)
        if (type(one), key_of(one)) in names:
            raise InputError.at(entry.place, title(one), "already exists in the cluster")
    found = reading.cluster(named_text, "pending", cluster)
    # A claim of the cluster may get its default class in the expansion: it is not new.
    added = [one for one in found.objects if (type(one), key_of(one)) not in names]
    keys = {pod.key for pod in cluster.pods}
    for pod in found.pods:
        if pod.key in keys:
            raise InputError.at(named_text, title(pod), "already exists in the cluster")
    if not found.pods and not added:
        raise InputError(named_text, "", "no pods", "pods, or workloads that create pods")
    return msgspec.structs.replace(found, objects=added)


def read_workload(
    paths: str | Path | Iterable[str | Path], cluster: Cluster, *, validate: str = "auto"
) -> Cluster:
    """Read pods and workloads that are to run on `cluster`, as a Cluster without nodes.

    PriorityClasses, StorageClasses and other
    objects that they refer to are looked for in the files first, then in `cluster`; `objects` has
    those of the files and those that controllers make. DaemonSets are left out, with a note. Raises
    InputError.
    """
    named = _as_list(paths)
    reading = _ClusterReader(ObjectValidator(validate), keep_manifests=False)
    return reading.take_all(named).workload(_names_of(named), cluster)


def _as_list(paths: str | Path | Iterable[str | Path]) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _names_of(paths: Iterable[str | Path]) -> str:
    return ", ".join(map(str, paths))


class _ClusterReader:
    """Collects the objects of files."""

    def __init__(
        self,
        validation: ObjectValidator,
        keep_manifests: bool,
        trace_format: str = "",
        next_run: str = "",
    ) -> None:
        self.inventory = ManifestInventory()
        self.validation = validation
        self.imports = ImportedJobs(validation)
        self.trace = OpenBReader()
        self.traces = TraceFiles(trace_format)
        self.notes: list[str] = []
        self.inputs: dict[str, str] = {}
        self.recordings = SimulatorRecordings()
        self.next_run = NextRun(next_run)
        self.manifests: list[Tree] | None = [] if keep_manifests else None
        self.kueue_objects: list[Tree] = []
        self.queued: list[Tree] = []
        self.volcano_jobs: list[Tree] = []
        self.job_sets: list[Tree] = []

    def take_all(self, paths: Iterable[str | Path]) -> _ClusterReader:
        """Add the files at paths; returns itself. Raises InputError."""
        for file in files_at(paths):
            self.take(file)
        self._add_traces()
        return self

    def take(self, file: InputFile) -> None:
        """Add a file; raises InputError."""
        self.inputs[file.source] = sha256(file.data).hexdigest()
        file = unzipped(file)
        if self.recordings.takes(file) or self.traces.take(file):
            return
        if _is_csv(file):
            self._take_csv(file)
            return
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            self.take_document(document)

    def take_document(self, document: FileDocument) -> None:
        """Add the objects of a document; raises InputError."""
        place = f"{document.source}: {document.place}"
        export = export_of(document.tree, place)
        tree = document.tree
        if export is not None:
            tree, notes = export
            self.notes += [note for note in notes if note not in self.notes]
        try:
            for item, path in items(tree):
                self._take_item(item, path, place)
        except DecodeError as problem:
            raise InputError.at(place, problem.path, problem.what) from None
        except RecursionError:
            raise InputError(
                document.source, document.place, "nested too deeply", "a Kubernetes object"
            ) from None

    def _take_item(self, item: Tree, path: str, place: str) -> None:
        """Add an object, at once or, of a dump that is a trace, when all files are read."""
        if self.traces.dump is None:
            self._add_item(item, path, place)
        else:
            self.traces.dump.add(item, path, place)

    def _add_item(self, item: Tree, path: str, place: str) -> None:
        """Add an object; its errors are collected, so that reading continues."""
        item = self.validation.without_nulls(item)
        found = self.validation.of(item, path)
        try:
            group = group_of(item, path)
            is_volcano_job = IMPORTERS.get((group, item["kind"])) == "volcano_job"
            if (group == KUEUE_GROUP or is_volcano_job) and not (found and found.is_fatal):
                found = self.validation.unreadable(item, path) or found
            if group == KUEUE_GROUP:
                self.kueue_objects.append(item)
            elif queue_name_of(item):
                self.queued.append(item)
            if self.imports.takes(item, path):
                if is_volcano_job:
                    self.volcano_jobs.append(item)
                if group in JOB_SET_GROUPS and item["kind"] != "Notebook":
                    self.job_sets.append(item)
                self.imports.add(item, path, place, len(self.inventory.entries), found)
                return
            if not self.next_run.takes(item, path, place):
                self.inventory.add_item(item, path, place)
                if self.manifests is not None:
                    self.manifests.append(item)
        except DecodeError as problem:
            self.validation.report_unreadable(place, problem, found)
        else:
            self.validation.report(place, found)

    def _take_csv(self, file: InputFile) -> None:
        if CARDS_COUNTED not in self.notes:
            self.notes.append(CARDS_COUNTED)
        for place, found in self.trace.objects(decoded(file.data, file.source), file.source):
            try:
                self.inventory.add(found, f"{file.source}: {place}")
            except DecodeError as problem:
                raise InputError.at(file.source, f"{place}: {problem.path}", problem.what) from None

    def _add_traces(self) -> None:
        """Add the objects of traces and of recordings, once all files are read. Raises
        InputError."""
        for recorded in self.recordings.items():
            try:
                self._take_item(recorded.tree, "", recorded.place)
            except DecodeError as problem:
                raise InputError.at(recorded.place, problem.path, problem.what) from None
        self.notes += self.recordings.notes()
        queues = TenantQueues(self.inventory.all(Queue), self.inventory.all(KaiQueueObject))
        for place, found in self.traces.objects():
            try:
                self.inventory.add(queues.named_by(found), place)
            except DecodeError as problem:
                raise InputError.at(place, problem.path, problem.what) from None
        for item, path, place in self.traces.dump.items() if self.traces.dump else ():
            self._add_item(item, path, place)
        self.notes += self.traces.notes()

    def _look_up_in(self, there: Iterable[Object]) -> None:
        """Add what the files may refer to and do not have: objects of a cluster.

        Workloads have their pods already, and would be expanded again.
        """
        for one in there:
            if not isinstance(one, Workload) and not self.inventory.has(one):
                self.inventory.add(one, "the cluster")

    def cluster(self, named: str, orphans: str, beside: Cluster | None = None) -> Cluster:
        """The cluster; raises InputError for invalid objects or no nodes. beside: whose nodes and
        objects the files refer to."""
        there = () if beside is None else (*beside.nodes, *beside.objects)
        found = self._read(there)
        nodes = list(self.inventory.all(Node))
        if not nodes:
            got = f"no nodes ({count_of(len(found.pods), 'pod')})"
            raise InputError(named, "", got, "a cluster with at least one node")
        names = {node.name for node in nodes}
        pods, objects = with_bind_requests(found.pods, found.objects, names)
        placed = resolve_orphans(pods, names, orphans)
        return msgspec.structs.replace(
            found,
            nodes=nodes,
            pods=placed.pods,
            objects=objects,
            notes=[*found.notes, *placed.notes],
            orphans=placed.orphans,
            manifests=self.manifests or [],
            kueue_objects=self.kueue_objects,
            queued=self.queued,
            volcano_jobs=self.volcano_jobs,
            job_sets=self.job_sets,
        )

    def workload(self, named: str, cluster: Cluster) -> Cluster:
        """See `read_workload`."""
        found = self._read(cluster.objects)
        if not found.pods:
            raise InputError(named, "", "no pods", "pods, or workloads that have pods")
        there = {id(one) for one in cluster.objects}
        notes = with_unread_queues(found.notes, cluster.kueue_objects)
        n_daemons = sum(1 for _ in self.inventory.all(DaemonSet))
        if n_daemons:
            notes.append(f"{count_of(n_daemons, 'DaemonSet')} left out: a pod runs on every node")
        objects = [one for one in found.objects if id(one) not in there]
        return msgspec.structs.replace(
            found,
            objects=objects,
            notes=notes,
            kueue_objects=self.kueue_objects,
            queued=self.queued,
            job_sets=self.job_sets,
        )

    def _read(self, there: Iterable[Object]) -> Cluster:
        """What was read, expanded and admitted, without its nodes; raises InputError for invalid
        objects. there: objects that the files may refer to."""
        known = {id(entry.value) for entry in self.inventory.entries}
        try:
            self.imports.expand(self.inventory)
            known |= self._add_next_run()
            self._look_up_in(there)
            self.validation.finish()
            population = expand_workloads(self.inventory)
        except DecodeError as problem:
            raise InputError.at("", "", problem) from None
        admitted = self._admitted(population.pods)
        return Cluster(
            nodes=[],
            pods=admitted.pods,
            objects=population.objects,
            ignored=dict(sorted(self.inventory.ignored.items())),
            notes=[*self.notes, *self.validation.notes, *self.imports.notes(), *admitted.notes],
            inputs=self.inputs,
            not_created=admitted.refused,
            origins=self._origins(population, known),
            as_read=admitted.as_read,
        )

    def _add_next_run(self) -> set[int]:
        """Add the Job of a CronJob's next run; its id."""
        run, inventory = self.next_run, self.inventory
        cron_job = run.cron_job
        if cron_job is None or run.has_pods(inventory.all(Pod)):
            return set()
        self.validation.finish()
        run.add_to(inventory)
        self.notes.append(f"pods of the next run of CronJob {cron_job.key}, as if it were due now")
        return {id(inventory.entries[-1].value)}

    def _origins(self, population: ExpandedCluster, known: set[int]) -> dict[str, Object | None]:
        """`Cluster.origins`. known: ids of the objects that were read."""
        made = population.origins.items()
        origins = {key: self._origin(one) if id(one) in known else None for key, one in made}
        if len(known) < len(self.inventory.entries):
            pods = (e.value for e in self.inventory.entries if isinstance(e.value, Pod))
            origins.update((pod.key, None) for pod in pods if id(pod) not in known)
        return origins

    def _origin(self, one: Object) -> Object:
        """The object of the input that an object was made from."""
        cron_job = self.next_run.cron_job
        owner = one.controller if isinstance(one, Job) else None
        is_run = owner is not None and owner.kind == "CronJob" and one.name.endswith(NAME_SUFFIX)
        return cron_job if cron_job is not None and is_run else one

    def _admitted(self, pods: list[Pod]) -> AdmissionResult:
        """The pods after admission."""
        if not any(next(self.inventory.all(kind), None) for kind in (LimitRange, ResourceQuota)):
            return AdmissionResult(pods)
        # Imported here: the API server's tables load slower than most inputs are read.
        from stowplan.inputs.admission.pod_admission import admit

        return admit(pods, self.inventory)


def _is_csv(file: InputFile) -> bool:
    """True for a CSV file, by name or else by its first line."""
    if file.suffix in (".yaml", ".yml", ".json"):
        return False
    first = file.data[:200].lstrip(b"\xef\xbb\xbf").split(b"\n")[0]
    return file.suffix == CSV or first.startswith((b"sn,", b"name,"))
