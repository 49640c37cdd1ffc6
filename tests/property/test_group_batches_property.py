"""Groups that are placed together, and members that arrive together, end as those that come one by
one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict, replace

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod, PodSchedulingGroup
from stowplan.objects.scheduling_group import (
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingGroup,
    SchedulingGroupMeta,
    SchedulingGroupSpec,
)
from stowplan.queue import scheduling_queue
from stowplan.queue.heap import KeyedHeap
from stowplan.scheduler import Scheduler, scheduler
from stowplan.scheduler.pod_groups import group_batches, member_arrivals
from stowplan.scheduler.pod_groups.group_batches import GroupBatches, GroupTieBreaks
from stowplan.testing import node, pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

GATES = FeatureGates(generic_workload=True, gang_scheduling=True)
N_SEEDS, N_ROUNDS, N_HEADS = 24, 4, 9


def made(seed: int) -> Scheduler:
    configuration, registry = configuration_of(None, "default", (), GATES)
    rng = np.random.default_rng(seed) if seed % 3 else None
    return scheduler_for(configuration, registry, GATES, rng, engine="compiled")


def group_of(name: str, n_min: int) -> SchedulingGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(n_min))
    meta = SchedulingGroupMeta(name=name, namespace="default", uid=name)
    return SchedulingGroup(metadata=meta, spec=SchedulingGroupSpec(scheduling_policy=policy))


def gang(rng: RandomSource, name: str) -> tuple[SchedulingGroup, list[Pod]]:
    """A group, and its pods of one template; sometimes one of another template."""
    size = random_int(rng, 1, 5)
    n_min = size if not chance(rng, 4) else random_int(rng, 1, size + 1)
    template = pod("t", cpu=pick(rng, ("1", "1", "2")), priority=pick(rng, (0, 0, 0, 5)))
    spec = replace(template.spec, scheduling_group=PodSchedulingGroup(name))
    names = [f"{name}-{i}" for i in range(size)]
    metas = [replace(template.metadata, name=one, uid=one) for one in names]
    members = [replace(template, metadata=meta, spec=spec) for meta in metas]
    if chance(rng, 6):
        odd = replace(spec, priority=pick(rng, (0, 7)))
        members[-1] = replace(members[-1], spec=odd)
    return group_of(name, n_min), members


def round_of(rng: RandomSource, number: int) -> list[Event]:
    """Groups with their pods, in pieces and in turn, and other pods between them."""
    pieces: list[list[Event]] = []
    for each in range(random_int(rng, 2, 6)):
        group, members = gang(rng, f"g{number}-{each}")
        added: list[Event] = [happened.PodAdded(one) for one in members]
        known: Event = happened.ObjectAdded(group)
        if chance(rng, 5):
            pieces.append([*added, known])
        elif chance(rng, 4):
            cut = random_int(rng, 0, len(added))
            pieces += [[known, *added[:cut]], added[cut:]]
        else:
            pieces.append([known, *added])
        if chance(rng, 8):
            pieces[-1].append(happened.PodDeleted(members[0]))
        if chance(rng, 3):
            plain = pod(f"p{number}-{each}", cpu="1", priority=pick(rng, (0, 5)))
            pieces.append([happened.PodAdded(plain)])
    if chance(rng, 2):
        # Groups first, in turn with each other.
        pieces.sort(key=lambda piece: bool(piece) and isinstance(piece[0], happened.PodAdded))
    return [event for piece in pieces for event in piece]


Handle = Callable[[Scheduler, list[Event], int, int], list[Effect]]


def at_once(one: Scheduler, events: list[Event], now: int, n_heads: int) -> list[Effect]:
    return one.handle(events, now, n_heads)


def in_turn(one: Scheduler, events: list[Event], now: int, n_heads: int) -> list[Effect]:
    """The same events one by one, and the same attempts in a call each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "with_members_together", iter)
        patch.setattr(scheduling_queue, "common_strategy", lambda *_: None)
        effects = one.handle(events, now, 0)
        for _ in range(n_heads):
            effects += one.handle([], now, 1)
    return effects


def observed(effects: list[Effect]) -> list[str]:
    """Effects without their numbers; in their order only for one object."""
    found = []
    for one in effects:
        if not isinstance(one, to_do.Wake):
            fields = asdict(one)
            del fields["effect"]
            found.append((getattr(one, "uid", ""), type(one).__name__, str(fields)))
    return [str(one) for one in sorted(found, key=lambda one: one[0])]


def state_of(one: Scheduler) -> Any:
    """What the scheduler keeps of its pods."""
    queue = one.queue
    states = one.pod_groups
    assert states is not None
    records = {
        uid: (each.state, each.attempts, each.refusals, each.initial_attempt, each.tie_break,
              each.gated_by, sorted(each.refused_by), each.added_at, each.binding.node,
              each.binding.announced, each.cycle)
        for uid, each in one.pods.records.items()
    }  # fmt: skip
    groups = {
        key: (list(state.pods), state.arrived, list(state.unscheduled), list(state.assumed))
        for key in sorted(states)
        if (state := states.get(key)) is not None
    }
    return (
        [each.key for each in queue.active.in_order()],
        sorted(each.key for each in queue.backoff),
        [each.key for each in queue.unschedulable_pods],
        queue.incoming,
        (queue.cycle, queue.unschedulable_pods.since, queue.in_flight.pods()),
        records,
        groups,
        [[info.uid for info in pods] for pods in one.cache.nodes.pods],
    )


def answered(effects: list[Effect], pods: dict[str, Pod], rng: RandomSource) -> list[Event]:
    """What the API server answers, and the watch shows, of some of the bindings."""
    binds = [one for one in effects if isinstance(one, to_do.Bind)]
    events: list[Event] = []
    for one in sorted(binds, key=lambda one: one.uid):
        if chance(rng, 6):
            events.append(happened.BindFailed(one.effect, one.uid, 409, "conflict"))
        elif not chance(rng, 4):
            seen = pods[one.uid]
            seen = replace(seen, spec=replace(seen.spec, node_name=one.node))
            events.append(happened.PodUpdated(seen))
    return events


def result(seed: int, handle: Handle) -> Any:
    """All effects, and the state after each round."""
    one = made(seed)
    rng = np.random.default_rng(seed)
    nodes = [node(f"n{i}", cpu=pick(rng, ("2", "4", "6"))) for i in range(random_int(rng, 2, 6))]
    one.handle([happened.NodeAdded(each) for each in nodes], 0, 0)
    found: list[Any] = []
    pods: dict[str, Pod] = {}
    answers: list[Event] = []
    for number in range(N_ROUNDS):
        events = [*answers, *round_of(rng, number)]
        pods |= {each.pod.uid: each.pod for each in events if isinstance(each, happened.PodAdded)}
        effects = handle(one, events, number * 3 * SECOND, N_HEADS)
        one.validate()
        found.append((observed(effects), state_of(one)))
        answers = answered(effects, pods, rng)
    return found


def differs() -> bool:
    return any(result(seed, at_once) != result(seed, in_turn) for seed in range(N_SEEDS))


def test_groups_that_are_placed_together_end_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    run = GroupBatches.run

    def counted(self: GroupBatches, *given: Any) -> Any:
        found = run(self, *given)
        together.append(len(found))
        return found

    opened: list[int] = []
    common = scheduling_queue.common_strategy

    def counted_strategy(*given: Any) -> Any:
        strategy = common(*given)
        opened.append(bool(strategy))
        return strategy

    monkeypatch.setattr(GroupBatches, "run", counted)
    monkeypatch.setattr(scheduling_queue, "common_strategy", counted_strategy)
    for seed in range(N_SEEDS):
        assert result(seed, at_once) == result(seed, in_turn), seed
    assert sum(n_groups > 1 for n_groups in together) > N_SEEDS
    assert sum(opened) > 3


def test_groups_that_stay_popped_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_batches, "undo_pop_active", lambda *_: None)
    with pytest.raises(InvariantBroken):
        differs()


def test_groups_that_go_back_to_the_end_of_the_queue_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeyedHeap, "restore", lambda self, item: self.put(item[2]))
    assert differs()


def test_tie_breaks_of_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made_of = GroupTieBreaks.__init__

    def wrong(self: GroupTieBreaks, groups: Any, rng: Any) -> None:
        made_of(self, [replace(one, popped=one.records[0]) for one in groups], rng)

    monkeypatch.setattr(GroupTieBreaks, "__init__", wrong)
    assert differs()


def test_members_that_overtake_the_one_that_frees_them_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter = member_arrivals.enter_opening

    def wrong(queue: Any, entries: Any, gate: str, n_gated: int, now: int) -> None:
        enter(queue, entries, gate, 0, now)

    monkeypatch.setattr(member_arrivals, "enter_opening", wrong)
    assert differs()


def test_a_group_that_is_opened_for_all_of_its_kind_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(entries: Any, *_: Any) -> Any:
        return scheduling_queue.QueueingStrategy.AFTER_BACKOFF

    monkeypatch.setattr(scheduling_queue, "common_strategy", wrong)
    assert differs()
