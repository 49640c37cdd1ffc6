"""Pending pods of the page: rows, grouped reasons, and what differs between two looks.

The scheduler's thread copies a few fields of each record (`QueuedCopy`); rows are made of them on
the page's own thread, and only for pods that have changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan.framework import Framework, Status
from stowplan.insight.pod_placement import condition_message
from stowplan.objects.devices.gpu_cards import CARD_MILLI, COUNT_KEY, MILLI_KEY, whole_number
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.objects.podgroup import VOLCANO_QUEUE_ANNOTATION
from stowplan.web.model.node_columns import CARD_RESOURCES
from stowplan.web.model.page_frames import FrameBody
from stowplan.web.model.queue_tree import gang_key

ROWS_MAX = 5000
"""Up to this many pods are sent as rows; more are read in pages."""
POSITIONS_MAX = 100
"""Pods of the active queue that get a position: with each pop all positions change."""
REASONS_MAX = 5000
COLUMNS = (
    "id",
    "pod",
    "place",
    "position",
    "priority",
    "tries",
    "since",
    "nextTry",
    "reason",
    "gang",
    "queue",
    "gpus",
    "scheduler",
    "nominated",
)
ID, POD, SINCE, REASON, GANG, QUEUE, GPUS = (
    COLUMNS.index(name) for name in ("id", "pod", "since", "reason", "gang", "queue", "gpus")
)
NOT_TRIED = ("", "not tried yet")
OTHER_REASONS = ("", "other reasons")
Row = tuple[Any, ...]
RuleReason = tuple[str, str]

_UNAVAILABLE = re.compile(r"0/[0-9]+ nodes are available: (.*?)\.(?: |$)")
# A reason may have a comma of its own.
_PARTS = re.compile(r", (?=[0-9]+ )")
_COUNTED = re.compile(r"([0-9]+) (.+)")


class QueuedCopy(NamedTuple):
    """A pending pod at one time. position: None where it has none. next_try: milliseconds since
    1970, None where it is not timed. rules: those that refused it, or that gates it."""

    pod: Pod
    place: str
    position: int | None
    tries: int
    since: float
    next_try: float | None
    rules: tuple[str, ...]


class PendingPodFacts(msgspec.Struct, frozen=True):
    """The facts of a pod's object that a row needs."""

    gang: str
    gpus: float
    queue: str
    message: str
    created: float | None


class PendingState(msgspec.Struct, frozen=True):
    """All pending pods at one time. rows: by id. reasons: shared by all states, and only appended
    to; n_reasons: how many of them this state has. groups: by reason, the largest first."""

    rows: Mapping[int, Row]
    reasons: Sequence[RuleReason]
    n_reasons: int
    groups: Sequence[Tree]
    gpus_waiting: float

    @property
    def is_complete(self) -> bool:
        """True where frames have all rows."""
        return len(self.rows) <= ROWS_MAX

    def snapshot(self) -> FrameBody:
        """See `TopicState`."""
        rows = list(self.rows.values()) if self.is_complete else []
        tree = self._head() | {
            "reasons": self.reasons[: self.n_reasons],
            "columns": COLUMNS,
            "rows": rows,
        }
        return FrameBody(tree)

    def update_since(self, before: PendingState) -> FrameBody | None:
        """See `TopicState`."""
        if before.is_complete != self.is_complete or before.n_reasons > self.n_reasons:
            return None
        removed: list[int] = []
        rows: list[Row] = []
        if self.is_complete:
            was, now = before.rows, self.rows
            removed = [number for number in was if number not in now]
            rows = [row for number, row in now.items() if was.get(number) != row]
        tree = self._head() | {
            "newReasons": self.reasons[before.n_reasons : self.n_reasons],
            "removed": removed,
            "rows": rows,
        }
        return FrameBody(tree)

    def _head(self) -> Tree:
        return {
            "total": len(self.rows),
            "complete": self.is_complete,
            "gpusWaiting": self.gpus_waiting,
            "groups": self.groups,
        }


class PendingRows:
    """Makes states of copies. Keeps what it knows of pods that are still pending."""

    def __init__(self, rules_of: Mapping[str, str] | None = None) -> None:
        """rules_of: see `rules_of_reasons`."""
        self._rules_of = rules_of or {}
        self.reasons: list[RuleReason] = []
        self._numbers: dict[RuleReason, int] = {}
        self._ids: dict[str, int] = {}
        self._n_ids = 0
        self._facts: dict[str, tuple[Pod, PendingPodFacts]] = {}
        self._known: dict[str, tuple[QueuedCopy, Row]] = {}
        self._last: PendingState | None = None

    def state(self, copies: Iterable[QueuedCopy], queues: Mapping[str, str]) -> PendingState:
        """The state of these copies: the same object while no row changes. queues: gang -> its
        queue."""
        known: dict[str, tuple[QueuedCopy, Row]] = {}
        rows: dict[int, Row] = {}
        for copy in copies:
            uid = copy.pod.uid
            made = self._known.get(uid)
            if made is None or not _is_same(made[0], copy) or _queue(made[1], queues):
                made = copy, self._row(copy, queues)
            known[uid] = made
            rows[made[1][ID]] = made[1]
        for uid in self._known.keys() - known.keys():
            self._ids.pop(uid, None)
            self._facts.pop(uid, None)
        self._known = known
        if self._last is not None and self._last.rows == rows:
            return self._last
        groups = self._groups(rows.values())
        gpus = sum(group["gpus"] for group in groups)
        n_reasons = len(self.reasons)
        self._last = PendingState(rows, self.reasons, n_reasons, groups, round(gpus, 3))
        return self._last

    def _row(self, copy: QueuedCopy, queues: Mapping[str, str]) -> Row:
        pod = copy.pod
        facts = self._facts_of(pod)
        number = self._ids.get(pod.uid)
        if number is None:
            self._n_ids += 1
            number = self._ids[pod.uid] = self._n_ids
        reason = self._number(rule_and_reason(facts.message, copy.rules, self._rules_of))
        return (
            number,
            pod.key,
            copy.place,
            copy.position,
            pod.priority,
            copy.tries,
            copy.since if facts.created is None else facts.created,
            copy.next_try,
            reason,
            facts.gang,
            queues.get(facts.gang, facts.queue),
            facts.gpus,
            pod.spec.scheduler_name,
            pod.status.nominated_node_name or "",
        )

    def _facts_of(self, pod: Pod) -> PendingPodFacts:
        known = self._facts.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        facts = facts_of(pod)
        self._facts[pod.uid] = pod, facts
        return facts

    def _number(self, reason: RuleReason) -> int:
        number = self._numbers.get(reason)
        if number is None:
            if len(self.reasons) >= REASONS_MAX and reason != OTHER_REASONS:
                return self._number(OTHER_REASONS)
            number = self._numbers[reason] = len(self.reasons)
            self.reasons.append(reason)
        return number

    @staticmethod
    def _groups(rows: Iterable[Row]) -> list[Tree]:
        counted: dict[int, list[float]] = {}
        for row in rows:
            sums = counted.setdefault(row[REASON], [0, 0.0, row[SINCE]])
            sums[0] += 1
            sums[1] += row[GPUS]
            sums[2] = min(sums[2], row[SINCE])
        found = [
            {"reason": reason, "pods": int(pods), "gpus": round(gpus, 3), "since": since}
            for reason, (pods, gpus, since) in counted.items()
        ]
        return sorted(found, key=lambda one: (-one["pods"], one["reason"]))


def _is_same(before: QueuedCopy, after: QueuedCopy) -> bool:
    # A pod's object is compared by identity: comparing its fields costs as much as a row.
    return before.pod is after.pod and before[1:] == after[1:]


def _queue(row: Row, queues: Mapping[str, str]) -> bool:
    """True where the queue of a row's gang has changed."""
    return bool(row[GANG]) and queues.get(row[GANG], row[QUEUE]) != row[QUEUE]


def facts_of(pod: Pod) -> PendingPodFacts:
    """What a row needs of a pod."""
    created = pod.metadata.creation_timestamp
    annotations = pod.metadata.annotations
    queue = next((annotations[key] for key in QUEUE_ANNOTATIONS if annotations.get(key)), "")
    return PendingPodFacts(
        gang_key(pod),
        gpus_of(pod),
        queue,
        condition_message(pod),
        None if created is None else created.timestamp() * 1000,
    )


QUEUE_ANNOTATIONS = (VOLCANO_QUEUE_ANNOTATION, "scheduling.k8s.io/queue-name")
"""Annotations that name the queue of a pod without a group."""


def gpus_of(pod: Pod) -> float:
    """GPU cards that a pod requests: whole ones, and parts by annotation."""
    annotations = pod.metadata.annotations
    milli = whole_number(annotations.get(MILLI_KEY))
    if milli > 0:
        return milli * whole_number(annotations.get(COUNT_KEY)) / CARD_MILLI
    requests = fit_requests(pod)
    return float(sum(requests.get(name, 0) for name in CARD_RESOURCES))


def rules_of_reasons(frameworks: Mapping[str, Framework]) -> dict[str, str]:
    """Reason -> the rule that gives it, of rules whose classes have their statuses as constants."""
    found: dict[str, str] = {}
    for framework in frameworks.values():
        for name, member in framework.members.items():
            for base in type(member.plugin).__mro__:
                for value in vars(base).values():
                    if isinstance(value, Status):
                        found |= dict.fromkeys(value.reasons, name)
    return found


def rule_and_reason(message: str, rules: Sequence[str], rules_of: Mapping[str, str]) -> RuleReason:
    """The rule that refused a pod on most nodes, and its reason. message: of the PodScheduled
    condition. rules: all that refused it, in any order. rules_of: see `rules_of_reasons`."""
    if not message:
        return (", ".join(sorted(rules)), "") if rules else NOT_TRIED
    found = _UNAVAILABLE.match(message)
    if found is None:
        return ", ".join(sorted(rules)), message.partition(": ")[2][:200] or message[:200]
    counted = [_COUNTED.fullmatch(part) for part in _PARTS.split(found[1])]
    reasons = [(int(one[1]), one[2]) for one in counted if one is not None]
    if not reasons:
        return ", ".join(sorted(rules)), found[1][:200]
    _, reason = min(reasons, key=lambda one: (-one[0], one[1]))
    named = rules_of.get(reason)
    if named is not None and (named in rules or not rules):
        return named, reason[:200]
    # The rules whose reasons are known gave the others.
    others = {rules_of.get(one) for _, one in reasons}
    left = [rule for rule in rules if rule not in others]
    return ", ".join(sorted(left or rules)), reason[:200]


def page_of(state: PendingState, query: Mapping[str, str]) -> Tree:
    """A page of rows; see `GET pending`. Raises ValueError with a text for the user."""
    rows = [row for row in state.rows.values() if _matches(row, state.reasons, query)]
    sort = query.get("sort", "since")
    if sort not in COLUMNS:
        raise ValueError(f"sort: Unsupported value: {sort[:80]!r}: expected one of {COLUMNS}")
    place = COLUMNS.index(sort)
    is_descending = query.get("order", "asc") == "desc"
    # Rows without a value are last in both directions.
    rows.sort(key=lambda row: row[ID])
    with_value = [row for row in rows if row[place] is not None]
    without = [row for row in rows if row[place] is None]
    with_value.sort(key=lambda row: row[place], reverse=is_descending)
    offset, limit = whole(query, "offset", 0), whole(query, "limit", 200)
    return {
        "total": len(state.rows),
        "matching": len(rows),
        "offset": offset,
        "columns": COLUMNS,
        "rows": [*with_value, *without][offset : offset + min(limit, 1000)],
        "reasons": state.reasons[: state.n_reasons],
    }


def whole(query: Mapping[str, str], name: str, default: int) -> int:
    """A number of a query; raises ValueError."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 15:
        raise ValueError(f"{name}: Invalid value: {text[:80]!r}: expected a whole number")
    return int(text)


def _matches(row: Row, reasons: Sequence[RuleReason], query: Mapping[str, str]) -> bool:
    if "gang" in query and row[GANG] != query["gang"]:
        return False
    if "queue" in query and row[QUEUE] != query["queue"]:
        return False
    if query.get("reason") and row[REASON] != whole(query, "reason", 0):
        return False
    text = query.get("filter", "").casefold()
    if not text:
        return True
    texts = (row[POD], row[GANG], row[QUEUE], *reasons[row[REASON]])
    return any(text in one.casefold() for one in texts)
