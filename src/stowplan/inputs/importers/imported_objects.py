"""Shared parts of importers: lookups, created objects, and unmodelled fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stowplan.config.strict_decoder import format_value
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.manifests import ManifestInventory, decode_object, quantity_error
from stowplan.inputs.orphaned_pods import NAMED_MAX
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, Queue
from stowplan.objects.quantity import Quantity

Tree = dict[str, Any]

GROUP_VERSION = "scheduling.volcano.sh/v1beta1"
LOCAL_QUEUE, CLUSTER_QUEUE = "LocalQueue.kueue.x-k8s.io", "ClusterQueue.kueue.x-k8s.io"
KUEUE_GROUP = "kueue.x-k8s.io"
QUEUE_LABEL = f"{KUEUE_GROUP}/queue-name"
JOB_SET_GROUPS = ("jobset.x-k8s.io", "trainer.kubeflow.org", "kubeflow.org")
"""Groups of JobSets, of the TrainJobs that make them, and of other jobs of Kubeflow."""
KUEUE_NOTE = "Kueue: workloads with a queue-name count as admitted"
"""How the note begins where Kueue does not decide."""
REPLICAS_MAX = 100_000


class Imported(NamespacedObject, frozen=True):
    """An imported object: the fields that all importers read."""


class Condition(Value, frozen=True):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""


class ImportLookup:
    """Lookups of importers in the input, and their remarks.

    sources: (`KIND.GROUP`, key) -> tree of an imported or looked-up object.
    """

    def __init__(
        self, inventory: ManifestInventory, sources: Mapping[tuple[str, str], Tree]
    ) -> None:
        self.inventory = inventory
        self.sources = sources
        self.remarks: dict[str, None] = {}
        self._owned = {
            (owner.kind, f"{group.namespace}/{owner.name}"): group.name
            for group in inventory.all(PodGroup)
            for owner in group.metadata.owner_references
        }
        self._queues = {queue.name for queue in inventory.all(Queue)}

    def has_group(self, key: str) -> bool:
        """True when a PodGroup is in the input."""
        return self.has(PodGroup, key)

    def is_queued(self, tree: Tree) -> bool:
        """True for a workload with Kueue's label; Kueue suspends workloads until admission."""
        return bool(mapping(tree["metadata"], "labels").get(QUEUE_LABEL))

    def has(self, kind: type[Object], key: str) -> bool:
        """True when an object is in the input."""
        return self.inventory.find(kind, key) is not None

    def group_of(self, kind: str, key: str) -> str:
        """The PodGroup in the input that belongs to a job, "" for none."""
        return self._owned.get((kind, key), "")

    def remark(self, text: str) -> None:
        """Add a remark, once."""
        self.remarks[text] = None

    def queue(self, meta: Tree, namespace: str) -> tuple[str, list[Tree]]:
        """(queue of a workload by Kueue's label or "", Queue objects to create)."""
        name = mapping(meta, "labels").get(QUEUE_LABEL, "")
        if not name:
            return "", []
        # Imported here: most inputs have nothing of Kueue.
        from stowplan.config.queue_models.scheduler_hints import OPTIONS

        self.remark(
            f"{KUEUE_NOTE} (suspend is ignored); quota, flavors, borrowing, preemption and"
            f" topologies of ClusterQueues count with {OPTIONS['kueue']}"
        )
        local = self.sources.get((LOCAL_QUEUE, f"{namespace}/{name}"), {})
        queue = str(mapping(local, "spec").get("clusterQueue") or "")
        if not queue:
            self.remark(_no_local_queue(f"{namespace}/{name}"))
            return "", []
        if queue in self._queues:
            return queue, []
        self._queues.add(queue)
        return queue, [_queue(queue, self.sources.get((CLUSTER_QUEUE, queue), {}))]


def _no_local_queue(key: str) -> str:
    return f"LocalQueue {key} is not in the input: default queue"


def with_unread_queues(notes: Iterable[str], kueue_objects: Iterable[Tree]) -> list[str]:
    """Notes of files whose jobs run on a cluster. kueue_objects: of the cluster; its LocalQueues
    are in the input, and count only where Kueue decides."""
    from stowplan.config.queue_models.scheduler_hints import OPTIONS

    keys = [
        f"{namespace_of(one)}/{one['metadata'].get('name')}"
        for one in kueue_objects
        if one["kind"] == "LocalQueue"
    ]
    unread = {
        _no_local_queue(
            key
        ): f"LocalQueue {key} is read with {OPTIONS['kueue']} only: default queue"
        for key in keys
    }
    return [unread.get(note, note) for note in notes]


class FlavorResource(Value, frozen=True):
    """An entry of a flavor's `resources`."""

    name: str = ""
    nominal_quota: Quantity = 0


class Flavor(Value, frozen=True):
    """An entry of `flavors`."""

    resources: tuple[FlavorResource, ...] = ()


class ResourceGroup(Value, frozen=True):
    """An entry of `spec.resourceGroups`."""

    flavors: tuple[Flavor, ...] = ()


class ClusterQueueSpec(Value, frozen=True):
    """`spec` of a ClusterQueue."""

    cohort: str = ""
    cohort_name: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()


class ClusterQueue(Object, frozen=True):
    """The fields of a ClusterQueue that are read."""

    spec: ClusterQueueSpec = ClusterQueueSpec()


def _queue(name: str, tree: Tree) -> Tree:
    """The Queue for a ClusterQueue; outside of cohorts its quotas are the capability."""
    found = decode_object(tree, ClusterQueue, "").spec if tree else ClusterQueueSpec()
    quotas: dict[str, list[Quantity]] = {}
    for i, group in enumerate(found.resource_groups):
        for j, flavor in enumerate(group.flavors):
            for k, resource in enumerate(flavor.resources):
                error = quantity_error(resource.nominal_quota)
                if error:
                    path = f"spec.resourceGroups[{i}].flavors[{j}].resources[{k}].nominalQuota"
                    raise DecodeError(error, f"ClusterQueue {name}: {path}")
                quotas.setdefault(resource.name, []).append(resource.nominal_quota)
    # Quotas of several flavors cannot be summed, since the flavor of a pod is not known.
    only = {resource: amounts[0] for resource, amounts in quotas.items() if len(amounts) == 1}
    spec: Tree = {"weight": 1}
    if only and not found.cohort and not found.cohort_name:
        spec["capability"] = only
    meta = {"name": name}
    return {"apiVersion": GROUP_VERSION, "kind": "Queue", "metadata": meta, "spec": spec}


def mapping(tree: Tree, name: str) -> Tree:
    """A field with a mapping, empty when absent; raises DecodeError."""
    value = tree.get(name)
    if value is not None and not isinstance(value, dict):
        raise DecodeError(mismatch(format_value(value), "a mapping"), name)
    return value or {}


def owner_of(tree: Tree) -> list[Tree]:
    """Owner references of objects that a controller creates."""
    meta = tree["metadata"]
    return [
        {
            "apiVersion": tree["apiVersion"],
            "kind": tree["kind"],
            "name": meta["name"],
            "uid": meta.get("uid") or "",
            "controller": True,
        }
    ]


def pod_group(
    tree: Tree, name: str, min_member: int, *, queue: str = "", priority_class: str = ""
) -> Tree:
    """The PodGroup of a job."""
    meta = tree["metadata"]
    spec: Tree = {"minMember": min_member}
    spec |= {"queue": queue} if queue else {}
    spec |= {"priorityClassName": priority_class} if priority_class else {}
    made = {"name": name, "namespace": namespace_of(tree), "ownerReferences": owner_of(tree)}
    created = meta.get("creationTimestamp")
    made |= {"creationTimestamp": created} if created else {}
    return {"apiVersion": GROUP_VERSION, "kind": "PodGroup", "metadata": made, "spec": spec}


def in_group(given: Tree, group: str) -> Tree:
    """Metadata of a template with the annotation for the PodGroup."""
    annotations = {**mapping(given, "annotations"), GROUP_ANNOTATIONS[0]: group}
    return {**given, "annotations": annotations}


def pod_of(tree: Tree, name: str, template: Tree, labels: Tree, group: str) -> Tree:
    """A pod of a job, from a template."""
    meta = in_group(mapping(template, "metadata"), group)
    made = {
        "name": name,
        "namespace": namespace_of(tree),
        "labels": {**mapping(meta, "labels"), **labels},
        "annotations": meta["annotations"],
        "ownerReferences": owner_of(tree),
    }
    created = tree["metadata"].get("creationTimestamp")
    made |= {"creationTimestamp": created} if created else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": mapping(template, "spec")}


def namespace_of(tree: Tree) -> str:
    """The namespace of an object."""
    return str(tree["metadata"].get("namespace") or "default")


def key_of(tree: Tree) -> str:
    """`NAMESPACE/NAME` of an object."""
    return f"{namespace_of(tree)}/{tree['metadata']['name']}"


def queue_name_of(tree: Tree) -> str:
    """The LocalQueue that an object's label names, "" for none."""
    meta = tree.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    name = labels.get(QUEUE_LABEL) if isinstance(labels, dict) else None
    return name if isinstance(name, str) else ""


def is_over(conditions: Iterable[Condition], *types: str) -> bool:
    """True when one of these conditions has status True."""
    return any(one.type in types and one.status == "True" for one in conditions)


def used(tree: Any, paths: Iterable[str]) -> list[str]:
    """The paths, such as `spec.tasks[].policies`, that are set in an object."""
    return [path for path in paths if _has(tree, path.split("."))]


def _has(tree: Any, steps: list[str]) -> bool:
    if not steps:
        return tree not in (None, {}, [], "")
    step = steps[0]
    inner = tree.get(step.removesuffix("[]")) if isinstance(tree, dict) else None
    if not step.endswith("[]"):
        return _has(inner, steps[1:])
    return isinstance(inner, list) and any(_has(one, steps[1:]) for one in inner)


def list_names(names: Iterable[str]) -> str:
    """Names for a note, abbreviated after `NAMED_MAX`."""
    found = list(names)
    more = len(found) - NAMED_MAX
    return ", ".join(found[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")
