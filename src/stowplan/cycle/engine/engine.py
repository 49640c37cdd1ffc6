"""Engine: places runs of pods, counting each before the next is chosen.

It follows one node table. Between runs others change the table: the journal lists the changed rows,
and `NodeTable.shape` and `ObjectStore.version` show when all plans must be rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.engine.tie_break import NO_TIE_BREAKS
from stowplan.columns.pods.podterms import ExistingPodTerms, terms_of
from stowplan.cycle.engine.card_groups import reserved
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.class_terms import NoPlan
from stowplan.cycle.engine.classes import CLASSES_MAX, EnginePodClass, PodClassIndex
from stowplan.cycle.engine.device_rows import DeviceRows
from stowplan.cycle.engine.fit_check import ClassFitCheck, fit_check_of
from stowplan.cycle.engine.kernel_loading import Kernels
from stowplan.cycle.engine.nominated_rows import NominatedRows
from stowplan.cycle.engine.outline_plans import ResourceKinds
from stowplan.cycle.engine.plans import Planner
from stowplan.cycle.engine.plugin_points import PluginPoints, plugin_points_of
from stowplan.cycle.engine.row_subsets import (
    NO_CARDS,
    RowTotals,
    SubsetPods,
    SubsetRuns,
    SubsetTable,
)
from stowplan.framework import ContractError, CycleState, Framework, Snapshot
from stowplan.framework.deciders.kernel_terms import CardInventory
from stowplan.framework.deciders.preemptor_search import FindKernel, PreemptionKernel
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod

CARD_COST = 30
"""Evaluating a row by its cards costs so many times as much as by amounts."""


class PodRun:
    """A run of pods being placed. heads: class number of each pod, valid for one epoch. scores,
    annotations, states: see `KernelRun`."""

    def __init__(
        self,
        engine: Engine,
        pods: Sequence[Pod],
        classes: Sequence[EnginePodClass],
        draws: NDArray[np.uint64],
    ) -> None:
        self._engine = engine
        self.pods = pods
        self.classes = classes
        self.draws = draws
        self.scores: NDArray[np.int64] = np.zeros(len(pods), dtype=np.int64)
        self.annotations: dict[int, dict[str, str]] = {}
        self.states: dict[int, CycleState] = {}
        # Classes of which a pod found no row while pods were nominated.
        self.walked_beside_nominated: set[EnginePodClass] = set()
        self.epoch = -1
        self.heads: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def place(self, start: int, snapshot: Snapshot) -> list[int]:
        """See `Run.place`."""
        return self._engine.place(self, start, snapshot)

    def note(self, start: int, annotations: Iterable[dict[str, str]]) -> None:
        """Keep the annotations of pods from `start` on."""
        self.annotations.update((i, one) for i, one in enumerate(annotations, start) if one)


def _no_kernel() -> PreemptionKernel | None:
    """Of an engine without compiled kernels."""
    return None


class Engine:
    """One instance serves all profiles of a scheduler. n_evaluated: rows in all choices so far."""

    def __init__(self, kernels: Kernels) -> None:
        """kernels: compiled ones, loaded by the caller when that pays off, or `numpy_kernels`."""
        self.kernels = kernels
        self.card_kernels: Callable[[], ModuleType] | None = None
        self.preemption_kernel: FindKernel = _no_kernel
        self.n_evaluated = 0
        self._index = PodClassIndex()
        self._uses: dict[Framework, list[PluginPoints] | None] = {}
        self._kinds: dict[Framework, ResourceKinds] = {}
        self._nodes: NodeTable | None = None
        self._class_arrays: ClassArrays | None = None
        self._planner: Planner | None = None
        self._subsets: SubsetTable | None = None
        self._totals: RowTotals | None = None
        self._made_for: tuple[int, ...] = ()
        self._reads: tuple[type[Object], ...] = ()
        self._reads_any = False
        # The version of the kinds that are read, and what it was computed of.
        self._read_version = 0
        self._read_of: tuple[object, int, tuple[type[Object], ...]] = None, -1, ()
        self._epoch = 0
        self._generation = 0
        self._external_generation = 0
        self._n_entered = 0

    def use(
        self,
        kernels: Kernels,
        card_kernels: Callable[[], ModuleType] | None = None,
        preemption_kernel: FindKernel = _no_kernel,
    ) -> None:
        """Place with other kernels from now on. card_kernels: loads those for pods with cards, when
        the first of them comes; None where these pods are walked. preemption_kernel: loads that for
        preemptors, None where each is decided by itself."""
        self.kernels, self.card_kernels = kernels, card_kernels
        self.preemption_kernel = preemption_kernel
        if self._class_arrays is not None:
            # Each keeps what it has evaluated in its own form.
            self._class_arrays.note(None, 0)

    def class_of(
        self,
        pod: Pod,
        framework: Framework,
        *,
        with_devices: bool = False,
        with_nominated: bool = False,
    ) -> EnginePodClass | None:
        """See `KernelPlacer.class_of`. with_nominated: see `PodClassIndex.find`."""
        return self._index.find(
            pod, framework, with_devices=with_devices, with_nominated=with_nominated
        )

    def classes_of(
        self, pods: Iterable[Pod], frameworks: Mapping[str, Framework]
    ) -> list[EnginePodClass]:
        """See `KernelPlacer.classes_of`."""
        return self._index.find_all(pods, frameworks)

    def is_planned(self, one: EnginePodClass, made_for: int, snapshot: Snapshot) -> bool:
        """True while a class has a plan made for this static revision that covers every row, so
        that only pods on nodes and free amounts may have changed."""
        return (
            one.is_fast
            and not one.terms
            and one.made_for == made_for == self._epoch
            and not self._index.has_new_terms
            and ExistingPodTerms.of(snapshot.nodes).n_entered == self._n_entered
            and self._state(snapshot) == self._made_for
        )

    def plan_of(self, one: EnginePodClass) -> Callable[[Snapshot], bool]:
        """`is_planned` for the plan that a class has now."""
        return partial(self.is_planned, one, one.made_for)

    def fit_check(
        self, classes: Sequence[tuple[EnginePodClass, frozenset[str]]], snapshot: Snapshot
    ) -> ClassFitCheck | None:
        """See `KernelPlacer.fit_check`."""
        self.heads([one for one, _ in classes], snapshot)
        assert self._class_arrays is not None
        assert self._planner is not None
        groups = self._planner.card_groups
        return fit_check_of(classes, self._class_arrays, groups, snapshot)

    def classes(self) -> Iterator[EnginePodClass]:
        """The known classes."""
        return iter(self._index)

    def forget_idle(self) -> None:
        """Forget idle classes and their plans, unless they are few."""
        n_nodes = 0 if self._nodes is None else self._nodes.n_nodes
        if self._index.forget_idle(n_nodes):
            self._class_arrays = self._planner = self._subsets = None
            self._made_for = ()
            self._n_entered = -1

    def run(
        self,
        pods: Sequence[Pod],
        classes: Sequence[EnginePodClass],
        draws: NDArray[np.uint64] = NO_TIE_BREAKS,
    ) -> PodRun:
        """Begin a run of pods with their classes, placed in this order. draws: uint64 (n_pods,),
        tie-break numbers; if empty, the first row is chosen."""
        return PodRun(self, pods, classes, draws)

    def row_subsets(self, run: PodRun, snapshot: Snapshot) -> SubsetRuns | None:
        """See `KernelPlacer.row_subsets`."""
        run.epoch, run.heads = self.heads(run.classes, snapshot)
        one = run.classes[0]
        if run.heads[0] < 0 or one.terms or one.card_filter or one.run_limits:
            return None
        assert self._class_arrays is not None
        assert self._planner is not None
        if self._planner.card_groups.first(run.heads[:1])[0] is not None:
            return None
        if self._subsets is None or self._subsets.class_arrays is not self._class_arrays:
            self._subsets = SubsetTable(self._class_arrays, snapshot.nodes)

        def kernel(*given: Any) -> int:
            self.n_evaluated += len(run.pods)
            return int(self.kernels.run(*given))

        return SubsetRuns(self._subsets, SubsetPods(run.pods, one, run.draws, run.scores), kernel)

    def row_totals(self, one: EnginePodClass, rows: Ints) -> Ints | None:
        """int64 (n_rows,): the total scores of these rows for a pod of a class, see `is_planned`,
        that passes on no other row; None where the walk has to score them."""
        if self._class_arrays is None or self._planner is None:
            return None
        if one.terms or one.card_filter or one.run_limits or one.claims is not None:
            return None
        if self._planner.card_groups.first(np.array([one.number]))[0] is not None:
            return None
        if self._totals is None or self._totals.class_arrays is not self._class_arrays:
            self._totals = RowTotals(self._class_arrays)
        return self._totals.of(one, rows)

    def heads(
        self, classes: Sequence[EnginePodClass], snapshot: Snapshot
    ) -> tuple[int, NDArray[np.int64]]:
        """Plan the classes for the current state. Returns the epoch and int64 (n_pods,), the class
        numbers; -1 for classes without a plan."""
        known = dict.fromkeys(classes)
        for one in known:
            if one.footprint.has_affinity:
                # Classes of a run stay valid when all others have been forgotten.
                self._index.learn(terms_of(one.pod).all)
        self._follow(snapshot)
        fresh = [one for one in known if one.made_for != self._epoch]
        assert self._planner is not None
        epoch, place = self._epoch, 0
        try:
            while place < len(fresh):
                one = fresh[place]
                one.made_for, one.is_fast = epoch, False
                one.is_fast = self._plan(one)
                first, place = place + 1, self._planner.plan_like_latest(fresh, place + 1)
                for one in fresh[first:place]:
                    one.made_for, one.is_fast = epoch, True
        finally:
            # Also where a plugin has failed: the classes before are not planned again.
            self._planner.write()
        return self._epoch, np.array([one.number for one in classes], dtype=np.int64)

    def place(
        self,
        run: PodRun,
        start: int,
        snapshot: Snapshot,
    ) -> list[int]:
        """See `Run.place`."""
        placed, is_whole = self._place_some(run, start, snapshot, is_first=True)
        while placed and start + len(placed) < len(run.pods):
            assert self._class_arrays is not None
            if self._class_arrays.updates_image_counts(placed[-1]):
                # As the walk finds it for the next pod: scores of that row have changed.
                snapshot.nodes.refresh()
            elif not is_whole:
                break
            some, is_whole = self._place_some(run, start + len(placed), snapshot, is_first=False)
            if not some:
                break
            placed += some
        return placed

    def _place_some(
        self, run: PodRun, start: int, snapshot: Snapshot, *, is_first: bool
    ) -> tuple[list[int], bool]:
        """Place pods with one call of a kernel; returns their rows, and whether all pods that it
        was given are placed. is_first: the state may be another than after the last placement."""
        self._follow(snapshot)
        if run.epoch != self._epoch:
            self._plan_run(run, start, snapshot)
        slow = np.flatnonzero(run.heads[start:] < 0)
        n_fast = int(slow[0]) if slow.size else run.heads.shape[0] - start
        if n_fast == 0 or snapshot.nodes.n_nodes == 0:
            return [], False
        assert self._class_arrays is not None
        assert self._planner is not None
        class_arrays, nodes = self._class_arrays, snapshot.nodes
        group, n_same = self._planner.card_groups.first(run.heads[start : start + n_fast])
        card_kernels = self.card_kernels
        inventory: CardInventory | None = None
        if group is None:
            inventory, n_same = self._planner.card_groups.filtering(
                run.heads[start : start + n_same],
                has_nominations=not snapshot.nominations.is_empty,
            )
        elif card_kernels is None:
            # Evaluating cards by columns; compiling pays off that much earlier.
            self.n_evaluated += CARD_COST * nodes.n_nodes
            return [], False
        for device_rows in self._planner.device_rows:
            n_same = self._n_with_devices(device_rows, run, start, n_same, snapshot, is_first)
        n_same = min(n_same, _n_within_limits(run.classes[start : start + n_same], snapshot))
        if n_same == 0:
            return [], False
        end = start + n_same
        nominated: NominatedRows | None = None
        if not snapshot.nominations.is_empty:
            if group is not None or run.classes[start] in run.walked_beside_nominated:
                return [], False
            nominated = NominatedRows.of(
                run.pods[start:end], run.classes[start:end], snapshot, class_arrays
            )
            if nominated.n_pods == 0:
                return [], False
            end = start + nominated.n_pods
        self._catch_up(run.classes[start:end], nodes, has_trees=group is None)
        if group is not None:
            assert card_kernels is not None
            placed, notes = group.run(
                card_kernels(),
                run.pods[start:end],
                run.heads[start:end],
                run.draws[start:end],
                run.scores[start:end],
            )
            run.note(start, notes)
        else:
            with (
                nullcontext() if nominated is None else nominated.are_closed(snapshot, class_arrays)
            ):
                placed = self._run_kernel(run, start, end, inventory)
            if nominated is not None and len(placed) < end - start:
                run.walked_beside_nominated.add(run.classes[start + len(placed)])
        self.n_evaluated += len(placed) * nodes.n_nodes
        those = range(start, start + len(placed))
        nodes.enter([PodInfo(run.pods[i], run.classes[i].footprint) for i in those], placed)
        self._generation = nodes.journal.generation
        for device_rows in self._planner.device_rows:
            self._reserve(device_rows, run, start, placed)
        return placed, len(placed) == end - start

    def _plan_run(self, run: PodRun, start: int, snapshot: Snapshot) -> None:
        """Plan the classes of a run, of which the pods before `start` are placed."""
        left = zip(reversed(run.pods[start:]), reversed(run.classes[start:]), strict=True)
        for pod, one in left:
            if one.claims is not None:
                # Plans are made of a pod whose claims are as the class reads them.
                one.pod = pod
        run.epoch, run.heads = self.heads(run.classes, snapshot)

    def _run_kernel(
        self, run: PodRun, start: int, end: int, inventory: CardInventory | None
    ) -> list[int]:
        """Place pods with the kernel for all that scores no cards; returns their rows. inventory:
        the cards that filter."""
        assert self._class_arrays is not None
        class_arrays = self._class_arrays
        rows = np.empty(end - start, dtype=np.int64)
        left = given = NO_CARDS
        if inventory is not None:
            left = inventory.columns().left
            given = np.zeros((end - start, left.shape[1] + 1), dtype=np.int64)
        n_placed = self.kernels.run(
            *class_arrays.arguments(),
            run.heads[start:end],
            run.draws[start:end],
            rows,
            run.scores[start:end],
            left,
            given,
            class_arrays.n_log,
        )
        class_arrays.n_log += n_placed
        placed: list[int] = rows[:n_placed].tolist()
        if inventory is not None:
            run.note(start, reserved(inventory, run.pods[start:end], placed, given))
        return placed

    def _n_with_devices(
        self,
        device_rows: DeviceRows,
        run: PodRun,
        start: int,
        n_most: int,
        snapshot: Snapshot,
        is_first: bool,
    ) -> int:
        """How many of the next pods a kernel may be given: those with claims must not change what
        others of them are left, but as kernels count it. 0 where the next pod has to be walked."""
        classes = run.classes
        if is_first and not device_rows.follow():
            # Devices of one of the nodes are looked at by name from now on.
            self._forget_devices(device_rows, run)
            return 0
        first = next((i for i in range(start, start + n_most) if classes[i] in device_rows), -1)
        if first < 0:
            return n_most
        if not snapshot.nominations.is_empty:
            return first - start
        end = first + device_rows.n_together(classes[first : start + n_most])
        return first - start + device_rows.n_own(run.pods[first:end], classes[first:end])

    def _reserve(
        self, device_rows: DeviceRows, run: PodRun, start: int, placed: Sequence[int]
    ) -> None:
        """Take the devices of the pods that a kernel has placed on these rows."""
        those = [i for i, _ in enumerate(placed, start) if run.classes[i] in device_rows]
        if not those:
            return
        free = device_rows.states_of(placed)
        for i in those:
            row = placed[i - start]
            run.states[i] = device_rows.reserve(run.classes[i], run.pods[i], row, free)
        if not device_rows.follow(placed):
            self._forget_devices(device_rows, run)

    def _forget_devices(self, device_rows: DeviceRows, run: PodRun) -> None:
        """Pods with claims are walked until the plans are made anew."""
        for one in device_rows.drop_all():
            one.number, one.is_fast = -1, False
        run.epoch = -1

    def _follow(self, snapshot: Snapshot) -> None:
        """Rebuild all plans if anything but pods and amounts has changed."""
        nodes = snapshot.nodes
        held = ExistingPodTerms.of(nodes)
        if held.n_entered != self._n_entered:
            self._n_entered = held.n_entered
            self._index.learn(one.weighted for one in held.all())
        made_for = self._state(snapshot)
        if len(self._index.all) > CLASSES_MAX:
            self._index.forget_all()
            made_for = ()
        if made_for != self._made_for or self._index.has_new_terms:
            self._index.has_new_terms = False
            self._epoch += 1
            self._made_for = self._state(snapshot)
            self._nodes = nodes
            self._class_arrays = ClassArrays(nodes)
            self._planner = Planner(self._class_arrays, snapshot, self._index.peers, self._kinds)
            self._generation = nodes.journal.generation

    def _state(self, snapshot: Snapshot) -> tuple[int, ...]:
        nodes = snapshot.nodes
        object_store = snapshot.object_store
        version = object_store.version
        if not self._reads_any:
            known = object_store, version, self._reads
            if known != self._read_of:
                self._read_of = known
                self._read_version = object_store.version_of(self._reads)
            version = self._read_version
        return nodes.shape, version, id(nodes)

    def _plan(self, one: EnginePodClass) -> bool:
        assert self._planner is not None
        one.number, one.terms, one.counted_at = -1, (), -1
        try:
            if self._planner.plan_alike(one):
                return True
            uses = self._points_of(one.framework)
            if uses is None:
                return False
            if one.pod.spec.resource_claims and ResourceSlice not in self._reads:
                self._reads = (*self._reads, ResourceSlice)
            self._planner.plan(one, uses)
        except (NoPlan, ContractError):
            # The walk reports the error for each pod concerned.
            return False
        return True

    def _points_of(self, framework: Framework) -> list[PluginPoints] | None:
        """The plugins of a profile, whose reads count from now on."""
        if framework not in self._uses:
            uses = self._uses[framework] = plugin_points_of(framework)
            for use in uses or ():
                # Only these are evaluated for a plan. What is read of claims is in their signature.
                if use.reads_claims:
                    continue
                if use.kernel_terms is not None or use.member.node_only:
                    reads = use.plan_reads
                    self._reads_any |= reads is None
                    self._reads = tuple(dict.fromkeys((*self._reads, *(reads or ()))))
        return self._uses[framework]

    def _catch_up(
        self, classes: Sequence[EnginePodClass], nodes: NodeTable, *, has_trees: bool
    ) -> None:
        """Apply changes made from outside since the last run. has_trees: whether the classes are
        placed by trees."""
        assert self._class_arrays is not None
        assert self._planner is not None
        touched = nodes.journal.all_since(self._generation)
        if touched is None or touched:
            self._external_generation += 1
        self._class_arrays.note(touched, len(classes))
        self._generation = nodes.journal.generation
        for one, n_pods in Counter(classes).items():
            # A tree does not pay off for a single pod.
            if has_trees and (n_pods > 1 or one.was_placed):
                self._class_arrays.want_tree(one.number)
            one.was_placed = True
            if one.terms and one.counted_at != self._external_generation:
                one.counted_at = self._external_generation
                self._planner.recount(one)


_run_limits = attrgetter("run_limits")


def _n_within_limits(classes: Sequence[EnginePodClass], snapshot: Snapshot) -> int:
    """How many of the first pods the limits of runs allow; where a class has any, the run is of
    that class."""
    # Without a call for each pod.
    if not any(map(_run_limits, classes)):
        return len(classes)
    first = classes[0]
    if not first.run_limits:
        return next(place for place, one in enumerate(classes) if one.run_limits)
    if not snapshot.nominations.is_empty:
        return 0
    n_pods = min(len(classes), *(limit.pods(snapshot) for limit in first.run_limits))
    return next((place for place in range(n_pods) if classes[place] is not first), n_pods)
