"""Which nodes a pod of a KAI-Scheduler session may go to apart from amounts: node selector and
affinity, taints, host ports, required affinity to pods, and volumes (`kai_volumes.py`).

Differs: namespace selectors of affinity terms are not looked at; a term without namespaces is about
the pod's own. KAI also keeps a pod waiting while a ConfigMap that it requires is missing; to watch
all of a cluster's needs rights and memory, and kubelets hold such a pod back.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask
from stowplan.objects.pod import Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import label_selector_matches
from stowplan.objects.taints import is_untolerated
from stowplan.plugins.node_affinity.node_selector import matches_node_selector_and_affinity

FORBIDDING = frozenset({"NoSchedule", "NoExecute"})


def fits_rules(session: KaiSession, task: KaiTask, node: KaiNode) -> bool:
    """Whether a pod may go to a node, beside the pods that are on nodes now."""
    return (
        fits_node_rules(session, task, node)
        and node.has_ports_for(task)
        and _fits_pods(session, task, node)
        and not (task.has_volumes and session.volumes.refusal(task, node))
    )


def fits_node_rules(session: KaiSession, task: KaiTask, node: KaiNode) -> bool:
    """Whether a pod may go to a node, whatever is on it. session: makes no difference."""
    if not matches_node_selector_and_affinity(task.pod, node.node.labels, node.name):
        return False
    return not any(
        is_untolerated(taint, task.pod.tolerations, FORBIDDING) for taint in node.node.taints
    )


def _fits_pods(session: KaiSession, task: KaiTask, node: KaiNode) -> bool:
    affinity = task.pod.spec.affinity
    wanted = _terms(affinity.pod_affinity if affinity else None)
    unwanted = _terms(affinity.pod_anti_affinity if affinity else None)
    if not all(_has_match(session, task, node, term) for term in wanted):
        return False
    if any(
        _matches(term, task.pod, other)
        for term in unwanted
        for other in _pods_near(session, node, term)
    ):
        return False
    return not any(
        _matches(term, other.pod, task.pod) and _is_near(term, place, node)
        for place in _places_with_affinity(session)
        for other in place.affine.values()
        if other.pod.spec.affinity is not None
        for term in _terms(other.pod.spec.affinity.pod_anti_affinity)
    )


def _places_with_affinity(session: KaiSession) -> Iterable[KaiNode]:
    return (session.rows.nodes[row] for row in sorted(session.rows.affine))


def _terms(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required if affinity else ()


def _is_near(term: PodAffinityTerm, place: KaiNode, node: KaiNode) -> bool:
    value = node.node.labels.get(term.topology_key)
    return value is not None and place.node.labels.get(term.topology_key) == value


def _pods_near(session: KaiSession, node: KaiNode, term: PodAffinityTerm) -> Iterable[Pod]:
    """Pods on nodes of the same domain."""
    for place in session.nodes.values():
        if _is_near(term, place, node):
            for other in place.tasks.values():
                yield other.pod


def _matches(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    namespaces = term.namespaces or (owner.metadata.namespace,)
    return pod.metadata.namespace in namespaces and (
        term.label_selector is not None
        and label_selector_matches(term.label_selector, pod.metadata.labels)
    )


def _has_match(session: KaiSession, task: KaiTask, node: KaiNode, term: PodAffinityTerm) -> bool:
    if term.topology_key not in node.node.labels:
        return False
    if any(_matches(term, task.pod, other) for other in _pods_near(session, node, term)):
        return True
    # The first pod of those that want each other has none to go to.
    others = (other.pod for place in session.nodes.values() for other in place.tasks.values())
    return _matches(term, task.pod, task.pod) and not any(
        _matches(term, task.pod, other) for other in others
    )
