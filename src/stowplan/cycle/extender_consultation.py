"""One pod's decision with extenders.

An attempt that needs extender calls cannot be decided at once. It is evaluated again from the start
whenever responses arrive, on the cluster state of that time: nodes that pass the filters now and
were kept by all extenders called so far remain. No call is repeated, so an attempt without
remaining nodes has failed, even if other nodes fit by then; in-flight events requeue the pod, as
they concern the plugins that have refused a node at any time of the attempt.

    nominated     the nominated node, if it passes; chosen if all extenders keep it
    filter        the nodes that pass, sent to one extender after the other, each as reduced before
    prioritize    two or more remaining nodes, sent to all extenders at the same time
    preempt       no node remains and preemption may help: sent to one extender after the other

Whole nodes returned by an extender are scored as if no pod ran on them, since the original knows no
more about them. Differs: they are matched by name with the nodes that were sent; the original
accepts them unchecked, scores their content and may bind to any of them. If a node begins to fit
during calls about preemption, no pod is evicted.

Source: kube-scheduler v1.36, schedule_one.go findNodesThatPassExtenders, evaluateNominatedNode and
prioritizeNodes; framework/preemption callExtenders.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.empty_nodes import without_pods
from stowplan.columns.nodeinfo import wrapped
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.decision import (
    SamplingState,
    break_tie,
    failed,
    nominated_row,
    placed_decision,
    refusal,
    refused,
    run_post_filters,
    sample_rows,
)
from stowplan.framework import (
    Framework,
    PostFilterResult,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.deciders.extender_review import ExtenderReview, PreemptionCandidate
from stowplan.framework.status import Code
from stowplan.messages import extender_api
from stowplan.messages.extender_api import (
    EXTENDER,
    ExtenderArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderRequest,
    ExtenderResponse,
    ExtenderVerb,
    HTTPExtender,
    MetaVictims,
    Victims,
    redact_password,
)
from stowplan.objects.encoding.go_json import GoDecodeError
from stowplan.objects.pod import Pod

PREEMPTION_NOT_NEEDED = "preemption: no longer needed, a node fits the pod"


class ConsultationStep(Enum):
    """Steps in which extenders are called."""

    NOMINATED = "nominated"
    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"


class ExtenderConsultation:
    """One pod's attempt with extenders. pending_requests: calls without a response. framework: of
    the pod's profile when the attempt began."""

    def __init__(
        self,
        pod: Pod,
        framework: Framework,
        extenders: Sequence[HTTPExtender],
        draw: int | None = None,
        sampling: SamplingState | None = None,
    ) -> None:
        """extenders: in call order. draw: tie-break number."""
        self.pending_requests: list[ExtenderRequest] = []
        self.step = ConsultationStep.NOMINATED
        self._pod = pod
        self.framework = framework
        self._extenders = extenders
        self._draw = draw
        self._sampling = sampling or SamplingState()
        self._start = self._sampling.next_start
        # Number of extenders already called in this step.
        self._n_asked = 0
        # Remaining nodes, None before the first call; all nodes ever offered.
        self._names: list[str] | None = None
        self._offered: set[str] = set()
        # Nodes as returned by extenders, if any returned whole nodes.
        self._returned: dict[str, dict[str, Any]] = {}
        self._refusals: dict[ConsultationStep, dict[str, Status]] = {
            ConsultationStep.NOMINATED: {},
            ConsultationStep.FILTER: {},
        }
        self._blamed: set[str] = set()
        self._failure: str | None = None
        self._totals: dict[str, int] = {}
        self._candidates: dict[str, PreemptionCandidate] = {}
        self._preempted: tuple[ExtenderRequest, dict[str, MetaVictims] | GoDecodeError] | None = (
            None
        )

    # The walk.

    def try_decide(self, snapshot: Snapshot) -> Decision | None:
        """See `Consultation.try_decide`."""
        attempt = filter_pod(self._pod, snapshot, self.framework)
        if self._failure is not None:
            attempt.errors.append(error(self._failure))
        if attempt.failure is not None:
            return failed(attempt)
        # A node that was refused when others were offered may fit by now: what has made it fit is
        # an event for the plugin that refused it.
        self._blamed |= attempt.diagnosis.plugins
        if self.step is ConsultationStep.PREEMPT:
            return self._preempt(attempt)
        if self.step is ConsultationStep.NOMINATED:
            row = nominated_row(attempt)
            names = (
                [] if row is None else self._remaining_rows(attempt, [snapshot.nodes.names[row]])
            )
            if names and self._ask_to_filter(attempt, names):
                return None
            if names and row is not None:
                return placed_decision(attempt, row)
            self._enter_step(ConsultationStep.FILTER, None)
        return self._filter_or_prioritize(attempt)

    def _filter_or_prioritize(self, attempt: Attempt) -> Decision | None:
        names = self._remaining_rows(attempt, None)
        if not names:
            return self._refuse(attempt)
        if self.step is ConsultationStep.FILTER:
            if self._ask_to_filter(attempt, names):
                self._names = names
                return None
            self._enter_step(ConsultationStep.PRIORITIZE, names)
        return self._prioritize(attempt, names)

    def _enter_step(self, step: ConsultationStep, names: list[str] | None) -> None:
        self.step = step
        self._names = names
        self._n_asked = 0
        if names is None:
            self._returned = {}

    def _remaining_rows(self, attempt: Attempt, first: list[str] | None) -> list[str]:
        """Remaining nodes that pass now. first: initial nodes, None for all."""
        nodes = attempt.snapshot.nodes
        if self._names is not None:
            passing = {nodes.names[row] for row in attempt.passed.tolist()}
            return [name for name in self._names if name in passing]
        if first is not None:
            return first
        rows = sample_rows(attempt, self._sampling)
        in_turn = np.argsort((nodes.rank[rows] - self._start) % max(nodes.n_nodes, 1))
        return [nodes.names[row] for row in rows[in_turn].tolist()]

    # Calls.

    def _next_extender(self, verb: ExtenderVerb) -> HTTPExtender | None:
        """The next extender that supports the verb; None if all have been called."""
        for place in range(self._n_asked, len(self._extenders)):
            if verb in self._extenders[place].verbs:
                self._n_asked = place + 1
                return self._extenders[place]
        return None

    def _ask_to_filter(self, attempt: Attempt, names: Sequence[str]) -> bool:
        """Send the remaining nodes to the next extender; False if all have been called."""
        self._offered.update(names)
        extender = self._next_extender(ExtenderVerb.FILTER)
        if extender is None:
            return False
        body = self._args(extender, attempt, names)
        self.pending_requests = [ExtenderRequest(extender, ExtenderVerb.FILTER, body)]
        return True

    def _args(self, extender: HTTPExtender, attempt: Attempt, names: Sequence[str]) -> ExtenderArgs:
        """Arguments for an extender: whole nodes, or names if it is nodeCacheCapable."""
        if extender.node_cache_capable:
            return ExtenderArgs(self._pod, None, tuple(names))
        nodes = attempt.snapshot.nodes
        whole = tuple(self._returned.get(n) or nodes.nodes[nodes.row(n)] for n in names)
        return ExtenderArgs(self._pod, whole)

    def answer(self, question: ExtenderRequest, reply: ExtenderResponse) -> None:
        """See `Consultation.answer`."""
        self.pending_requests.remove(question)
        if question.verb is ExtenderVerb.FILTER:
            self._filtered(question, reply)
        elif question.verb is ExtenderVerb.PRIORITIZE:
            self._prioritized(question, reply)
        else:
            self._preempted = question, extender_api.read_preemption_result(question, reply)

    def _filtered(self, question: ExtenderRequest, reply: ExtenderResponse) -> None:
        extender, body = question.extender, question.body
        assert isinstance(body, ExtenderArgs)
        offered = body.node_names
        if offered is None:
            offered = tuple(_name_of(node) for node in body.nodes or ())
        result = extender_api.read_filter_result(question, reply)
        kept = (
            result if isinstance(result, GoDecodeError) else self._kept(extender, result, offered)
        )
        if isinstance(kept, GoDecodeError):
            if self.step is ConsultationStep.NOMINATED and not extender.ignorable:
                # A failure for the nominated node only counts as a refusal of it; the other nodes
                # follow.
                self._enter_step(ConsultationStep.FILTER, None)
            elif not extender.ignorable:
                self._failure = kept.text
            else:
                self._names = list(offered)
            return
        assert isinstance(result, ExtenderFilterResult)
        self._names = kept
        if self.step is ConsultationStep.FILTER and set(kept) != set(offered):
            self._blamed.add(EXTENDER)
        refusals = self._refusals[self.step]
        refusals |= {name: unschedulable(text) for name, text in result.failed.items()}
        refusals |= {name: unresolvable(text) for name, text in result.unresolvable.items()}

    def _kept(
        self, extender: HTTPExtender, result: ExtenderFilterResult, offered: Sequence[str]
    ) -> list[str] | GoDecodeError:
        """The node names that a response keeps, with repetitions."""
        known = set(offered)
        if extender.node_cache_capable and result.node_names is not None:
            for name in result.node_names:
                if name not in known:
                    who = redact_password(extender.url_prefix)
                    return GoDecodeError(
                        f'extender "{who}" claims a filtered node "{name}" which is not found in '
                        "the input node list"
                    )
            return list(result.node_names)
        returned = {_name_of(node): node for node in result.nodes or ()}
        self._returned |= {name: node for name, node in returned.items() if name in known}
        names = [_name_of(node) for node in result.nodes or ()]
        return [name for name in names if name in known]

    # Scores.

    def _prioritize(self, attempt: Attempt, names: list[str]) -> Decision | None:
        row = attempt.snapshot.nodes.row
        if len(names) == 1:
            return placed_decision(attempt, row(names[0]))
        if not self._n_asked:
            self._n_asked = len(self._extenders)
            self.pending_requests = [
                ExtenderRequest(
                    extender, ExtenderVerb.PRIORITIZE, self._args(extender, attempt, names)
                )
                for extender in self._extenders
                if ExtenderVerb.PRIORITIZE in extender.verbs
            ]
            if self.pending_requests:
                return None
        rows = sorted({row(name) for name in names})
        return self._choose(attempt, np.array(rows, dtype=np.int64))

    def _prioritized(self, question: ExtenderRequest, reply: ExtenderResponse) -> None:
        """Add the scores of a response; a failed extender contributes nothing, ignorable or not."""
        scores = extender_api.read_priorities(question, reply)
        if isinstance(scores, GoDecodeError):
            return
        extender = question.extender
        for one in scores:
            final = one.score * extender.weight * extender.scale
            self._totals[one.host] = self._totals.get(one.host, 0) + final

    def _choose(self, attempt: Attempt, rows: Ints) -> Decision:
        total = self.totals(attempt, rows)
        if total is None:
            return failed(attempt)
        names = [attempt.snapshot.nodes.names[row] for row in rows.tolist()]
        best = total == total.max()
        # Among equals, a node that an extender has scored comes before one that none has.
        is_scored = np.array([name in self._totals for name in names], dtype=np.bool_)
        if (best & is_scored).any():
            best &= is_scored
        row = break_tie(attempt.snapshot.nodes, rows[best], self._draw, self._start)
        return placed_decision(attempt, row, int(total.max()))

    def totals(self, attempt: Attempt, rows: Ints) -> Ints | None:
        """int64 (n_rows,): total scores of plugins and extenders; None if a plugin fails."""
        nodes = attempt.snapshot.nodes
        names = [nodes.names[row] for row in rows.tolist()]
        total = np.array([wrapped(self._totals.get(name, 0)) for name in names], dtype=np.int64)
        if self.framework.at("score"):
            scores = score_pod(attempt, rows, without_pods(nodes) if self._returned else None)
            if scores is None:
                return None
            total += scores.total
        return total

    # No node is left.

    def _refuse(self, attempt: Attempt) -> Decision | None:
        """Refuse the pod, or first ask extenders about preemption candidates."""
        if attempt.no_nodes:
            return refused(attempt)
        self._record_refusals(attempt)
        review = ExtenderReview()
        if any(ExtenderVerb.PREEMPT in extender.verbs for extender in self._extenders):
            review.enter(attempt.state)
        result = run_post_filters(attempt)
        if result is None or result.status.code != Code.WAIT:
            return refusal(attempt, result)
        self._candidates = {one.node_name: one for one in review.offered}
        self._enter_step(ConsultationStep.PREEMPT, None)
        self._request_preemption()
        return None

    def _record_refusals(self, attempt: Attempt) -> None:
        """Record why each node that passed was removed, and other refusals of extenders. Unproved:
        a refusal of a node that PreFilter excluded is ignored."""
        diagnosis, verdicts = attempt.diagnosis, attempt.verdicts
        if verdicts is None:
            return
        for plugin in sorted(self._blamed):
            diagnosis.blame(plugin)
        nodes = attempt.snapshot.nodes
        late = self._refusals[ConsultationStep.FILTER]
        refusals = self._refusals[ConsultationStep.NOMINATED] | late
        place_of = {row: place for place, row in enumerate(verdicts.rows.tolist())}
        found: dict[int, Status] = {}
        for row in attempt.passed.tolist():
            found[place_of[row]] = refusals.get(nodes.names[row], diagnosis.absent)
        for name, status in refusals.items():
            place = place_of.get(nodes.row(name))
            if place is None:
                diagnosis.astray += status.reasons
            elif name in late:
                found[place] = status
        if found:
            places = np.array(list(found), dtype=np.int64)
            verdicts.overrule_all(places, np.arange(len(found)), tuple(found.values()))

    def _preempt(self, attempt: Attempt) -> Decision | None:
        nodes = attempt.snapshot.nodes
        answer: tuple[PreemptionCandidate, ...] | Status = self._take_preempted(nodes)
        if not isinstance(answer, Status) and answer:
            self._candidates = {one.node_name: one for one in answer}
            if self._request_preemption():
                return None
        fits = {nodes.names[row] for row in attempt.passed.tolist()} - self._offered
        self._record_refusals(attempt)
        if attempt.no_nodes:
            return refused(attempt)
        if fits:
            return refusal(
                attempt, PostFilterResult(unschedulable(PREEMPTION_NOT_NEEDED), nominated_node="")
            )
        if attempt.verdicts is not None:
            review = ExtenderReview()
            review.answer = answer
            review.enter(attempt.state)
        return refusal(attempt, run_post_filters(attempt))

    def _request_preemption(self) -> bool:
        """Send the candidates to the next extender; False if all have been called."""
        extender = self._next_extender(ExtenderVerb.PREEMPT)
        if extender is None:
            return False
        victims = {
            name: Victims(tuple(info.pod for info in one.victims), one.pdb_violations)
            for name, one in self._candidates.items()
        }
        body = ExtenderPreemptionArgs(self._pod, victims, extender.node_cache_capable)
        self.pending_requests = [ExtenderRequest(extender, ExtenderVerb.PREEMPT, body)]
        return True

    def _take_preempted(self, nodes: NodeTable) -> tuple[PreemptionCandidate, ...] | Status:
        """Apply a response to the candidates, or record the failure."""
        assert self._preempted is not None
        question, result = self._preempted
        before = tuple(left for one in self._candidates.values() if (left := _left_of(one, nodes)))
        found = (
            result
            if isinstance(result, GoDecodeError)
            else self._find_candidates(question.extender, result, nodes)
        )
        if not isinstance(found, GoDecodeError):
            return found
        return before if question.extender.ignorable else error(found.text)

    def _find_candidates(
        self, extender: HTTPExtender, result: dict[str, MetaVictims], nodes: NodeTable
    ) -> tuple[PreemptionCandidate, ...] | GoDecodeError:
        """Return the candidates that an extender names, without pods deleted since the offer."""
        candidates = []
        for name, victims in result.items():
            row, offered = nodes.row(name), self._candidates.get(name)
            if row < 0 and offered is None:
                return GoDecodeError(f'nodeinfo not found for node name "{name}"')
            there = {} if row < 0 else {info.pod.metadata.uid: info for info in nodes.pods[row]}
            known = set() if offered is None else {i.pod.metadata.uid for i in offered.victims}
            pods: list[PodInfo] = []
            for uid in victims.uids:
                if uid in there:
                    pods.append(there[uid])
                elif uid not in known:
                    who = redact_password(extender.url_prefix)
                    return GoDecodeError(
                        f"extender: {who} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, "
                        "but the pod is not found on that node"
                    )
            if pods or not victims.uids:
                candidates.append(
                    PreemptionCandidate(name, tuple(pods), victims.num_pdb_violations)
                )
        if not extender.ignorable:
            for one in candidates:
                if not one.victims:
                    return GoDecodeError(
                        f'expected at least one victim pod on node "{one.node_name}"'
                    )
        return tuple(one for one in candidates if one.victims)


def _left_of(candidate: PreemptionCandidate, nodes: NodeTable) -> PreemptionCandidate | None:
    """A candidate reduced to the victims still on the node; None if none is left."""
    row = nodes.row(candidate.node_name)
    uids = {info.pod.metadata.uid for info in candidate.victims}
    there = () if row < 0 else nodes.pods[row]
    still = {info.pod.metadata.uid: info for info in there if info.pod.metadata.uid in uids}
    victims = (still.get(info.pod.metadata.uid) for info in candidate.victims)
    left = tuple(info for info in victims if info is not None)
    return (
        PreemptionCandidate(candidate.node_name, left, candidate.pdb_violations) if left else None
    )


def _name_of(node: Any) -> str:
    if not isinstance(node, dict):
        return str(node.name)
    meta = node.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""
