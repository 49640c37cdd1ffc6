"""Twins: one cluster twice, one decided by the engine, one by the walks, and what happens to both.

Whatever the engine does not take is decided as the machine does it: by the walk, in its turn.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stowplan.assembly import registered
from stowplan.columns import NodeTable
from stowplan.columns.engine.tie_break import NO_TIE_BREAKS, draw_tie_breaks
from stowplan.columns.invariants import validate
from stowplan.config import default, from_tree
from stowplan.cycle import CycleDecider, decide
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import FeatureGates, Framework, Nominations, ObjectStore, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.generators.api_objects import generate_objects
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.property import engine_objects as objects
from tests.property.engine_objects import SpecChange

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
TEMPLATES_MAX = 12
SCALAR_ROWS = 60
"""How many rows the scalar walk looks at per run, about: it is slow."""

Profile = dict[str, Any] | None


class Course(msgspec.Struct, frozen=True):
    """What a journey is like.

    profile: the body of a configuration. wishes: what templates may want. sizes: how many nodes
    there are at first. foreign: how often something else happens than a run, of 10 steps.
    happenings: what that may be, anything if empty. fresh: every pod has a template of its own.
    drawn: ties are drawn.
    """

    profile: Profile = None
    wishes: tuple[SpecChange, ...] = objects.WISHES
    sizes: tuple[int, ...] = (0, 1, 2, 5, 8, 12, 12, 30, 30)
    foreign: int = 6
    happenings: tuple[Callable[[Any], None], ...] = ()
    fresh: bool = False
    random_ties: bool = False


@cache
def frameworks_of(profile: bytes) -> tuple[Framework, Framework]:
    """The profile's framework, and one that asks node by node."""
    full, defaults = registered()
    tree = msgspec.json.decode(profile)
    made = (
        default(full, defaults) if tree is None else from_tree(tree, "", full, defaults, body=True)
    )
    (chosen,) = made.profiles.values()
    gates = FeatureGates()
    return Framework(chosen, full, gates), Framework(chosen, full, gates, columns=False)


class Twins:
    """One cluster twice. counted: what the engine has done, and what was left to the walk."""

    def __init__(self, seed: int, course: Course, kernels: ModuleType) -> None:
        self.rng = np.random.default_rng(seed)
        self.course = course
        self.columns, self.scalar = frameworks_of(msgspec.json.encode(course.profile))
        self.fast, self.slow = (
            Snapshot(NodeTable(), ObjectStore(), Nominations()) for _ in range(2)
        )
        self.decider = CycleDecider(EngineMode.COMPILED)
        self.engine = self.decider._engine = Engine(kernels)
        self.counted: Counter[str] = Counter()
        self.bound: dict[str, Pod] = {}
        self.templates: list[Pod] = []
        self._born = 0
        n_nodes = pick(self.rng, course.sizes)
        for _ in range(n_nodes):
            self.add_node(objects.node(self.rng, self._name("n")))
        homes = [*self.names, "n-unseen"]
        for value in generate_objects(self.rng, homes):
            self.put(value)
        for _ in range(random_int(self.rng, 0, n_nodes)):
            self.bind_foreign()

    @property
    def names(self) -> list[str]:
        """The nodes that there are."""
        return self.slow.nodes.names

    def _name(self, letter: str) -> str:
        self._born += 1
        return f"{letter}{self._born}"

    # What happens to both.

    def both(self, change: Callable[[Snapshot], Any]) -> None:
        """Let it happen to either twin."""
        change(self.fast)
        change(self.slow)

    def put(self, value: Object) -> None:
        """An object beside nodes and pods is there or has changed."""
        self.both(lambda one: one.object_store.put(value))

    def add_node(self, node: Node) -> None:
        """A node arrives."""
        self.both(lambda one: one.nodes.add_node(node))

    def bind_foreign(self) -> None:
        """Somebody else binds a pod, fit or not, perhaps to a node that is not there yet."""
        name = self._name("f")
        made = objects.template(self.rng, self.course.wishes)
        if self.templates and chance(self.rng, 2):
            made = pick(self.rng, self.templates)
        there = objects.named(made, name, on=pick(self.rng, [*self.names, "n-unseen"]))
        self.bound[name] = there
        self.both(lambda one: one.nodes.add_pod(there))

    def remove(self, uid: str) -> None:
        """A bound pod is gone."""
        del self.bound[uid]
        self.both(lambda one: one.nodes.remove_pod(uid))

    # A run.

    def run(self, pods: Sequence[Pod]) -> None:
        """Place pods on either twin and compare."""
        tie_breaks = (
            draw_tie_breaks(self.rng, len(pods)) if self.course.random_ties else NO_TIE_BREAKS
        )
        found = self._place_fast(pods, tie_breaks)
        rows_left = SCALAR_ROWS
        for i, pod in enumerate(pods):
            draw = int(tie_breaks[i]) if self.course.random_ties else None
            decision = self._walk(pod, draw, self.columns)
            if rows_left > 0:
                rows_left -= self.slow.nodes.n_nodes + 1
                again = self._walk(pod, draw, self.scalar)
                assert again.node_name == decision.node_name, f"{pod.name}: walks differ"
            self._compare(pod, found[i], decision)
            if decision.node_name:
                self.bound[pod.uid] = objects.named(pod, pod.name, on=decision.node_name)
                self.slow.nodes.add_pod(pod, decision.node_name)
        self.compare_amounts()
        refused = [i for i, decision in enumerate(found) if not decision.node_name]
        if refused:
            # Templates that fit nowhere would soon be all that there are.
            spec = pods[refused[-1]].spec
            self.templates = [one for one in self.templates if one.spec is not spec]
            if chance(self.rng, 4):
                self._preempt(pods[refused[-1]], found[refused[-1]])

    def _walk(self, pod: Pod, draw: int | None, framework: Framework) -> Decision:
        self.slow.nodes.refresh()
        return decide(pod, self.slow, framework, draw)

    def _compare(self, pod: Pod, got: Decision, wanted: Decision) -> None:
        difference = f"{pod.name} of {dict(self.counted)}: {got} is not {wanted}"
        assert got.node_name == wanted.node_name, difference
        # The walk scores nothing where one node is left.
        assert wanted.score in (None, got.score), difference
        assert got.message == wanted.message, difference
        assert got.nominated_node == wanted.nominated_node, difference
        assert [v.uid for v in got.victims] == [v.uid for v in wanted.victims], difference

    def _place_fast(self, pods: Sequence[Pod], tie_breaks: NDArray[np.uint64]) -> list[Decision]:
        """What becomes of each pod where the engine places what it can."""
        classes = [self.engine.class_of(pod, self.columns) for pod in pods]
        found: list[Decision] = []
        while len(found) < len(pods):
            start = len(found)
            if classes[start] is None:
                self.counted["without a class"] += 1
                found.append(self._attempt(pods[start], tie_breaks[start : start + 1]))
                continue
            end = start
            while end < len(pods) and classes[end] is not None:
                end += 1
            found += self._run_fast(pods[start:end], classes[start:end], tie_breaks[start:end])
        return found

    def _run_fast(
        self, pods: Sequence[Pod], classes: Sequence[Any], tie_breaks: NDArray[np.uint64]
    ) -> list[Decision]:
        """As `scheduler.runs` does it."""
        run = self.engine.run(pods, classes, tie_breaks)
        found: list[Decision] = []
        while len(found) < len(pods):
            start = len(found)
            self.fast.nodes.refresh()
            if len(self.fast.nominations):
                self.counted["while pods are nominated"] += 1
            elif classes[start].refusal_in(self.fast) is not None:
                self.counted["refused as before"] += 1
            else:
                rows = run.place(start, self.fast)
                scores = run.scores[start : start + len(rows)].tolist()
                found += [
                    Decision(node_name=self.fast.nodes.names[row], score=score)
                    for row, score in zip(rows, scores, strict=True)
                ]
                self.counted["placed"] += len(rows)
                start = len(found)
                if start == len(pods):
                    break
                is_fast = run.heads[start] >= 0
                self.counted["refused" if is_fast else "without a plan"] += 1
                found.append(self._attempt(pods[start], tie_breaks[start : start + 1]))
                assert not (is_fast and found[-1].node_name), f"{pods[start].name} fits"
                continue
            found.append(self._attempt(pods[start], tie_breaks[start : start + 1]))
        return found

    def _attempt(self, pod: Pod, tie_breaks: NDArray[np.uint64]) -> Decision:
        """The walk's decision."""
        self.fast.nodes.refresh()
        draw = int(tie_breaks[0]) if self.course.random_ties else None
        decision = self.decider.decide(pod, self.fast, self.columns, draw)
        if decision.node_name:
            self.fast.nodes.add_pod(pod, decision.node_name)
        return decision

    def _preempt(self, pod: Pod, decision: Decision) -> None:
        """Do what a refusal asks for: the victims go, the pod is nominated for a while."""
        if decision.nominated_node and decision.victims:
            for victim in decision.victims:
                self.remove(victim.uid)
            self.both(lambda one: one.nominations.add(pod, decision.nominated_node or ""))

    def compare_amounts(self) -> None:
        """Both tables hold the same."""
        fast, slow = self.fast.nodes, self.slow.nodes
        assert fast.names == slow.names
        assert (fast.pod_count == slow.pod_count).all()
        for name in slow.resources.values:
            assert (fast.requested(name) == slow.requested(name)).all(), name
        for name in ("cpu", "memory"):
            assert (fast.nonzero_requested(name) == slow.nonzero_requested(name)).all(), name

    # Steps.

    def step(self) -> None:
        """A run of pods, or something else."""
        if chance(self.rng, 2):
            self._end_nominations()
        if random_int(self.rng, 1, 10) <= self.course.foreign:
            pick(self.rng, self.course.happenings or HAPPENINGS)(self)
            return
        if not self.templates or chance(self.rng, 4):
            self.templates.append(objects.template(self.rng, self.course.wishes))
            del self.templates[:-TEMPLATES_MAX]
        pods = []
        for _ in range(pick(self.rng, (1, 3, 8, 15, 30))):
            made = pick(self.rng, self.templates)
            if self.course.fresh:
                made = objects.template(self.rng, self.course.wishes)
            pods.append(objects.named(made, self._name("p")))
        self.run(pods)

    def _end_nominations(self) -> None:
        """Nobody waits for room any more."""
        waiting = self.slow.nominations
        for uid in [info.uid for name in waiting.nodes() for info in waiting.on(name)]:
            self.fast.nominations.drop(uid)
            self.slow.nominations.drop(uid)

    def walk(self, n_steps: int) -> None:
        """So many steps, and a look at everything that is kept by delta."""
        for _ in range(n_steps):
            self.step()
        validate(self.fast.nodes)


# What else may happen.


def pods_go(twins: Twins) -> None:
    """Some of the bound pods are gone."""
    for _ in range(random_int(twins.rng, 1, max(6, len(twins.bound) // 2))):
        if twins.bound:
            twins.remove(pick(twins.rng, tuple(twins.bound)))


def a_pod_changes(twins: Twins) -> None:
    """A bound pod gets other labels, or is being deleted."""
    if not twins.bound:
        return
    uid = pick(twins.rng, tuple(twins.bound))
    pod = twins.bound[uid]
    if chance(twins.rng, 3):
        meta = replace(pod.metadata, deletion_timestamp=NOW)
    else:
        meta = replace(pod.metadata, labels=objects.Wishes(twins.rng).labels)
    changed = twins.bound[uid] = replace(pod, metadata=meta)
    twins.both(lambda one: one.nodes.update_pod(changed))


def a_node_comes(twins: Twins) -> None:
    """A node arrives; now and then the one that pods wait on."""
    name = "n-unseen" if chance(twins.rng, 3) else twins._name("n")
    if twins.slow.nodes.row(name) < 0:
        twins.add_node(objects.node(twins.rng, name))


def a_node_goes(twins: Twins) -> None:
    """A node leaves; its pods are not gone yet."""
    if twins.names:
        name = pick(twins.rng, twins.names)
        twins.both(lambda one: one.nodes.remove_node(name))


def a_node_changes(twins: Twins) -> None:
    """A node has another content altogether, or offers more or less."""
    if not twins.names:
        return
    row = random_int(twins.rng, 0, len(twins.names) - 1)
    before = twins.slow.nodes.nodes[row]
    after = objects.node(twins.rng, before.name)
    if not chance(twins.rng, 3):
        status = replace(before.status, allocatable=after.status.allocatable)
        after = replace(before, status=status)
    twins.both(lambda one: one.nodes.update_node(after))


def a_namespace_changes(twins: Twins) -> None:
    """A namespace has other labels."""
    twins.put(objects.namespace(twins.rng, pick(twins.rng, objects.NAMESPACES)))


def a_controller_changes(twins: Twins) -> None:
    """What pods are spread by is there or has changed."""
    twins.put(objects.controller(twins.rng, pick(twins.rng, objects.APPS)))


def a_pod_is_nominated(twins: Twins) -> None:
    """A pod that is not there any more waits for room."""
    if twins.names:
        made = objects.named(objects.template(twins.rng), twins._name("w"))
        name = pick(twins.rng, twins.names)
        twins.both(lambda one: one.nominations.add(made, name))


TO_PODS: tuple[Callable[[Twins], None], ...] = (
    pods_go,
    pods_go,
    a_pod_changes,
    Twins.bind_foreign,
)
HAPPENINGS = (
    *TO_PODS,
    *TO_PODS,
    a_node_comes,
    a_node_goes,
    a_node_changes,
    a_node_changes,
    a_namespace_changes,
    a_controller_changes,
    a_pod_is_nominated,
)
