"""The scheduling queue against a plain list of records, and that no pod is ever lost.

The model keeps one record per pod with one field for its place, looks at all of them each time,
and gives every pod in flight a list of its own of what happened meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord, QueueingStrategy, SchedulingQueue, scheduling_queue
from stowplan.queue.backoff_queue import BackoffQueue
from stowplan.testing.builders import pod
from tests.queue.fakes import NODE_ADD, NODE_LABEL, Harness
from tests.soak import examples, found_within

STEP = SECOND // 1000
UNSCHEDULABLE_MAX = 300 * SECOND


@dataclass
class Record:
    """A pod in the model."""

    name: str
    uid: str
    priority: int
    added_at: int
    place: str = "nowhere"
    refusals: int = 0
    errors: int = 0
    refused: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    deleted: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def expiry(self) -> int | None:
        count = self.errors or self.refusals
        if not count:
            return None
        return (self.added_at + min(2 ** (count - 1), 10) * SECOND) // SECOND * SECOND


class Model:
    """The queue as a list."""

    def __init__(self) -> None:
        self.now = 0
        self.closed: set[str] = set()
        self.records: list[Record] = []

    def at(self, *places: str) -> list[Record]:
        """The records in these places, as they would be popped from each."""
        found = [record for record in self.records if record.place in places]
        if places == ("active",):
            return sorted(found, key=lambda r: (-r.priority, r.added_at))
        if places == ("backoff",):
            return sorted(found, key=lambda r: (r.expiry or 0, -r.priority, r.added_at))
        return sorted(found, key=lambda r: (r.expiry or 0, r.added_at))

    def waiting(self, name: str) -> Record | None:
        """The record of a pod that is in the queue."""
        return next((r for r in self.records if r.name == name and r.place != "flight"), None)

    def enter(self, record: Record, *, ask: bool = True, may_wait: bool = False) -> None:
        """Let a record in: gated, or where it belongs by its backoff."""
        window = self.now // SECOND * SECOND
        if ask and record.name in self.closed:
            record.place = "gated"
            record.refused.add("Gate")
        elif may_wait and record.expiry is not None and record.expiry >= window:
            record.place = "backoff" if record.refused | record.pending else "failed"
        else:
            record.place = "active"

    def pop(self) -> Record | None:
        """The next one, now in flight."""
        ready = self.at("active") or self.at("backoff")
        if not ready:
            return None
        ready[0].place = "flight"
        ready[0].seen = []
        return ready[0]

    def fail(self, record: Record, refused: set[str], pending: set[str]) -> None:
        """Back from flight, by what it has seen."""
        record.refused, record.pending, record.added_at = set(refused), set(pending), self.now
        if not refused and not pending:
            record.errors += 1
            self.enter(record, may_wait=True)
            return
        record.refusals, record.errors = record.refusals + 1, 0
        worths = [self.strategy(record, *seen) for seen in record.seen]
        record.place = "unschedulable"
        if "now" in worths or "later" in worths:
            self.enter(record, may_wait="now" not in worths)

    def strategy(self, record: Record, event: str, helped: str) -> str:
        """What an event means: "now", "later" or "nothing"."""
        if event == "wildcard":
            return "later" if helped in ("", record.name) else "nothing"
        hint_codes = {
            "Picky": event == "add" and record.name in helped,
            "Easy": event == "add",
            "Gate": event == "label",
        }
        if any(hint_codes[plugin] for plugin in record.pending):
            return "now"
        return "later" if any(hint_codes[plugin] for plugin in record.refused) else "nothing"

    def happen(self, event: str, helped: str, which: list[Record]) -> None:
        """An event that may help some of the unschedulable and gated pods."""
        for record in which:
            if record.place == "gated" and event != "label":
                continue
            strategy = self.strategy(record, event, helped)
            if strategy != "nothing":
                self.enter(record, may_wait=strategy == "later")
        for record in self.at("flight"):
            record.seen.append((event, helped))

    def flush_backoff(self) -> None:
        """Whose wait is over is active."""
        window = self.now // SECOND * SECOND
        for record in self.at("backoff", "failed"):
            if (record.expiry or 0) < window:
                record.place = "active"

    def flush_unschedulable(self) -> None:
        """Retry pods that were unschedulable for too long."""
        old = [
            r
            for r in self.at("unschedulable", "gated")
            if self.now - r.added_at > UNSCHEDULABLE_MAX
        ]
        if old:
            self.happen("wildcard", "", old)


class Pair:
    """A queue and a model that go through the same; every method is one operation."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.queue, self.model = harness, harness.queue, Model()
        self.flying: list[tuple[PodRecord, Record]] = []
        self.n_added = 0

    def add(self, name: str, priority: int) -> None:
        if any(r.name == name for r in self.model.records):
            return
        self.n_added += 1
        record = Record(name, f"{name}-{self.n_added}", priority, self.model.now)
        self.model.records.append(record)
        self.model.enter(record)
        self.queue.add(self._listed(record), self.model.now)

    def pop(self) -> None:
        entry, record = self.queue.pop(), self.model.pop()
        assert (entry and entry.uid) == (record and record.uid)
        if entry is not None and record is not None:
            self.flying.append((entry, record))

    def done(self, which: int) -> None:
        if self.flying:
            entry, record = self.flying.pop(which % len(self.flying))
            self.queue.done(entry.uid)
            self.model.records.remove(record)

    def fail(self, which: int, refused: set[str], pending: set[str]) -> None:
        if not self.flying:
            return
        entry, record = self.flying.pop(which % len(self.flying))
        if record.deleted:
            self.queue.done(entry.uid)
            self.model.records.remove(record)
            return
        listed = self.harness.listed[entry.key]
        refusal = self.queue.add_unschedulable_if_not_present(
            entry, self.model.now, refused_by=refused, pending_on=pending - refused, pod=listed
        )
        assert refusal == ""
        self.model.fail(record, refused, pending - refused)

    def happen(self, event: str, helped: str) -> None:
        what = NODE_ADD if event == "add" else NODE_LABEL
        self.queue.move(what, None, tuple(helped), self.model.now)
        self.model.happen(event, helped, self.model.at("unschedulable", "gated"))

    def gate(self, name: str) -> None:
        for closed in (self.harness.closed, self.model.closed):
            closed ^= {name}

    def update(self, name: str, priority: int) -> None:
        record = next((r for r in self.model.records if r.name == name and not r.deleted), None)
        if record is None:
            return
        old = self.harness.listed[f"default/{name}"]
        record.priority = priority
        self.queue.update(old, self._listed(record), self.model.now)

    def delete(self, name: str) -> None:
        record = next((r for r in self.model.records if r.name == name and not r.deleted), None)
        if record is None:
            return
        self.queue.delete(self.harness.listed.pop(f"default/{name}"))
        if record.place == "flight":
            record.deleted = True
        else:
            self.model.records.remove(record)

    def activate(self, name: str) -> None:
        record = next((r for r in self.model.records if r.name == name and not r.deleted), None)
        if record is None:
            return
        self.queue.activate([self.harness.listed[f"default/{name}"]], self.model.now)
        if record.place == "flight":
            record.seen.append(("wildcard", name))
        elif record.place != "active":
            self.model.enter(record, ask=record.place in ("unschedulable", "gated"))

    def flush(self, is_unschedulable_flush: bool) -> None:
        if is_unschedulable_flush:
            self.queue.flush_unschedulable(self.model.now)
            self.model.flush_unschedulable()
        else:
            self.queue.flush_backoff(self.model.now)
            self.model.flush_backoff()

    def wait(self, seconds: int) -> None:
        self.model.now += seconds * SECOND

    def compare(self) -> None:
        """The same pods in the same places and orders, and each pod in exactly one place."""
        queued, model = self.harness.pods_by_queue(), self.model
        for place in ("active", "backoff", "failed"):
            assert queued.get(place, []) == [r.name for r in model.at(place)], place
        for place in ("unschedulable", "gated"):
            assert sorted(queued.get(place, [])) == sorted(r.name for r in model.at(place)), place
        flying = Counter(self.queue.in_flight.pods())
        assert flying == Counter(r.uid for r in model.at("flight"))
        everywhere = Counter(entry.uid for entry in self.queue) + flying
        assert everywhere == Counter(r.uid for r in model.records), "each pod in exactly one place"
        for entry in self.queue:
            record = model.waiting(entry.pod.name)
            assert record is not None
            assert (entry.refusals, entry.errors) == (record.refusals, record.errors)

    def _listed(self, record: Record) -> Pod:
        made = pod(record.name, uid=record.uid, priority=record.priority)
        made = replace(made, metadata=replace(made.metadata, resource_version=str(self.model.now)))
        self.harness.listed[made.key] = made
        return made


names = st.sampled_from("abcde")
priorities = st.integers(0, 2)
indexes = st.integers(0, 4)
plugins = st.sets(st.sampled_from(["Picky", "Easy"]), max_size=2)

no_pods: st.SearchStrategy[set[str]] = st.just(set())
helped = st.just("abcde") | st.text("abcde", max_size=3)

rounds = st.one_of(
    st.tuples(st.just("add"), names, priorities),
    st.tuples(st.just("pop")),
    st.tuples(st.just("fail"), indexes, plugins, no_pods),
    st.tuples(st.just("happen"), st.just("add"), helped),
    st.sampled_from([("wait", 1), ("flush", False)]),
)
rarities = st.one_of(
    st.tuples(st.just("fail"), indexes, plugins, plugins),
    st.tuples(st.just("done"), indexes),
    st.tuples(st.just("happen"), st.just("label"), helped),
    st.tuples(st.just("gate"), names),
    st.tuples(st.just("update"), names, priorities),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("activate"), names),
    st.tuples(st.just("flush"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([2, 5, 301])),
)
# Long enough for a pod to fail several times, which short scripts never show.
scripts = st.lists(rounds | rarities, min_size=40, max_size=80)


def check_queue(make: type[SchedulingQueue], *phases: Phase) -> None:
    """phases: of Hypothesis, all if none; a control need not find its smallest failure."""

    count = found_within(150) if phases else examples(150)

    @settings(max_examples=count, phases=phases or Phase, report_multiple_bugs=False)
    @given(scripts)
    def agrees(script: list[tuple[str, ...]]) -> None:
        harness = Harness()
        harness.queue.__class__ = make
        pair = Pair(harness)
        for name, *arguments in script:
            pair.model.now += STEP
            getattr(pair, name)(*arguments)
            pair.compare()

    agrees()


def test_the_queue_is_the_list_and_loses_no_pod() -> None:
    check_queue(SchedulingQueue)


def test_control_a_queue_that_forgets_what_happened_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(entry: PodRecord, hints: object, missed: object) -> QueueingStrategy:
        return QueueingStrategy.SKIP if entry.refusers else QueueingStrategy.AFTER_BACKOFF

    monkeypatch.setattr(scheduling_queue, "strategy_after_flight", forgetful)
    with pytest.raises(AssertionError):
        check_queue(SchedulingQueue, Phase.generate)


def test_control_a_queue_that_loses_who_is_gated_on_the_way_to_backoff() -> None:
    class Losing(SchedulingQueue):
        def _requeue(
            self, entry: PodRecord, strategy: QueueingStrategy, now: int, **opened: bool
        ) -> object:  # type: ignore[override]
            if strategy is not QueueingStrategy.SKIP and not self.gates.admits(entry):
                return None
            return super()._requeue(entry, strategy, now, **opened)

    with pytest.raises(AssertionError):
        check_queue(Losing, Phase.generate)


def test_control_a_wait_that_ends_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        BackoffQueue, "_is_over", lambda self, ends, now: ends <= now - now % SECOND
    )
    with pytest.raises(AssertionError):
        check_queue(SchedulingQueue, Phase.generate)
