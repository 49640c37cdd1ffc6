"""NodeAffinity: pods run on nodes that their node selector and node affinity select.

Source: kube-scheduler v1.36, plugins/nodeaffinity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    NodeInfo,
    NodeTable,
    Problem,
    RestrictTo,
    Rows,
    Status,
    error,
    unresolvable,
)
from stowplan.framework.clusterevents import (
    NODE,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects import pod as pods
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    node_selector_error,
    node_selector_matches,
    preferred_terms_error,
    requirement_admits,
    term_matches,
)
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import default_normalize_score, n_rows_of
from stowplan.plugins.node_affinity.node_selector import (
    matches_node_selector_and_affinity,
    node_affinity_of,
    node_selector_and_affinity_column,
    node_selector_column,
    node_selector_term_column,
    required_node_selector,
)
from stowplan.plugins.pod_hints import queueing_hint

_PARSE_ERROR = re.compile(r"(?P<place>\S+): \w+ value: (?P<got>.*?): (?P<wanted>.*)", re.DOTALL)


class NodeAffinityArgs(PluginArgs, frozen=True):
    """added_affinity: node affinity that every pod of the profile has in addition to its own."""

    added_affinity: pods.NodeAffinity | None = None

    def problems(self, path: str) -> Iterator[Problem]:
        """Terms that can never match. path: the place of these arguments in the configuration."""
        if self.added_affinity is None:
            return
        path += ".addedAffinity"
        if self.added_affinity.required is not None:
            at = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            for i, term in enumerate(self.added_affinity.required.node_selector_terms):
                yield from _term_problems(term, f"{at}[{i}]")
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
        for i, preferred in enumerate(self.added_affinity.preferred):
            if preferred.weight != 0:
                yield from _term_problems(preferred.preference, f"{at}[{i}].preference")


def _term_problems(term: NodeSelectorTerm, path: str) -> Iterator[Problem]:
    for fault in term.faults:
        parts = _PARSE_ERROR.fullmatch(fault)
        if parts is None:
            yield Problem(path, fault, "a node selector term without faults")
        else:
            yield Problem(f"{path}.{parts['place']}", parts["got"], parts["wanted"])


class NodeAffinityPlugin:
    """Filter on `nodeSelector` and required node affinity, score on preferred node affinity."""

    name = "NodeAffinity"
    declaration = Plugin(
        name=name,
        weight=2,
        reads=(),
        row_local=True,
        node_only=True,
        by_outline=True,
        normalizes="highest",
    )
    Args = NodeAffinityArgs
    # All unresolvable: no eviction changes a label.
    REJECTED = unresolvable("node(s) didn't match Pod's node affinity/selector")
    ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
    CONFLICT = unresolvable("pod affinity terms conflict")

    def __init__(self, args: NodeAffinityArgs) -> None:
        added = args.added_affinity
        self._added_required = None if added is None else added.required
        self._added_preferred = () if added is None else added.preferred

    def pre_filter(self, pod: Pod) -> Status | RestrictTo:
        """Skip where nothing is required; the nodes named, where every term names nodes."""
        required = required_node_selector(pod)
        nothing_own = required is None and pod.spec.node_selector is None
        if nothing_own and self._added_required is None:
            return SKIP
        names = None if required is None else node_names_of_terms(required.node_selector_terms)
        if names is None:
            return OK
        return RestrictTo(names) if names else self.CONFLICT

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where the added and the pod's own requirements hold. Faulty terms never match."""
        if not self._meets_added(node):
            return self.ENFORCED
        return (
            OK if matches_node_selector_and_affinity(pod, node.labels, node.name) else self.REJECTED
        )

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, 1 for REJECTED, 2 for ENFORCED."""
        codes = (~node_selector_and_affinity_column(pod, nodes, rows)).astype(np.int64)
        if self._added_required is not None:
            codes[~node_selector_column(self._added_required, nodes, rows)] = 2
        return codes

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """Each requirement that does not hold, with the node's value."""
        texts = []
        for key, value in (pod.spec.node_selector or {}).items():
            if node.labels.get(key) != value:
                texts.append(f"nodeSelector: needs {key}={value}, has {_format_value(node, key)}")
        for selector in (self._added_required, required_node_selector(pod)):
            if selector is not None and not node_selector_matches(selector, node.labels, node.name):
                texts += [_unmet_requirements(term, node) for term in selector.node_selector_terms]
        return texts

    def explain_column(self, pod: Pod, nodes: NodeTable, rows: Ints) -> list[list[str]]:
        """`explain` of each row; once for nodes with equal values of the labels that are read."""
        selectors = [self._added_required, required_node_selector(pod)]
        terms = [t for s in selectors if s is not None for t in s.node_selector_terms]
        keys = [*(pod.spec.node_selector or ())]
        keys += [requirement.key for term in terms for requirement in term.match_expressions]
        reads_name = any(term.match_fields for term in terms)
        known: dict[tuple[str | None, ...], list[str]] = {}
        texts = []
        for row in rows.tolist():
            labels = nodes.nodes[row].labels
            values = (nodes.names[row] if reads_name else None, *map(labels.get, keys))
            if values not in known:
                known[values] = self.explain(pod, nodes.info(row))
            texts.append(known[values])
        return texts

    def filter_status(self, code: int) -> Status:
        """The refusal of a code of `filter_column`."""
        return self.REJECTED if code == 1 else self.ENFORCED

    def pre_score(self, pod: Pod) -> Status:
        """Skip where nothing is preferred; an error where a term of the pod cannot be parsed."""
        affinity = node_affinity_of(pod)
        preferred = () if affinity is None else affinity.preferred
        fault = preferred_terms_error(preferred)
        if fault is not None:
            return error(fault)
        return OK if preferred or self._added_preferred else SKIP

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """Sum of the weights of the preferred terms that match; any size."""
        return sum(
            term.weight
            for term in self._preferred(pod)
            if term_matches(term.preference, node.labels, node.name)
        )

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        scores = np.zeros(n_rows_of(rows), dtype=np.int64)
        for term in self._preferred(pod):
            scores[node_selector_term_column(term.preference, nodes, rows)] += term.weight
        return scores

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 100]: percentages of the highest score."""
        return default_normalize_score(scores)

    def events_to_register(self) -> RegisteredEvents:
        """A node is added or has other labels."""
        return (on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._after_node),)

    def _after_node(self, pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        """The pod selects the node now and did not before. A term that cannot be parsed requeues
        the pod, unless a term that can be parsed decides."""
        if not self._meets_added(new):
            return QUEUE_SKIP
        if matches_node_selector_and_affinity(pod, new.labels, new.name):
            return queueing_hint(
                old is None or not matches_node_selector_and_affinity(pod, old.labels, old.name)
            )
        required, wanted = required_node_selector(pod), pod.spec.node_selector or {}
        is_faulty = required is not None and node_selector_error(required) is not None
        return queueing_hint(is_faulty and wanted.items() <= new.labels.items())

    def signature(self, pod: Pod) -> object:
        """The selector and the affinity."""
        selector = pod.spec.node_selector
        labels = None if selector is None else frozenset(selector.items())
        return labels, node_affinity_of(pod)

    def _meets_added(self, node: NodeInfo | Node) -> bool:
        """True where the node meets the affinity that the arguments require."""
        added = self._added_required
        return added is None or node_selector_matches(added, node.labels, node.name)

    def _preferred(self, pod: Pod) -> tuple[PreferredSchedulingTerm, ...]:
        affinity = node_affinity_of(pod)
        return self._added_preferred + (() if affinity is None else affinity.preferred)


def node_names_of_terms(terms: tuple[NodeSelectorTerm, ...]) -> frozenset[str] | None:
    """The nodes that required terms name; None where a term names none, or there is no term.

    Within a term all names must agree, and one matching term is enough; so an empty set is a
    conflict.
    """
    names: set[str] = set()
    for term in terms:
        lists = [
            set(r.values)
            for r in term.match_fields
            if r.key == NODE_NAME_FIELD and r.operator == "In"
        ]
        if not lists:
            return None
        names |= set.intersection(*lists)
    return frozenset(names) if terms else None


def _unmet_requirements(term: NodeSelectorTerm, node: NodeInfo) -> str:
    """The requirements of a term that the node does not meet."""
    if term.is_empty or term.faults:
        return "affinity: a term that matches nothing"
    texts = []
    for requirement in (*term.match_expressions, *term.match_fields):
        is_field = requirement in term.match_fields
        value = node.name if is_field else node.labels.get(requirement.key)
        if not requirement_admits(requirement, value):
            wanted = f"{requirement.key} {requirement.operator}"
            if requirement.values:
                wanted += f" [{' '.join(requirement.values)}]"
            texts.append(
                f"needs {wanted}, has {value if is_field else _format_value(node, requirement.key)}"
            )
    return "affinity: " + " and ".join(texts)


def _format_value(node: NodeInfo, key: str) -> str:
    value = node.labels.get(key)
    return "no such label" if value is None else f"{key}={value}"
