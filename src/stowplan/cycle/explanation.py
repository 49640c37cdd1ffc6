"""Explanation: one attempt described for people and programs.

It reads the Attempt from which the decision was made; only the details of rules that refused are
asked for separately. The JSON form is described in docs/explain-schema.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.cycle.attempt import Attempt, filter_pod, run_filters_independently, score_pod
from stowplan.cycle.change import Change
from stowplan.cycle.decision import choose_row, nominated_row, run_post_filters
from stowplan.framework import Code, Framework, Snapshot, Status
from stowplan.framework.diagnosis import NO_NODES
from stowplan.framework.problems import ContractError
from stowplan.objects.devices.binding_annotations import without_binding_annotations
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.pod import Pod

SCHEMA = "stowplan.dev/explanation/v1"
TOP_NODES = 5


class RuleRefusal(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A rule that refuses a node, or the pod as a whole. details: requested and available
    amounts."""

    plugin: str
    code: str
    reasons: tuple[str, ...]
    details: tuple[str, ...] = ()


NOT_EVALUATED = RuleRefusal("", Code.ERROR.title, ("not evaluated: the attempt failed",))


class NodeExplanation(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Result for one node. first: the refusal that counts, absent if the node fits.

    failing: every rule that refuses the node when run alone, in call order.
    """

    name: str
    fits: bool
    first: RuleRefusal | None = None
    failing: tuple[RuleRefusal, ...] = ()


class PluginScore(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A plugin's score of a node. final: normalised score times weight. details: what it rests on,
    from a plugin that scores, does not filter, and explains."""

    raw: int
    weight: int
    final: int
    details: tuple[str, ...] = ()


class NodeScore(msgspec.Struct, frozen=True, rename="camel"):
    """A node's total score and its parts."""

    name: str
    total: int
    plugins: dict[str, PluginScore]


class PreemptionExplanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of preemption. node: the nominated node, "" for none."""

    node: str = ""
    victims: tuple[str, ...] = ()
    message: str = ""


class SimulationOutcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Result of a simulation of the same input for the pod.

    tried_before: pending pods scheduled before it; placed_before: those of them that were placed.
    node: where it was placed, "" for none. message: why it was refused. not_run: why no simulation
    ran, "" if one did. profile: profile used for every pod, "" for each pod's own.
    """

    tried_before: int
    placed_before: int = 0
    node: str = ""
    message: str = ""
    not_run: str = ""
    profile: str = ""


class StrandedCards(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """GPU cards of a node. idle_milli: left on them, thousandths of a card. by_cause: what of it is
    expected to be of no use, by cause: cpu_short, gpu_short, both_short, model, no_gpu_wanted."""

    node: str
    idle_milli: int
    by_cause: dict[str, float] = {}


GIVEN, SIMULATED = "given", "simulation"


class Explanation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a pod is on its node or on none.

    state: pending, placed or gated. current_node: node of a placed pod. node: where it would be
    placed now, "" for none. message: text of the PodScheduled condition. pod_refusal: refusal of
    the pod as a whole (a gate, a PreFilter), before any node is evaluated. notes: what the answer
    does not consider. evaluated_on: the cluster as `given`, or as a `simulation` filled it before
    this pod. simulation: result of that simulation; None for pods that it does not schedule.
    changes: the smallest changes that let a pending pod run, cheapest first. not_searched: what the
    search for them left out. stranded_cards: of nodes with GPU cards, where the profile has the
    plugin GpuShare: for the pods that it expects, else for pods like this one.
    """

    api_version: str
    pod: str
    scheduler_name: str
    state: str
    current_node: str = ""
    node: str = ""
    message: str = ""
    pod_refusal: RuleRefusal | None = None
    nodes: tuple[NodeExplanation, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    skipped_scores: tuple[str, ...] = ()
    preemption: PreemptionExplanation | None = None
    notes: tuple[str, ...] = ()
    evaluated_on: str = msgspec.field(default=GIVEN, name="judgedOn")
    simulation: SimulationOutcome | None = None
    changes: tuple[Change, ...] = ()
    not_searched: tuple[str, ...] = ()
    stranded_cards: tuple[StrandedCards, ...] = ()

    def __repr__(self) -> str:
        fitting = sum(node.fits for node in self.nodes)
        where = f", node {self.node!r}" if self.node else ""
        count = f"{fitting} of {len(self.nodes)} nodes fit"
        return f"Explanation({self.pod!r}, {self.state}{where}, {count})"

    def _repr_html_(self) -> str:
        """For notebooks: the message, refusals by rule, the best nodes, the smallest changes."""
        refusals: Counter[tuple[str, str]] = Counter()
        for node in self.nodes:
            if node.first is not None:
                refusals[node.first.plugin, ", ".join(node.first.reasons)] += 1
        rows = ((count, *key) for key, count in refusals.most_common())
        return html_summary(
            repr(self),
            html_text(self.message),
            html_table(("Nodes", "Rule", "Reason"), rows),
            html_table(("Best node", "Score"), ((one.name, one.total) for one in self.scores)),
            html_table(("Change that helps",), ((one.text,) for one in self.changes)),
            *map(html_text, self.notes),
        )

    def to_frame(self, library: str = "") -> Any:
        """The nodes as a DataFrame of pandas or polars, one row per node.

        Columns: node, fits, rule, reason and details of the first refusal ("" if the node fits),
        total: the score, None if there is none. library: `pandas` or `polars`; "" takes the first
        that is installed. Raises ImportError if it is not installed.
        """
        totals = {score.name: score.total for score in self.scores}
        first = [node.first for node in self.nodes]
        columns: dict[str, list[Any]] = {
            "node": [node.name for node in self.nodes],
            "fits": [node.fits for node in self.nodes],
            "rule": [one.plugin if one else "" for one in first],
            "reason": [", ".join(one.reasons) if one else "" for one in first],
            "details": ["; ".join(one.details) if one else "" for one in first],
            "total": [totals.get(node.name) for node in self.nodes],
        }
        return to_dataframe(columns, library)

    @property
    def fits_somewhere(self) -> bool:
        """True if at least one node fits the pod."""
        return any(node.fits for node in self.nodes)


def explain(pod: Pod, snapshot: Snapshot, framework: Framework) -> Explanation:
    """Explain `pod` on this snapshot.

    A placed pod is evaluated as if it were pending: the snapshot must not contain it (see
    `pending_form`).
    """
    current = pod.node_name
    bare = pending_form(pod)
    gate = framework.run_pre_enqueue(bare)
    if not gate.is_success and not current:
        return msgspec.structs.replace(
            _head(pod, "gated"), message=gate.message, pod_refusal=_refusal(gate)
        )
    attempt = filter_pod(bare, snapshot, framework)
    head = _head(pod, "placed" if current else "pending", current)
    if attempt.no_nodes:
        return msgspec.structs.replace(head, message=NO_NODES)
    nodes = tuple(_nodes(attempt))
    if attempt.failure is None and attempt.passed.shape[0]:
        return _fits(head, attempt, nodes)
    return _fits_nowhere(head, attempt, nodes)


def pending_form(pod: Pod) -> Pod:
    """The pod as it was before it was bound: without its node, and without the GPU cards that its
    binding has named."""
    if not pod.node_name:
        return pod
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return without_binding_annotations(msgspec.structs.replace(pod, spec=spec))


def _head(pod: Pod, state: str, current_node: str = "") -> Explanation:
    return Explanation(SCHEMA, pod.key, pod.spec.scheduler_name, state, current_node)


def _fits(head: Explanation, attempt: Attempt, nodes: tuple[NodeExplanation, ...]) -> Explanation:
    if attempt.framework.at("score") and score_pod(attempt) is None:
        return msgspec.structs.replace(head, message=attempt.errors[0].message, nodes=nodes)
    nominated = nominated_row(attempt)
    row = choose_row(attempt, attempt.passed) if nominated is None else nominated
    return msgspec.structs.replace(
        head,
        node=attempt.snapshot.nodes.names[row],
        nodes=nodes,
        scores=tuple(top_scores(attempt, head.current_node)),
        skipped_scores=tuple(sorted(attempt.state.skip_score)),
    )


def _fits_nowhere(
    head: Explanation, attempt: Attempt, nodes: tuple[NodeExplanation, ...]
) -> Explanation:
    if attempt.failure is not None:
        return msgspec.structs.replace(head, message=attempt.failure.message, nodes=nodes)
    whole = attempt.pre_filter.status
    found = run_post_filters(attempt)
    preemption = None
    if found is not None:
        preemption = PreemptionExplanation(
            node=found.nominated_node or "",
            victims=tuple(info.pod.key for info in found.victims),
            message=found.status.message,
        )
    return msgspec.structs.replace(
        head,
        message=attempt.diagnosis.text("" if found is None else found.status.message),
        pod_refusal=None if whole.is_success else _refusal(whole),
        nodes=nodes,
        preemption=preemption,
    )


def _nodes(attempt: Attempt) -> list[NodeExplanation]:
    """Explanation of every node, in the snapshot's order."""
    nodes, verdicts = attempt.snapshot.nodes, attempt.verdicts
    absent = attempt.diagnosis.absent
    if verdicts is None:
        refused = _refusal(absent) if attempt.failure is None else NOT_EVALUATED
        return [NodeExplanation(nodes.names[row], False, refused) for row in nodes.order.tolist()]
    first: dict[int, tuple[Status, RuleRefusal]] = {}
    for status, rows in verdicts.refusals():
        first |= dict.fromkeys(rows.tolist(), (status, _refusal(status)))
    failing = _failing_by_row(attempt, verdicts.rows)
    evaluated = set(verdicts.rows.tolist())
    not_asked = None if len(evaluated) == nodes.n_nodes else _refusal(absent)
    result = []
    for row in nodes.order.tolist():
        name = nodes.names[row]
        if row not in evaluated:
            result.append(NodeExplanation(name, False, not_asked))
        elif row not in first:
            result.append(NodeExplanation(name, True))
        else:
            (status, plain), found = first[row], failing.get(row, [])
            for refusal in found:
                if _is_same_but_details(refusal, plain):
                    break
            else:
                refusal = _Details(attempt, status.plugin).of(status, row)
            result.append(NodeExplanation(name, False, refusal, tuple(found)))
    return result


def _failing_by_row(attempt: Attempt, rows: Ints) -> dict[int, list[RuleRefusal]]:
    """Per row every rule that refuses it when run alone, in call order: a pass per rule over the
    rows that it refuses."""
    failing: dict[int, list[RuleRefusal]] = {}
    for name, answers in run_filters_independently(attempt).items():
        places = np.flatnonzero(answers.codes)
        status_of = cache(answers.explain)
        details = _Details(attempt, name)
        statuses = map(status_of, answers.codes[places].tolist())
        refused = details.of_rows(statuses, rows[places])
        for row, refusal in zip(rows[places].tolist(), refused, strict=True):
            failing.setdefault(row, []).append(refusal)
    return failing


def _is_same_but_details(one: RuleRefusal, other: RuleRefusal) -> bool:
    return one.plugin == other.plugin and one.reasons == other.reasons and one.code == other.code


def _refusal(status: Status) -> RuleRefusal:
    return RuleRefusal(status.plugin, status.code.title, status.reasons)


class _Details:
    """The refusals of one rule, with the details that it gives per node, if it gives any."""

    def __init__(self, attempt: Attempt, plugin: str) -> None:
        self._plugin = plugin
        self._pod, self._state = attempt.pod, attempt.state
        self._nodes = attempt.snapshot.nodes
        calls = attempt.framework.members[plugin].calls
        self._call, self._column = calls["explain"], calls["explain_column"]
        self._plain: dict[Status, RuleRefusal] = {}

    def of_rows(self, statuses: Iterable[Status], rows: Ints) -> Iterator[RuleRefusal]:
        """The refusals of rows."""
        if self._column is None:
            if self._call is not None:
                self._nodes.infos_of(rows)
            yield from map(self.of, statuses, rows.tolist())
            return
        plugin = self._plugin
        try:
            texts = self._column(self._pod, self._nodes, rows, self._state)
        except ContractError as fault:
            texts = [[str(fault)]] * rows.shape[0]
        titles = {code: code.title for code in Code}
        for status, details in zip(statuses, texts, strict=True):
            yield RuleRefusal(plugin, titles[status.code], status.reasons, tuple(details))

    def of(self, status: Status, row: int) -> RuleRefusal:
        """The refusal of a row."""
        known = self._plain.get(status)
        if known is None:
            known = self._plain[status] = RuleRefusal(
                self._plugin, status.code.title, status.reasons
            )
        if self._call is None:
            return known
        try:
            details = tuple(self._call(self._pod, self._nodes.info(row), self._state))
        except ContractError as fault:
            details = (str(fault),)
        return RuleRefusal(known.plugin, known.code, known.reasons, details) if details else known


def top_scores(attempt: Attempt, current: str = "") -> list[NodeScore]:
    """The nodes with the highest scores, best first, and the pod's current node at any rank."""
    scores, nodes = attempt.scores, attempt.snapshot.nodes
    if scores is None:
        return []
    rank = nodes.rank[scores.rows]
    best_first = np.lexsort((rank, -scores.total)).tolist()
    positions = best_first[:TOP_NODES]
    positions += [p for p in best_first[TOP_NODES:] if nodes.names[int(scores.rows[p])] == current]
    members = attempt.framework.members
    return [
        NodeScore(
            nodes.names[int(scores.rows[place])],
            int(scores.total[place]),
            {
                name: PluginScore(
                    int(scores.raw[name][place]),
                    members[name].weight,
                    int(scores.final[name][place]),
                    _score_details(attempt, name, int(scores.rows[place])),
                )
                for name in scores.raw
            },
        )
        for place in positions
    ]


def _score_details(attempt: Attempt, plugin: str, row: int) -> tuple[str, ...]:
    """What a score rests on; the details of a plugin that filters are about refusals."""
    calls = attempt.framework.members[plugin].calls
    if calls["explain"] is None or calls["filter"] is not None:
        return ()
    try:
        node = attempt.snapshot.nodes.info(row)
        return tuple(calls["explain"](attempt.pod, node, attempt.state))
    except ContractError as fault:
        return (str(fault),)
