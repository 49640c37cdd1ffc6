"""Sessions count GPU cards one by one: in one account with the profiles, and by the annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.sessions import session_config
from stowplan.batch.state.nodes import SessionNodes
from stowplan.client.binding.binding_times import BindingTimes
from stowplan.columns.nodetable import table_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.gpu_cards import COUNT_KEY, INDEX_KEY, MILLI_KEY
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.conventions import hami, volcano_vgpu
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger
from tests.plugins.gpu_share.gpu_cases import gpu_node
from tests.plugins.gpu_share.test_device_sharing import (
    gpu_pod,
    hami_node,
    vgpu_pod,
    volcano_node,
)
from tests.scenarios import group_commands
from tests.soak import examples

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: GpuShare}]}}
  pluginConfig:
  - {name: GpuShare, args: ARGS}
"""


class CardSessions:
    """A scheduler with sessions, and an API server that does what it asks for."""

    def __init__(self, *nodes: Node, actions: str = "allocate,backfill", **args: Any) -> None:
        texts = [ConfigText(group_commands.configured([f"actions={actions}"]), "batch.yaml")]
        if args:
            texts.append(ConfigText(PROFILE.replace("ARGS", json.dumps(args)), "profiles.yaml"))
        self.scheduler = deciders_of(texts).scheduler()
        self.times = BindingTimes()
        self.now = 0
        self.pods: dict[str, Pod] = {}
        self.evicted: list[str] = []
        self.reasons: dict[str, str] = {}
        queue = happened.ObjectAdded(group_commands.queue("default", "1", {}))
        self.handle(*map(happened.NodeAdded, nodes), queue, happened.Synced())

    def handle(self, *events: Event) -> None:
        """Pass events on, and what follows from them, until nothing does."""
        for event in events:
            if isinstance(event, happened.PodAdded):
                self.pods[event.pod.name] = event.pod
        waiting: Sequence[Event] = events
        for _ in range(20):
            self.now += SECOND
            effects = self.scheduler.handle(waiting, self.now)
            self.scheduler.validate()
            waiting = [one for effect in effects for one in self._done(effect)]
            if not waiting:
                return
        raise AssertionError("sessions do not settle")

    def _done(self, effect: to_do.Effect) -> list[Event]:
        match effect:
            case to_do.Bind():
                before = self.pods[effect.name]
                added = self.times.annotations(effect, self.now)
                notes = {**before.metadata.annotations, **added}
                after = replace(
                    before,
                    metadata=replace(before.metadata, annotations=notes),
                    spec=replace(before.spec, node_name=effect.node),
                    status=replace(before.status, phase="Running"),
                )
                self.pods[effect.name] = after
                return [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(after)]
            case to_do.Evict():
                self.evicted.append(effect.name)
                gone = self.pods.pop(effect.name)
                return [happened.EvictDone(effect.effect, effect.uid), happened.PodDeleted(gone)]
            case to_do.PatchStatus():
                self.reasons[effect.name] = effect.message
        return []

    def add(self, *pods: Pod) -> None:
        """Create pods, all seen by one session."""
        self.handle(*map(happened.PodAdded, pods))

    @property
    def placed(self) -> dict[str, str]:
        """Name of each pod with a node -> its cards of open-gpu-share."""
        return {
            name: pod.metadata.annotations.get(INDEX_KEY, "")
            for name, pod in sorted(self.pods.items())
            if pod.node_name
        }

    def most_on_a_card(self) -> int:
        """The most milli that pods have of a card, by their annotations."""
        totals: dict[tuple[str, str], int] = {}
        for pod in self.pods.values():
            notes = pod.metadata.annotations
            for card in notes.get(INDEX_KEY, "").split("-") if pod.node_name else ():
                key = pod.node_name, card
                totals[key] = totals.get(key, 0) + int(notes[MILLI_KEY])
        return max(totals.values(), default=0)


def part(name: str, milli: int, num: int = 1, group: str = "", priority: int = 0) -> Pod:
    """A pod with parts of cards, in a group or alone."""
    made = gpu_pod(name, {})
    notes = {MILLI_KEY: str(milli), COUNT_KEY: str(num), **group_commands.annotations(group)}
    spec = replace(made.spec, scheduler_name="kube-batch", priority=priority)
    return replace(made, metadata=replace(made.metadata, annotations=notes), spec=spec)


def for_sessions(made: Pod) -> Pod:
    return replace(made, spec=replace(made.spec, scheduler_name="kube-batch"))


def group(name: str, least: int, priority: str = "") -> Event:
    given = {"min": str(least)} | ({"priority": priority} if priority else {})
    return happened.ObjectAdded(group_commands.group(name, "1", given))


def priorities(**values: str) -> list[Event]:
    return [
        happened.ObjectAdded(group_commands.priority(name, "1", {"value": value}))
        for name, value in values.items()
    ]


def test_a_card_is_given_once() -> None:
    cluster = CardSessions(gpu_node("n", 1))
    cluster.add(*(part(name, 900) for name in "abc"))
    assert cluster.placed == {"a": "0"}
    assert "1 node(s) had too little left on their GPU cards" in cluster.reasons["b"]
    cluster.handle(happened.PodDeleted(cluster.pods.pop("a")))
    assert cluster.placed == {"b": "0"}


def test_no_ledger_follows_the_pods_where_none_requests_cards() -> None:
    cluster = CardSessions(gpu_node("n", 1))
    cluster.add(for_sessions(gpu_pod("plain", {})))
    assert cluster.placed == {"plain": ""}
    nodes = cluster.scheduler.cache.snapshot().nodes
    assert CardLedger.existing(nodes) is None
    assert DeviceLedger.existing(nodes) is None
    cluster.add(part("a", 900))
    assert cluster.placed["a"] == "0"
    assert CardLedger.existing(nodes) is CardLedger.of(nodes)


def test_pods_of_one_spec_that_request_different_parts() -> None:
    cluster = CardSessions(gpu_node("n", 1))
    first = part("a", 900)
    small = {MILLI_KEY: "100", COUNT_KEY: "1"}
    others = [
        replace(
            first,
            metadata=replace(first.metadata, name=name, uid=f"default/{name}", annotations=notes),
        )
        for name, notes in (("b", dict(first.metadata.annotations)), ("c", small), ("d", {}))
    ]
    cluster.add(first, *others)
    assert cluster.placed == {"a": "0", "c": "0", "d": ""}


def test_a_gang_gets_its_cards_together_or_none() -> None:
    cluster = CardSessions(gpu_node("n1", 1), gpu_node("n2", 1))
    cluster.handle(
        group("g", 3), *(happened.PodAdded(part(f"g{i}", 600, group="g")) for i in range(3))
    )
    assert cluster.placed == {}
    # What was taken for it on trial is free.
    cluster.add(part("a", 600), part("b", 600))
    assert cluster.placed == {"a": "0", "b": "0"}


def test_cards_are_bound_as_the_session_has_chosen_them() -> None:
    """In the order of names, which is that of assumptions, these do not fit on two cards."""
    cluster = CardSessions(gpu_node("n", 2))
    cluster.handle(*priorities(high="9"), group("big", 2, "high"), group("small", 2))
    pods = [part(name, 700, group="big") for name in ("y", "z")]
    pods += [part(name, 300, group="small") for name in ("a", "b")]
    cluster.add(*pods)
    assert sorted(cluster.placed) == ["a", "b", "y", "z"]
    assert cluster.most_on_a_card() == 1000
    cluster.add(part("c", 10))
    assert "c" not in cluster.placed


def test_preemption_frees_a_card_and_nothing_else() -> None:
    cluster = CardSessions(gpu_node("n", 2), actions="allocate,preempt")
    cluster.handle(*priorities(low="1", high="9"), group("old", 1, "low"), group("new", 1, "high"))
    cluster.add(*(part(f"old{i}", milli, group="old") for i, milli in enumerate((900, 300))))
    assert cluster.placed == {"old0": "0", "old1": "1"}
    cluster.add(part("new0", 700, group="new"))
    # Beside 300 there is room.
    assert cluster.evicted == []
    assert cluster.placed["new0"] == "1"
    cluster.handle(group("more", 1, "high"), happened.PodAdded(part("more0", 600, group="more")))
    assert cluster.evicted == ["old0"]
    assert cluster.placed == {"more0": "0", "new0": "1", "old1": "1"}


def test_no_victim_where_no_card_would_be_freed() -> None:
    """Beside a pod that stays on each card: evicting the others frees no whole card."""
    cluster = CardSessions(gpu_node("n", 2), actions="allocate,preempt")
    cluster.handle(
        *priorities(low="1", high="9", top="99"),
        group("stays", 2, "top"),
        group("old", 1, "low"),
        group("new", 1, "high"),
    )
    cluster.add(*(part(f"stays{i}", 600, group="stays") for i in range(2)))
    cluster.add(*(part(f"old{i}", 300, group="old") for i in range(2)))
    assert len(cluster.placed) == 4
    cluster.add(part("new0", 1000, group="new"))
    assert cluster.evicted == []
    cluster.add(part("new1", 400, group="new"))
    assert len(cluster.evicted) == 1
    assert "new1" in cluster.placed


@pytest.mark.parametrize(
    ("target", "asks"),
    [
        (volcano_node("n", ("GPU-0", 16000)), vgpu_pod("x", 1, 9000)),
        (hami_node("n", ("GPU-0", 16000)), gpu_pod("x", {hami.NUMBER: 1, hami.MEMORY: 9000})),
    ],
)
def test_registered_devices(target: Node, asks: Pod) -> None:
    """`nvidia.com/gpumem` is offered by no node: it is counted by card only."""
    cluster = CardSessions(target)
    asks = for_sessions(asks)
    pods = [
        replace(asks, metadata=replace(asks.metadata, name=name, uid=name)) for name in ("a", "b")
    ]
    cluster.add(*pods)
    assert list(cluster.placed) == ["a"]
    notes = cluster.pods["a"].metadata.annotations
    assert "GPU-0,NVIDIA,9000,0:" in (notes.get(volcano_vgpu.IDS) or notes[hami.ALLOCATED])
    assert "1 node(s) had too little left on their GPUs" in cluster.reasons["b"]


def test_arguments_are_those_of_the_profile() -> None:
    cluster = CardSessions(gpu_node("n", 2), gpuSel="worst")
    cluster.add(part("a", 100))
    cluster.add(part("b", 100))
    assert cluster.placed == {"a": "0", "b": "1"}


def test_requests_that_cannot_be_are_refused() -> None:
    cluster = CardSessions(gpu_node("n", 1))
    cluster.add(part("a", 1500), part("b", 500))
    assert cluster.placed == {"b": "0"}
    assert "alibabacloud.com/gpu-milli: got '1500'" in cluster.reasons["a"]


# Properties.

JOBS = st.lists(
    st.tuples(
        st.sampled_from([100, 300, 400, 600, 700, 1000]),
        st.integers(1, 2),
        st.integers(1, 3),
        st.sampled_from(["low", "high"]),
    ),
    min_size=1,
    max_size=6,
)


def run_jobs(jobs: Sequence[tuple[int, int, int, str]]) -> CardSessions:
    """Gangs that arrive one after the other, some of which evict others."""
    cluster = CardSessions(gpu_node("n1", 2), gpu_node("n2", 1), actions="allocate,preempt")
    cluster.handle(*priorities(low="1", high="9"))
    for number, (milli, num, size, priority) in enumerate(jobs):
        name = f"g{number}"
        pods = [part(f"{name}-{i}", milli, num, group=name) for i in range(size)]
        cluster.handle(group(name, size, priority), *map(happened.PodAdded, pods))
        assert cluster.most_on_a_card() <= 1000
    return cluster


def left_of(cluster: CardSessions) -> tuple[list[list[int]], list[list[int]]]:
    """Milli left of each card: as counted by delta, and as a restart counts it."""
    table = cluster.scheduler.cache.snapshot().nodes
    pods = [info.pod for row in range(table.n_nodes) for info in table.info(row).pods]
    again = CardLedger.of(table_of(table.nodes, pods)).columns()
    return CardLedger.of(table).columns().left.tolist(), again.left.tolist()


@settings(max_examples=examples(25), deadline=None)
@given(JOBS)
def test_no_card_is_given_twice_and_a_restart_counts_the_same(
    jobs: list[tuple[int, int, int, str]],
) -> None:
    kept, rebuilt = left_of(run_jobs(jobs))
    assert kept == rebuilt


@pytest.mark.parametrize("counts_cards", [True, False])
def test_sessions_that_see_no_cards_are_found(
    counts_cards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the account of cards a session places both; the binding refuses the second."""
    if not counts_cards:
        monkeypatch.setattr(session_config, "gpu_plugin", lambda framework: None)
    chosen: set[str] = set()
    place = SessionNodes.place

    def noting(nodes: SessionNodes, row: int, task: Any, **options: Any) -> str:
        chosen.add(task.pod.name)
        return place(nodes, row, task, **options)

    monkeypatch.setattr(SessionNodes, "place", noting)
    cluster = CardSessions(gpu_node("n", 1))
    cluster.add(part("a", 900), part("b", 900))
    assert chosen == ({"a"} if counts_cards else {"a", "b"})
    assert list(cluster.placed) == ["a"]
