"""Decision comparer (dry run): compares Stowplan's decisions with those of the cluster's scheduler,
and writes nothing.

A pod is evaluated when the watch shows its binding, by its profile, on the cluster as it was
directly before. So each decision is compared on its own, whichever scheduler is faster; an earlier
difference causes no later ones. A node with the same score as the best one counts as equally good.

Bindings are sent concurrently, so the watch may show them in another order than they were decided
in. Therefore watch events are buffered until none has arrived for a moment, and the bindings of
pods of one priority are then compared in the order in which the pods arrived.

Decisions of sessions or extenders cannot be reproduced afterwards. Those pods are compared with
what was decided here when they arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.explanation import pending_form
from stowplan.insight.pod_placement import frameworks_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderVerb
from stowplan.messages.watch_events import WATCH_EVENTS
from stowplan.objects.pod import Pod
from stowplan.scheduler import SchedulerOptions

SAME, AS_GOOD, OTHER = "same", "as good", "other node"
THEIRS_ONLY, OURS_ONLY, REFUSED = "theirs only", "ours only", "refused by both"
DECISIONS_KEPT_MAX = 100_000
FORBIDDEN = 403
QUIET_NS, KEPT_NS = 500_000_000, 5_000_000_000
"""Watch events are buffered until none has arrived for this long, but no longer than that."""
_DRY_RUN_REASON = "a dry run writes nothing"


class ComparedDecision(msgspec.Struct, frozen=True):
    """A decision about a pod. node: "" for unschedulable, then `why` is the reason; else `why` is
    the reason against the actual node. n_best: number of equally good nodes, 0 if unknown."""

    key: str
    node: str
    why: str = ""
    n_best: int = 0


class DecisionDifference(msgspec.Struct, frozen=True):
    """A pod for which the decisions differ. ours, theirs: nodes, "" for none."""

    pod: str
    ours: str
    theirs: str
    why: str = ""


class ReferenceScheduler:
    """The cluster without Stowplan's own decisions, and the profiles that evaluate on it."""

    def __init__(self, deciders: Deciders) -> None:
        """Raises ConfigError and ContractError."""
        self._is_extended = bool(deciders.configuration.extenders)
        # Only its cache and its profiles are used; it schedules nothing.
        self._scheduler = deciders.scheduler(options=SchedulerOptions(leads=False), engine="walk")

    def serves(self, pod: Pod) -> bool:
        """True for a pod that is compared."""
        return self._scheduler.lanes.is_ours(pod)

    def can_evaluate(self, pod: Pod) -> bool:
        """True for a pod whose decision can be reproduced afterwards."""
        return not self._is_extended and pod.spec.scheduler_name in frameworks_of(self._scheduler)

    def follow(self, events: Sequence[Event], now: int) -> None:
        """Apply events: of the watch, or a changed configuration."""
        self._scheduler.handle(events, now, 0)

    def expected(self, pod: Pod) -> ComparedDecision:
        """The node for the pod if it were scheduled now: its actual node, if that is as good as
        any."""
        framework = frameworks_of(self._scheduler)[pod.spec.scheduler_name]
        attempt = filter_pod(pending_form(pod), self._scheduler.cache.snapshot(), framework)
        if attempt.failure is None and attempt.passed.shape[0] > 1 and framework.at("score"):
            score_pod(attempt)
        if attempt.failure is not None:
            return ComparedDecision(pod.key, "", attempt.failure.message)
        if attempt.passed.shape[0] == 0:
            return ComparedDecision(pod.key, "", attempt.diagnosis.text())
        return _best(attempt, pod)


def _best(attempt: Attempt, pod: Pod) -> ComparedDecision:
    nodes = attempt.snapshot.nodes
    theirs, nominated = nodes.row(pod.node_name), nodes.row(pod.status.nominated_node_name)
    passed = attempt.passed.tolist()
    if theirs in passed and theirs == nominated:
        # A preemptor on its nominated node is not compared with other nodes.
        return ComparedDecision(pod.key, pod.node_name)
    if attempt.scores is None:
        return ComparedDecision(
            pod.key, pod.node_name if theirs in passed else nodes.names[passed[0]]
        )
    points = dict(zip(passed, attempt.scores.total.tolist(), strict=True))
    most = max(points.values())
    best = [row for row in attempt.feasible.tolist() if points[row] == most]
    if theirs in best:
        return ComparedDecision(pod.key, pod.node_name, n_best=len(best))
    if theirs in points:
        return ComparedDecision(
            pod.key, nodes.names[best[0]], f"{most} points, there {points[theirs]}"
        )
    why = attempt.diagnosis.status_of(theirs).message if theirs >= 0 else ""
    return ComparedDecision(pod.key, nodes.names[best[0]], why)


class UncomparedPod(msgspec.Struct):
    """A pod that the cluster's scheduler has not bound. number: order of arrival. was_compared: its
    refusal has been compared."""

    number: int
    was_compared: bool = False


class DecisionComparer:
    """counts: number of compared pods by result. differences: the latest last."""

    def __init__(self, on_outcome: Callable[[Event], None], reference: ReferenceScheduler) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[DecisionDifference] = []
        self.n_evictions = 0
        self.on_difference: Callable[[DecisionDifference], None] = _ignore
        self._on_outcome = on_outcome
        self._reference = reference
        self._waiting: dict[str, UncomparedPod] = {}
        self._n_arrived = 0
        # Buffered events, and when the first and the last arrived.
        self._kept: list[Event] = []
        self._first = self._last = 0
        self._decisions: dict[str, ComparedDecision] = {}

    def take(self, effect: Effect) -> bool:
        """Record a decision, and send the scheduler the outcome that it waits for; False for
        effects that write nothing and must be performed."""
        match effect:
            case to_do.ReadPod():
                return False
            case to_do.CallExtender() if effect.question.verb is not ExtenderVerb.BIND:
                return False
            case to_do.Bind():
                key = f"{effect.namespace}/{effect.name}"
                self._keep_decision(effect.uid, ComparedDecision(key, effect.node))
                self._on_outcome(happened.BindDone(effect.effect, effect.uid))
            case to_do.PatchStatus():
                if effect.reason:
                    key = f"{effect.namespace}/{effect.name}"
                    self._keep_decision(effect.uid, ComparedDecision(key, "", effect.message))
            case to_do.Evict():
                self.n_evictions += 1
                refused = happened.EvictFailed(
                    effect.effect, effect.uid, FORBIDDEN, _DRY_RUN_REASON
                )
                self._on_outcome(refused)
            case to_do.Write():
                version = effect.value.metadata.resource_version
                self._on_outcome(happened.WriteDone(effect.effect, effect.uid, version))
            case to_do.Prepare():
                self._on_outcome(happened.PrepareDone(effect.effect, effect.uid))
            case to_do.CallExtender():
                self._on_outcome(
                    happened.ExtenderFailed(effect.effect, effect.uid, _DRY_RUN_REASON)
                )
            case _:
                pass
        return True

    def _keep_decision(self, uid: str, expected: ComparedDecision) -> None:
        self._decisions[uid] = expected
        if len(self._decisions) > DECISIONS_KEPT_MAX:
            del self._decisions[next(iter(self._decisions))]

    def seen(self, events: Iterable[Event], now: int) -> None:
        """Handle watch events and changed configurations. now: as the scheduler counts it."""
        events = list(events)
        changed = [event for event in events if isinstance(event, happened.ConfigurationChanged)]
        if changed:
            self.compare_all(now)
            self._reference.follow(changed, now)
        watched = [event for event in events if type(event) in WATCH_EVENTS]
        for event in watched:
            if isinstance(event, happened.PodAdded | happened.PodUpdated):
                self._add_pending(event.pod)
        if watched:
            self._first = self._first if self._kept else now
            self._last = now
            self._kept += watched
        self.serve_due(now)

    def _add_pending(self, pod: Pod) -> None:
        is_ours = self._reference.serves(pod)
        is_pending = not pod.node_name and not pod.is_finished
        if is_ours and is_pending and pod.uid not in self._waiting:
            self._n_arrived += 1
            self._waiting[pod.uid] = UncomparedPod(self._n_arrived)

    def serve_due(self, now: int) -> None:
        """Compare the buffered events when they have been quiet or kept long enough."""
        if self._kept and (now - self._last >= QUIET_NS or now - self._first >= KEPT_NS):
            self.compare_all(now)

    def compare_all(self, now: int) -> None:
        """Compare all buffered events."""
        before: list[Event] = []
        for event in self._in_order():
            match event:
                case happened.PodAdded(pod) | happened.PodUpdated(pod) if self._is_decided(pod):
                    self._reference.follow(before, now)
                    before.clear()
                    self._compare_pod(pod)
                case happened.PodDeleted(pod):
                    self._decisions.pop(pod.uid, None)
                    self._waiting.pop(pod.uid, None)
            before.append(event)
        self._reference.follow(before, now)
        self._kept.clear()

    def _in_order(self) -> list[Event]:
        """The buffered events, bindings in the probable order of their decisions."""
        gone = {event.pod.uid for event in self._kept if isinstance(event, happened.PodDeleted)}
        latest: dict[str, Pod] = {}
        slots: dict[int, list[int]] = {}
        for i, event in enumerate(self._kept):
            if isinstance(event, happened.PodUpdated) and event.pod.node_name:
                pod = event.pod
                if pod.uid in self._waiting and pod.uid not in gone:
                    if pod.uid not in latest:
                        slots.setdefault(pod.spec.priority or 0, []).append(i)
                    latest[pod.uid] = pod
        pods = sorted(latest.values(), key=lambda pod: self._waiting[pod.uid].number)
        places = {
            slot: pod
            for priority, free in slots.items()
            for slot, pod in zip(
                free, (p for p in pods if (p.spec.priority or 0) == priority), strict=True
            )
        }
        return [
            happened.PodUpdated(places[i]) if i in places else event
            for i, event in enumerate(self._kept)
            if i in places
            or not (isinstance(event, happened.PodUpdated) and event.pod.uid in latest)
        ]

    def _is_decided(self, pod: Pod) -> bool:
        """True when the cluster's scheduler has made a decision about a pending pod."""
        waiting = self._waiting.get(pod.uid)
        if waiting is None:
            return False
        return bool(pod.node_name) or (not waiting.was_compared and _is_marked_unschedulable(pod))

    def _compare_pod(self, pod: Pod) -> None:
        expected = self._decisions.get(pod.uid)
        is_reproducible = self._reference.can_evaluate(pod)
        if is_reproducible:
            expected = self._reference.expected(pod)
        if pod.node_name:
            del self._waiting[pod.uid]
            self._decisions.pop(pod.uid, None)
        elif is_reproducible:
            self._waiting[pod.uid].was_compared = True
        if expected is not None and (is_reproducible or pod.node_name):
            self._compare(pod, expected)

    def _compare(self, pod: Pod, expected: ComparedDecision) -> None:
        ours, theirs = expected.node, pod.node_name
        if ours == theirs:
            same = AS_GOOD if expected.n_best > 1 else SAME
            self.counts[same if theirs else REFUSED] += 1
            return
        kind = OTHER if ours and theirs else THEIRS_ONLY if theirs else OURS_ONLY
        self.counts[kind] += 1
        self._add_difference(DecisionDifference(expected.key, ours, theirs, expected.why))

    def _add_difference(self, difference: DecisionDifference) -> None:
        self.differences.append(difference)
        del self.differences[:-1000]
        self.on_difference(difference)

    def ours_only(self) -> list[ComparedDecision]:
        """Pods that have a node here and none in the cluster so far."""
        return [expected for expected in self._decisions.values() if expected.node]


def _is_marked_unschedulable(pod: Pod) -> bool:
    """True when it is marked unschedulable and no node is being cleared for it."""
    return not pod.status.nominated_node_name and any(
        one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable"
        for one in pod.status.conditions
    )


def _ignore(difference: DecisionDifference) -> None:
    """Callback that does nothing."""
