"""Workload expansion: the pods of a cluster, including those that controllers would create.

Only missing pods of a controller are created. Names are NAME-<index>; labels and owner references
are set as by the controllers, so that selectors match them.

Differs: pods that match a controller's selector and have no owner are not adopted. The hash in
names and labels differs. Pods of a StatefulSet are created all at once. `matchLabelKeys` of pod
affinity are not merged into the selectors; the API server has done so for pods that it stores.

Source: Kubernetes v1.36, controllers for Deployment, ReplicaSet, ReplicationController,
StatefulSet, DaemonSet and Job.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stowplan.apis.apps.daemon_pods import (
    pin_to_node,
    should_run_on,
    target_node,
    with_daemon_tolerations,
)
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.manifests import (
    JobControllerFields,
    ManifestEntry,
    ManifestInventory,
    StatefulSetControllerFields,
    Workload,
    title,
)
from stowplan.inputs.object_defaults import with_name_label
from stowplan.inputs.workloads.device_claims import published_slices, with_claims
from stowplan.inputs.workloads.priority_classes import PriorityClasses, UnknownPriorityClassError
from stowplan.inputs.workloads.volume_claims import ClaimBuilder
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.limits import LimitRange, ResourceQuota
from stowplan.objects.meta import NamespacedObject, Object, ObjectMeta, OwnerReference, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.storage import PersistentVolumeClaim, StorageClass
from stowplan.objects.volume import PVCTemplate, PVCVolumeSource, Volume
from stowplan.objects.workload import (
    HASH_LABEL,
    DaemonSet,
    Deployment,
    Job,
    Namespace,
    PodTemplate,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    WorkloadSpec,
)

R = TypeVar("R", bound=Value)

REPLICAS_MAX = 1_000_000
REVISION_LABEL = "controller-revision-hash"
REVISION = "deployment.kubernetes.io/revision"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"

_API_VERSIONS: Mapping[type[Object], str] = {
    Pod: "v1",
    ReplicationController: "v1",
    Job: "batch/v1",
}


class ExpandedCluster(msgspec.Struct):
    """Pods and objects after expansion.

    pods: in the order of the files, with priority; created pods in place of their controller.
    objects: all other objects except nodes, including those that controllers create. origins:
    created pod -> the controller of the inventory whose template it has.
    """

    pods: list[Pod]
    objects: list[Object]
    n_created: int = 0
    origins: dict[str, Object] = {}


def expand_workloads(inventory: ManifestInventory) -> ExpandedCluster:
    """Expand the controllers of an inventory; raises DecodeError with place, object and path."""
    return _WorkloadExpander(inventory).run()


class _WorkloadExpander:
    """Runs each controller once on an inventory."""

    def __init__(self, inventory: ManifestInventory) -> None:
        self.inventory = inventory
        self.priorities = PriorityClasses(inventory.all(PriorityClass))
        self.claims = ClaimBuilder(inventory.all(StorageClass))
        self.nodes = list(inventory.all(Node))
        self.made: dict[tuple[type[Object], str], Object] = {}
        self.n_created = 0
        self.origins: dict[str, Object] = {}
        self.pods_there = {pod.key for pod in inventory.all(Pod)}
        self.dependents: dict[tuple[str, str, str], list[Pod | ReplicaSet]] = {}
        there: list[Pod | ReplicaSet] = [*inventory.all(Pod), *inventory.all(ReplicaSet)]
        for dependent in there:
            owner = dependent.controller
            if owner is not None:
                key = (dependent.namespace, owner.kind, owner.name)
                self.dependents.setdefault(key, []).append(dependent)
        # Names of StatefulSet pods are fixed, so other controllers must not take them.
        self.names = set(self.pods_there)
        for entry in inventory.entries:
            if isinstance(entry.value, StatefulSet):
                self.names.update(self._of_set(entry.value, n) for n in _ordinals(entry))

    def run(self) -> ExpandedCluster:
        pods: list[Pod] = []
        others: list[Object] = []
        for entry in self.inventory.entries:
            found = entry.value
            if isinstance(found, Pod):
                pods.append(self._prioritised(found, entry))
                continue
            if isinstance(found, Workload):
                made = self._pods_of(entry)
                self.n_created += len(made)
                self._note_origins(entry.value, made)
                pods += made
            if isinstance(found, PersistentVolumeClaim):
                found = self.claims.classified(found)
            if not isinstance(found, Node | LimitRange | ResourceQuota):
                others.append(found)
        if any(node.metadata.annotations for node in self.nodes) or any(
            pod.spec.resource_claims for pod in pods
        ):
            pods = [self._claim_devices(pod) for pod in pods]
            self._publish_devices()
        for pod in pods:
            self._claim_ephemeral(pod)
        others += self.made.values()
        others += _namespaces(pods, self.inventory)
        return ExpandedCluster(pods, others, self.n_created, self.origins)

    def _note_origins(self, controller: Object, made: list[Pod]) -> None:
        """Record whose template the created pods have: of a Deployment its newest ReplicaSet's,
        where there is one."""
        origin: Object = controller
        if isinstance(controller, Deployment) and made:
            owner = made[0].controller
            key = f"{controller.namespace}/{owner.name if owner is not None else ''}"
            origin = self.inventory.find(ReplicaSet, key) or controller
        for pod in made:
            self.origins[pod.key] = origin

    def _pods_of(self, entry: ManifestEntry) -> list[Pod]:
        match entry.value:
            case Deployment():
                return self._of_deployment(entry, entry.value)
            case ReplicaSet() | ReplicationController():
                return self._of_replicas(entry, entry.value)
            case StatefulSet():
                return self._of_stateful_set(entry, entry.value)
            case DaemonSet():
                return self._of_daemon_set(entry, entry.value)
            case Job():
                return self._of_job(entry, entry.value)
        return []

    # Kinds of controllers.

    def _of_deployment(self, entry: ManifestEntry, deployment: Deployment) -> list[Pod]:
        """Missing pods, owned by the newest ReplicaSet or a new one."""
        sets = [rs for rs in self._owned_by(deployment) if isinstance(rs, ReplicaSet)]
        n_there = sum(len(self._active(rs)) for rs in sets)
        n_missing = max(replicas_of(entry) - n_there, 0)
        if not n_missing:
            return []
        newest = max(sets, key=_revision) if sets else self._replica_set(deployment)
        return self._alike(entry, newest, deployment.name, n_missing)

    def _replica_set(self, deployment: Deployment) -> ReplicaSet:
        template, selector = deployment.spec.template, deployment.spec.selector
        hashed = {HASH_LABEL: _hash(template)}
        labels = {**template.metadata.labels, **hashed}
        selected = LabelSelector(match_labels=labels)
        if selector is not None:
            selected = LabelSelector(
                match_labels={**selector.match_labels, **hashed},
                match_expressions=selector.match_expressions,
            )
        made = ReplicaSet(
            metadata=ObjectMeta(
                name=f"{deployment.name}-{hashed[HASH_LABEL]}",
                namespace=deployment.namespace,
                labels=labels,
                owner_references=(_reference(deployment),),
            ),
            spec=WorkloadSpec(
                replicas=deployment.spec.replicas,
                selector=selected,
                template=replace(template, metadata=replace(template.metadata, labels=labels)),
            ),
        )
        self.made[ReplicaSet, made.key] = made
        return made

    def _of_replicas(
        self, entry: ManifestEntry, controller: ReplicaSet | ReplicationController
    ) -> list[Pod]:
        owner = controller.controller
        if owner is not None and owner.kind == "Deployment":
            above = self.inventory.find(Deployment, f"{controller.namespace}/{owner.name}")
            # The Deployment determines the number of replicas.
            if above is not None and _is_same_owner(owner, above):
                return []
        n_missing = max(replicas_of(entry) - len(self._active(controller)), 0)
        return self._alike(entry, controller, controller.name, n_missing)

    def _of_stateful_set(self, entry: ManifestEntry, controller: StatefulSet) -> list[Pod]:
        template = controller.spec.template
        claims = _rest(entry, StatefulSetControllerFields).spec.volume_claim_templates
        revision = _hash(template)
        pods = []
        for ordinal in _ordinals(entry):
            if self._of_set(controller, ordinal) in self.pods_there:
                continue
            name = f"{controller.name}-{ordinal}"
            labels = {
                **template.metadata.labels,
                REVISION_LABEL: revision,
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
            }
            spec = template.spec
            if claims:
                spec = self._with_claims(spec, claims, controller, name)
            pods.append(self._pod(entry, name, controller, labels, spec))
        return pods

    def _with_claims(
        self, spec: PodSpec, claims: tuple[PVCTemplate, ...], owner: StatefulSet, pod: str
    ) -> PodSpec:
        """The spec with a volume per claim template; creates missing claims."""
        volumes = {volume.name: volume for volume in spec.volumes}
        for claim in claims:
            name = f"{claim.metadata.name}-{pod}"
            use = PVCVolumeSource(claim_name=name)
            volumes[claim.metadata.name] = Volume(
                name=claim.metadata.name, persistent_volume_claim=use
            )
            self._make_claim(owner.namespace, name, claim)
        return replace(spec, volumes=tuple(volumes.values()))

    def _of_daemon_set(self, entry: ManifestEntry, controller: DaemonSet) -> list[Pod]:
        """A pod for each eligible node without one."""
        template = controller.spec.template
        spec = with_daemon_tolerations(template.spec)
        labels = {**template.metadata.labels, REVISION_LABEL: _hash(template)}
        there = {target_node(pod) for pod in self._active(controller)}
        nodes = [
            node for node in self.nodes if node.name not in there and should_run_on(spec, node)
        ]
        names = self._free_names(controller, controller.name, len(nodes))
        return [
            self._pod(entry, name, controller, labels, pin_to_node(spec, node))
            for name, node in zip(names, nodes, strict=True)
        ]

    def _of_job(self, entry: ManifestEntry, job: Job) -> list[Pod]:
        """Missing pods up to the parallelism."""
        progress = _rest(entry, JobControllerFields).status
        is_over = any(
            c.type in ("Complete", "Failed") and c.status == "True" for c in progress.conditions
        )
        if job.spec.suspend or is_over:
            return []
        parallelism = _count(job.spec.parallelism, entry, "spec.parallelism")
        there = [pod for pod in self._owned_by(job) if isinstance(pod, Pod)]
        n_succeeded = max(progress.succeeded, sum(pod.status.phase == "Succeeded" for pod in there))
        active = self._active(job)
        if job.spec.completions is None and job.spec.parallelism is not None:
            # A work queue Job: after the first success no pods are created.
            n_wanted = 0 if n_succeeded else parallelism
        else:
            completions = _count(job.spec.completions, entry, "spec.completions")
            n_wanted = min(parallelism, max(completions - n_succeeded, 0))
        n_missing = max(n_wanted - len(active), 0)
        labels = {
            **job.spec.template.metadata.labels,
            "job-name": job.name,
            "batch.kubernetes.io/job-name": job.name,
        }
        if job.spec.completion_mode != "Indexed":
            names = self._free_names(job, job.name, n_missing)
            return [self._pod(entry, name, job, labels, job.spec.template.spec) for name in names]
        return self._indexed(entry, job, labels, n_missing, there)

    def _indexed(
        self,
        entry: ManifestEntry,
        job: Job,
        labels: dict[str, str],
        n_missing: int,
        there: list[Pod],
    ) -> list[Pod]:
        """Pods of the lowest indexes that are neither completed nor running."""
        busy = {pod.metadata.annotations.get(JOB_INDEX) for pod in there if _is_controlled(pod)}
        done = _indexes(entry)
        pods: list[Pod] = []
        for index in range(job.spec.completions or 0):
            if len(pods) == n_missing:
                break
            if str(index) in busy or any(first <= index <= last for first, last in done):
                continue
            (name,) = self._free_names(job, f"{job.name}-{index}", 1)
            marked = {**labels, JOB_INDEX: str(index)}
            pods.append(self._pod(entry, name, job, marked, job.spec.template.spec))
        return pods

    # Helpers of all controllers.

    def _alike(
        self,
        entry: ManifestEntry,
        owner: ReplicaSet | ReplicationController,
        stem: str,
        n_pods: int,
    ) -> list[Pod]:
        """Pods that differ in their names only."""
        template = owner.spec.template
        names = self._free_names(owner, stem, n_pods)
        return [
            self._pod(entry, name, owner, template.metadata.labels, template.spec) for name in names
        ]

    def _pod(
        self,
        entry: ManifestEntry,
        name: str,
        owner: NamespacedObject,
        labels: dict[str, str],
        spec: PodSpec,
    ) -> Pod:
        meta = ObjectMeta(
            name=name,
            namespace=owner.namespace,
            labels=labels,
            annotations=_template(entry).metadata.annotations,
            owner_references=(_reference(owner),),
        )
        return self._prioritised(Pod(metadata=meta, spec=spec), entry)

    def _prioritised(self, pod: Pod, entry: ManifestEntry) -> Pod:
        try:
            spec = self.priorities.resolved(pod.spec)
        except UnknownPriorityClassError as problem:
            inside = "spec" if isinstance(entry.value, Pod) else "spec.template.spec"
            raise _decode_error(entry, f"{inside}.priorityClassName", str(problem)) from None
        return pod if spec is pod.spec else replace(pod, spec=spec)

    def _free_names(self, owner: NamespacedObject, stem: str, n_names: int) -> list[str]:
        """STEM-0, STEM-1 and so on, without names in use."""
        names: list[str] = []
        index = 0
        while len(names) < n_names:
            key = f"{owner.namespace}/{stem}-{index}"
            if key not in self.names:
                self.names.add(key)
                names.append(f"{stem}-{index}")
            index += 1
        return names

    def _of_set(self, controller: StatefulSet, ordinal: int) -> str:
        """Key of a StatefulSet's pod."""
        return f"{controller.namespace}/{controller.name}-{ordinal}"

    def _owned_by(self, owner: NamespacedObject) -> Iterator[Pod | ReplicaSet]:
        key = (owner.namespace, type(owner).__name__, owner.name)
        for dependent in self.dependents.get(key, ()):
            reference = dependent.controller
            if reference is not None and _is_same_owner(reference, owner):
                yield dependent

    def _active(self, owner: NamespacedObject) -> list[Pod]:
        """The pods that a controller counts as active."""
        return [
            pod for pod in self._owned_by(owner) if isinstance(pod, Pod) and _is_controlled(pod)
        ]

    def _claim_ephemeral(self, pod: Pod) -> None:
        """Create the claims of a pod's ephemeral volumes."""
        for volume in pod.spec.volumes:
            claim = volume.ephemeral.volume_claim_template if volume.ephemeral else None
            if claim is not None:
                owner = replace(_reference(pod), uid=pod.uid)
                self._make_claim(pod.namespace, f"{pod.name}-{volume.name}", claim, owner)

    def _claim_devices(self, pod: Pod) -> Pod:
        """Create the claims of a pod from templates; returns the pod that names them."""
        pod, made = with_claims(pod, self.inventory)
        for claim in made:
            self.made[ResourceClaim, claim.key] = claim
        return pod

    def _publish_devices(self) -> None:
        """Create the slices of simulated drivers."""
        there = self.inventory.all(ResourceSlice)
        for one in published_slices(self.nodes, there):
            self.made[ResourceSlice, one.name] = one

    def _make_claim(
        self, namespace: str, name: str, template: PVCTemplate, owner: OwnerReference | None = None
    ) -> None:
        """Create a claim unless it exists."""
        key = f"{namespace}/{name}"
        if self.inventory.find(PersistentVolumeClaim, key) is None:
            made = self.claims.made(namespace, name, template, owner)
            self.made[PersistentVolumeClaim, key] = made


# Counts.


def replicas_of(entry: ManifestEntry) -> int:
    """`spec.replicas` of a controller, default 1; raises DecodeError."""
    spec = getattr(entry.value, "spec", None)
    return _count(getattr(spec, "replicas", None), entry, "spec.replicas")


def _count(number: int | None, entry: ManifestEntry, path: str) -> int:
    if number is None:
        return 1
    if not 0 <= number <= REPLICAS_MAX:
        expected = f"a whole number from 0 to {REPLICAS_MAX}"
        raise _decode_error(entry, path, mismatch(str(number), expected))
    return number


def _ordinals(entry: ManifestEntry) -> range:
    start = _rest(entry, StatefulSetControllerFields).spec.ordinals.start
    first = _count(start, entry, "spec.ordinals.start")
    return range(first, first + replicas_of(entry))


def _indexes(entry: ManifestEntry) -> list[tuple[int, int]]:
    """`completedIndexes` of a Job, such as `0,2-4`, as (first, last)."""
    text = _rest(entry, JobControllerFields).status.completed_indexes
    if text and not re.fullmatch(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", text):
        what = mismatch(repr(text[:60]), "indexes such as 0,2-4")
        raise _decode_error(entry, "status.completedIndexes", what)
    spans = (part.partition("-") for part in text.split(",") if part)
    return [(int(first), int(last or first)) for first, _, last in spans]


def _revision(controller: ReplicaSet) -> tuple[int, int]:
    """Sort key of ReplicaSets: revision, then replicas."""
    text = controller.metadata.annotations.get(REVISION, "")
    return int(text[:18]) if text.isdecimal() else 0, controller.spec.replicas or 0


# Owners.


def _reference(owner: Object) -> OwnerReference:
    return OwnerReference(
        api_version=_API_VERSIONS.get(type(owner), "apps/v1"),
        kind=type(owner).__name__,
        name=owner.name,
        uid=owner.metadata.uid,
        controller=True,
    )


def _is_same_owner(reference: OwnerReference, owner: Object) -> bool:
    """False when the reference has the uid of another object of that name."""
    uid = owner.metadata.uid
    return not uid or not reference.uid or reference.uid == uid


def _is_controlled(pod: Pod) -> bool:
    return not pod.is_finished and pod.metadata.deletion_timestamp is None


# Namespaces.


def _namespaces(pods: list[Pod], inventory: ManifestInventory) -> list[Namespace]:
    """Namespaces of pods that are not in the input."""
    used = dict.fromkeys(pod.namespace for pod in pods)
    return [
        with_name_label(Namespace(metadata=ObjectMeta(name=name)))
        for name in used
        if inventory.find(Namespace, name) is None
    ]


# Entries.


def _rest(entry: ManifestEntry, kind: type[R]) -> R:
    """The fields that only the controller reads, or defaults."""
    return entry.rest if isinstance(entry.rest, kind) else kind()


def _template(entry: ManifestEntry) -> PodTemplate:
    assert isinstance(entry.value, Workload), entry
    return entry.value.spec.template


def _decode_error(entry: ManifestEntry, path: str, what: str) -> DecodeError:
    return DecodeError(what, f"{entry.place}: {title(entry.value)}: {path}")


def _hash(template: PodTemplate) -> str:
    """Hash of a template, 10 hex digits."""
    text = msgspec.json.encode(template, order="sorted")
    return hashlib.sha256(text).hexdigest()[:10]
