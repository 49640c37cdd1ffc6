"""What a changed pod means for pending pods where no hint decides.

Source: kube-scheduler v1.22, internal/queue/scheduling_queue.go isPodUpdated; v1.36,
backend/queue/scheduling_queue.go getUnschedulablePodsWithCrossTopologyTerm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.columns.pods.podterms import terms_of
from stowplan.framework.object_store import ObjectStore
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.queue.pod_record import PodRecord


def is_helped_across_nodes(
    entry: PodRecord, pod: Pod, namespace_labels: Mapping[str, str], plugins: frozenset[str]
) -> bool:
    """True when one of `plugins`, which declare `cross_node`, rejected the entry, or its required
    affinity matches `pod`."""
    if not plugins.isdisjoint(entry.refused_by) and pod.namespace == entry.pod.namespace:
        return True
    wanted = terms_of(entry.pod).required_affinity
    return any(weighted.term.matches(pod, namespace_labels) for weighted in wanted)


def helped_across_nodes(
    entries: Iterable[PodRecord], pod: Pod, objects: ObjectStore, plugins: frozenset[str]
) -> list[PodRecord]:
    """The entries that a bound pod may help on any node. objects: have the namespaces."""
    namespace = objects.find(Namespace, pod.namespace)
    labels = {} if namespace is None else namespace.labels
    return [one for one in entries if is_helped_across_nodes(one, pod, labels, plugins)]


def is_updated(old: Pod, new: Pod) -> bool:
    """True when a field changed that can matter without hints.

    These are all fields but the status and the resource version; of the status only the names of
    generated claims.
    """
    return (
        old.spec != new.spec
        or _without_version(old) != _without_version(new)
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
    )


def _without_version(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    return (
        meta.name,
        meta.namespace,
        meta.uid,
        meta.labels,
        meta.annotations,
        meta.owner_references,
        meta.deletion_timestamp,
    )
