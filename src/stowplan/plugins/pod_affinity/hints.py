"""Queueing hints of InterPodAffinity: pods that are added or deleted, nodes that change domains.

Source: kube-scheduler v1.36, plugins/interpodaffinity/plugin.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.columns.pods.podterms import AffinityTerm, WeightedTerm, terms_of
from stowplan.framework.clusterevents import (
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint

Terms = tuple[AffinityTerm, ...]


def inter_pod_affinity_events() -> RegisteredEvents:
    """Events that InterPodAffinity registers."""
    of_pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
    return (
        on(POD, of_pods, after_pod_change),
        on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, after_node_change),
    )


def after_pod_change(pod: Pod, old: Pod | None, new: Pod | None) -> QueueingHint:
    """An assigned pod now matches the required affinity, or no longer the anti-affinity; or the pod
    itself has other labels."""
    if old is not None and new is not None and new.uid == pod.uid:
        return QUEUE_POD
    if not all(is_assigned_or_nominated(one) for one in (old, new) if one is not None):
        return QUEUE_SKIP
    near, away = _required_affinity(pod), _required_anti_affinity(pod)
    if near is None or away is None:
        return QUEUE_POD
    if old is None or new is None:
        if new is not None:
            return queueing_hint(_match_all(near, new))
        return _after_pod_deleted(away, pod, old)
    now_near = not _match_all(near, old) and _match_all(near, new)
    return queueing_hint(now_near or (_match_all(away, old) and not _match_all(away, new)))


def after_node_change(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
    """A node changed its domain of a term's topology: into one for affinity, out of one for
    anti-affinity.

    A new node always may help a pod with anti-affinity.
    """
    near, away = _required_affinity(pod), _required_anti_affinity(pod)
    if near is None:
        return QUEUE_POD
    for before, after in _topology_domains(near, old, new):
        if after is not None and before != after:
            return QUEUE_POD
    if away is None:
        return QUEUE_POD
    if old is None:
        return queueing_hint(bool(away))
    moves = _topology_domains(away, old, new)
    return queueing_hint(any(before is not None and before != after for before, after in moves))


def _after_pod_deleted(away: Terms, pod: Pod, old: Pod | None) -> QueueingHint:
    """The deleted pod matched the pod's anti-affinity, or its anti-affinity matched the pod."""
    if old is None:
        return QUEUE_SKIP
    if _match_all(away, old):
        return QUEUE_POD
    theirs = _required_anti_affinity(old)
    return queueing_hint(theirs is None or _match_all(theirs, pod))


def _required_affinity(pod: Pod) -> Terms | None:
    """Required affinity terms; None when one cannot be parsed."""
    terms = terms_of(pod)
    return _parsed_terms(terms.required_affinity, "requiredAffinityTerms:", terms.faults)


def _required_anti_affinity(pod: Pod) -> Terms | None:
    """Required anti-affinity terms; None when one cannot be parsed."""
    terms = terms_of(pod)
    return _parsed_terms(terms.required_anti_affinity, "requiredAntiAffinityTerms:", terms.faults)


def _parsed_terms(
    terms: tuple[WeightedTerm, ...], group: str, faults: tuple[str, ...]
) -> Terms | None:
    if any(fault.startswith(group) for fault in faults):
        return None
    return tuple(weighted.term for weighted in terms)


def _match_all(terms: Terms, pod: Pod) -> bool:
    """True when there are terms and all of them match the pod.

    As in the original, labels of namespaces are not read: a namespace selector matches if it
    matches a namespace without labels.
    """
    return bool(terms) and all(term.matches(pod, {}) for term in terms)


def _topology_domains(
    terms: Terms, old: Node | None, new: Node
) -> Iterator[tuple[str | None, str | None]]:
    """Per term the node's domain before and after; None for none."""
    for term in terms:
        key = term.topology_key
        yield (None if old is None else old.labels.get(key)), new.labels.get(key)
