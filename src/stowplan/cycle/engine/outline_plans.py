"""Outline plans: what classes of an outline share of their plans.

Pods that differ in the requests of their containers and in labels nothing counts are a class each,
but most plugins cannot tell them apart. What those answer is found once for an outline. Plugins
whose terms are of amounts alone say which resources they treat alike: classes that request the same
number of such resources, in the same order, have a form in common, and their plans differ in
numbers only, which are written without asking. The others are asked for each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat

import msgspec
import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.engine import arrays as at
from stowplan.columns.pods.podinfo import Footprint
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.classes import EnginePodClass, PodOutline
from stowplan.cycle.engine.plugin_points import PluginPoints
from stowplan.framework import CycleState
from stowplan.framework.deciders.kernel_terms import (
    BalancedAllocation,
    KernelTerm,
    ResourceFit,
    ResourceScore,
)

AMOUNTS = ResourceFit, ResourceScore, BalancedAllocation
"""Kernel terms of amounts alone."""

Ask = Callable[[PluginPoints, EnginePodClass], tuple[KernelTerm, ...] | None]
"""See `Planner.kernel_terms`."""

AskForAll = Callable[[PluginPoints, EnginePodClass], bool]
"""See `Planner.answers_by_outline`."""

NATIVE = "cpu", "memory", "ephemeral-storage"


class FormPlan(msgspec.Struct, frozen=True):
    """The plan of a form, up to names and amounts.

    params: int64 (N_COLUMNS,), that of one class. items: (column, place) of indices of resources;
    place: in the order in which the pod names them. amounts: (column, place, what is added to the
    request). wanted: places of resources that must be free and that not every node offers.
    """

    params: at.Ints
    items: tuple[tuple[int, int], ...]
    amounts: tuple[tuple[int, int, int], ...]
    wanted: tuple[int, ...]

    def write(self, params: at.Ints, items: at.Ints, requests: at.Ints) -> None:
        """Write the plans of classes of the form. params: int64 (n_classes, N_COLUMNS), output.
        items, requests: int64 (n_classes, n_places)."""
        params[:] = self.params
        for column, place in self.items:
            params[:, column] = items[:, place]
        for column, place, more in self.amounts:
            params[:, column] = requests[:, place] + more


class ResourceKinds:
    """Which resources the counted plugins of a profile treat alike: those with a number in common.

    numbers: by name, of the resources that were asked about, and of all that nodes have then.
    """

    def __init__(self, uses: Iterable[PluginPoints]) -> None:
        """uses: the plugins of the profile."""
        self.numbers: dict[str, int] = {}
        self._kind_of = [
            use.resource_kind for use in uses if use.is_counted and use.resource_kind is not None
        ]
        self._by_kind: dict[object, int] = {}
        self._n_named = 0

    def learn(self, requests: Iterable[str], nodes: NodeTable) -> None:
        """Number these resources, and those that nodes have: one after the other they cost a third
        of what they do when the first pod requests them."""
        named = nodes.resources.values
        names = [*named[self._n_named :], *requests]
        self._n_named = len(named)
        numbers, by_kind, native = self.numbers, self._by_kind, frozenset(NATIVE)
        number_of = by_kind.setdefault
        for name, kind in zip(names, self._kinds_of(names), strict=True):
            own = (name, kind) if name in native else kind
            numbers[name] = number_of(own, len(by_kind))

    def _kinds_of(self, names: list[str]) -> Iterator[tuple[object, ...]]:
        """What each of the plugins says of a resource, and a number, so that no name of a resource
        stands where one that is treated like no other has it."""
        kinds = (map(kind_of, names) for kind_of in self._kind_of)
        return zip(repeat(0, len(names)), *kinds, strict=True)


class OutlinePlan:
    """What the plan of a class has that others of its outline share.

    params: int64 (N_COLUMNS,), its row in the class arrays, before amounts and terms. state: what
    its plugins leave behind. forms: plans by form, written as they are met. has_own: some plugin
    may answer otherwise for another class of the outline, not by amounts alone.
    """

    def __init__(
        self,
        params: at.Ints,
        state: CycleState,
        own: Sequence[PluginPoints],
        kinds: ResourceKinds,
        nodes: NodeTable,
    ) -> None:
        """own: plugins that may answer otherwise for another class of the outline. kinds: of the
        resources in its profile."""
        self.params, self.state = params, state
        self.forms: dict[object, FormPlan] = {}
        self.counted = [use for use in own if use.is_counted]
        asked = [use for use in own if not use.is_counted]
        # Of these the latter answer alike where nothing but requests differs.
        self._asked = [use for use in asked if not use.reads_no_requests]
        self._asked_once = [use for use in asked if use.reads_no_requests]
        self.has_own = bool(asked)
        self._applies: set[PodOutline] = set()
        self.kinds, self._nodes = kinds, nodes

    def applies_to(self, one: EnginePodClass, ask: Ask) -> bool:
        """True where the plan of a class of the outline differs in amounts at most."""
        if one.outline not in self._applies:
            if not self._have_no_terms(self._asked_once, one, ask):
                return False
            self._applies.add(one.outline)
        return self._have_no_terms(self._asked, one, ask)

    def _have_no_terms(self, asked: list[PluginPoints], one: EnginePodClass, ask: Ask) -> bool:
        """True where these plugins add nothing to the plan of a class, and skip what they skipped
        for the first one."""
        skipped = self.state.skip_filter
        for use in asked:
            applies = use.applies_to is None or use.applies_to(one.pod)
            if applies == (use.member.name in skipped) or (applies and ask(use, one) != ()):
                return False
        return True

    def form(self, one: EnginePodClass, requests: dict[str, int]) -> object:
        """Equal for classes of the outline whose plans differ in names and numbers only."""
        kind_of = self.kinds.numbers.get
        form = tuple(map(kind_of, requests))
        if None in form:
            self.kinds.learn(requests, self._nodes)
            form = tuple(map(kind_of, requests))
        containers = one.pod.spec.containers
        if len(containers) == 1:
            return form
        # A container without a request for cpu or memory counts a default.
        asked = [one.resources.requests for one in containers]
        return form, tuple([("cpu" in one, "memory" in one) for one in asked])


class OutlineRows:
    """Plans of classes that are planned together, each like others of its outline: written as rows
    of arrays, when all are known."""

    def __init__(self, class_arrays: ClassArrays, nodes: NodeTable) -> None:
        self._class_arrays, self._nodes = class_arrays, nodes
        # A resource keeps its index as long as the table's shape is the same.
        self._items: dict[str, int] = {}
        # By plan of a form: classes, and what they request.
        self._rows: dict[int, tuple[FormPlan, list[EnginePodClass], list[dict[str, int]]]] = {}

    def item(self, resource: str) -> int:
        """Index of a resource in the node table."""
        place = self._items.get(resource)
        if place is None:
            place = self._nodes.resources.find(resource)
            if place < 0:
                place = self._nodes.item(resource)
            self._items[resource] = place
        return place

    def add(self, plan: FormPlan, one: EnginePodClass, requests: dict[str, int]) -> None:
        """Add the plan of a class, which gets its number with `write`."""
        classes, asked = self.of(plan)
        classes.append(one)
        asked.append(requests)

    def of(self, plan: FormPlan) -> tuple[list[EnginePodClass], list[dict[str, int]]]:
        """The lists to which classes of a form and their requests are added; see `add`."""
        rows = self._rows.get(id(plan))
        if rows is None:
            rows = self._rows[id(plan)] = plan, [], []
        return rows[1], rows[2]

    def write(self) -> list[EnginePodClass]:
        """Write what was added; returns the classes."""
        written: list[EnginePodClass] = []
        for plan, classes, requests in self._rows.values():
            n_classes = len(classes)
            first = self._class_arrays.add_classes(n_classes)
            for number, one in enumerate(classes, first):
                one.number = number
            # Each is one call for all classes of a form, which are many where each has one pod.
            names = [*chain.from_iterable(requests)]
            found = self._nodes.resources.find_all(names)
            if None in found:
                found = [*map(self.item, names)]
            shape = n_classes, len(names) // n_classes
            items = np.array(found, dtype=np.int64).reshape(shape)
            amounts = [*chain.from_iterable(map(dict.values, requests))]
            rows = self._class_arrays.classes[first : first + n_classes]
            plan.write(rows, items, np.array(amounts, dtype=np.int64).reshape(shape))
            self.write_few(rows, items[:, plan.wanted])
            written += classes
        self._rows.clear()
        return written

    def write_few(self, params: at.Ints, items: at.Ints) -> None:
        """Write the rows that offer what classes request, where they are few. params: int64
        (n_classes, N_COLUMNS), output. items: int64 (n_classes, n_resources), by index."""
        offered = self._nodes.offered
        if not items.size or not offered.is_needed:
            return
        few = offered.rows_of(items[:, 0].tolist())
        for more in items.T[1:]:
            others = offered.rows_of(more.tolist())
            few = [min(pair, key=len) for pair in zip(few, others, strict=True)]
        counts = np.fromiter(map(len, few), dtype=np.int64, count=len(few))
        if counts.max() > at.FEW_MAX:
            few = [rows if len(rows) <= at.FEW_MAX else [] for rows in few]
            counts[counts > at.FEW_MAX] = 0
        params[:, at.N_FEW] = counts
        flat = np.fromiter(chain.from_iterable(few), dtype=np.int64, count=counts.sum())
        places = np.arange(flat.shape[0]) - np.repeat(np.cumsum(counts) - counts, counts)
        params[np.repeat(np.arange(len(few)), counts), at.FEW + places] = flat


def shared_requests(one: EnginePodClass) -> dict[str, int] | None:
    """What a class requests, by resource; None where its amounts are counted in other ways than by
    adding up its containers, where one of them is 0, which some rules leave out, or where what
    containers count beside it may not be in range."""
    footprint = one.footprint
    return footprint.requested if footprint.is_plain else None


def own_points(
    one: EnginePodClass, uses: Sequence[PluginPoints], ask: Ask, ask_for_all: AskForAll
) -> list[PluginPoints] | None:
    """The plugins that may answer otherwise for another class of the outline of this one; None
    where plans of the outline cannot be shared."""
    own = []
    for use in uses:
        applies = use.applies_to is None or use.applies_to(one.pod)
        if use.by_outline and (use.kernel_terms is None or not applies):
            continue
        if applies:
            terms = None if use.kernel_terms is None else ask(use, one)
            if terms is None or (terms and not use.is_counted):
                return None
            if not all(isinstance(term, AMOUNTS) for term in terms):
                return None
        if not use.is_counted and ask_for_all(use, one):
            continue
        own.append(use)
    return own


def form_plan(
    params: at.Ints, parts: Sequence[KernelTerm], footprint: Footprint, requests: dict[str, int]
) -> FormPlan:
    """The plan of the form of a class. params: int64 (N_COLUMNS,), its plan. parts: its terms of
    amounts. requests: what it requests."""
    places = {name: place for place, name in enumerate(requests)}
    items, amounts = [], []
    for column, width, name, amount in _written(parts, footprint):
        place = places.get(name)
        if place is None:
            continue
        if width > 1 and name not in NATIVE:
            items.append((column, place))
        amounts.append((column + width - 1, place, amount - requests[name]))
    wanted = [name for part in parts if isinstance(part, ResourceFit) for name, _ in part.wanted]
    is_alone = not params[at.N_TERMS] + params[at.N_NORMALISED]
    rare = tuple(places[name] for name in wanted if name not in NATIVE and is_alone)
    return FormPlan(params.copy(), tuple(items), tuple(amounts), rare)


def _written(
    parts: Sequence[KernelTerm], footprint: Footprint
) -> Iterator[tuple[int, int, str, int]]:
    """Where `Planner` writes each amount: the column of its group, the width of the group, whose
    last number it is, the resource and the amount."""
    for part in parts:
        if isinstance(part, ResourceFit):
            for i, (name, amount) in enumerate(part.wanted):
                yield at.WANTED + 2 * i, 2, name, amount
        elif isinstance(part, ResourceScore):
            for i, used in enumerate(part.resources):
                yield at.USED + 4 * i, 4, used.resource, used.request
        elif isinstance(part, BalancedAllocation):
            for i, (name, amount) in enumerate(part.resources):
                yield at.EVEN + 2 * i, 2, name, amount
    for i, (name, amount) in enumerate(footprint.requested.items()):
        yield at.TAKEN + 2 * i, 2, name, amount
    yield at.CPU, 1, "cpu", footprint.nonzero[0]
    yield at.MEMORY, 1, "memory", footprint.nonzero[1]
