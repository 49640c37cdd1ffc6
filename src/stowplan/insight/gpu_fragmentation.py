"""Fragmentation of GPU cards: how much of the idle cards typical pods cannot use, and why.

Source: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), sections 3 and 4; the categories
are those of `stowplan.plugins.gpu_share.fragmentation`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Floats
from stowplan.config import Configuration
from stowplan.framework import PodInfo
from stowplan.framework.profile import Profile
from stowplan.objects.devices.gpu_cards import CARD_MILLI, COUNT_KEY, CardState, GpuShareRequest
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import CardLedger, gpu_request_of
from stowplan.plugins.gpu_share.conventions import CONVENTIONS
from stowplan.plugins.gpu_share.conventions.convention import Convention
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger, report_of
from stowplan.plugins.gpu_share.conventions.device_sharing import DeviceAttempt, requests_of
from stowplan.plugins.gpu_share.conventions.mixed_nodes import is_by_milli
from stowplan.plugins.gpu_share.fragmentation import (
    CATEGORIES,
    CAUSES,
    Q3,
    TypicalColumns,
    TypicalPod,
    fragment_column,
    milli_by_category_column,
)
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.gpu_share import GpuShareArgs
from stowplan.plugins.gpu_share.typical_pods import TypicalPodsOptions, typical_pods

OPTIONS = TypicalPodsOptions(involve_cpu_pods=True, popularity_threshold=95, increase_step=1)
"""As in the paper: pods without GPU count, and 95 % of the pods are covered."""
TYPICAL_MAX = 2_000
"""Pods that are counted for the typical pods of a running cluster."""
Conventions = tuple[Convention, ...]
DEFAULT_CONVENTIONS: Conventions = tuple(CONVENTIONS[name] for name in GpuShareArgs().conventions)


class CardFragmentation(msgspec.Struct, frozen=True):
    """Fragmentation of a cluster's cards.

    cards: number of cards. idle_milli: left on all of them. fragment_milli: of these, expected to
    be of no use to a pod of the workload. by_cause: the same by cause, see CAUSES; by_category: all
    idle milli, by the seven categories. usable: for each typical pod, the milli that it can use.
    nodes: name -> (idle, fragment) milli.
    """

    cards: int
    idle_milli: int
    fragment_milli: float
    by_cause: dict[str, float]
    by_category: dict[str, float]
    usable: tuple[tuple[TypicalPod, int], ...]
    nodes: dict[str, tuple[int, float]]

    @property
    def of_capacity(self) -> float:
        """Fragments as a share of all milli."""
        return self.fragment_milli / (self.cards * CARD_MILLI)

    @property
    def of_idle(self) -> float:
        """Fragments as a share of the idle milli; 0 where none is idle."""
        return self.fragment_milli / self.idle_milli if self.idle_milli else 0.0

    def summary(self) -> dict[str, Any]:
        """The figures of the cluster, as plain values."""
        return {
            "cards": self.cards,
            "idle_milli": self.idle_milli,
            "fragment_milli": round(self.fragment_milli, 3),
            "of_capacity": round(self.of_capacity, 6),
            "of_idle": round(self.of_idle, 6),
            "by_cause": {name: round(milli, 3) for name, milli in self.by_cause.items()},
            "by_category": {name: round(milli, 3) for name, milli in self.by_category.items()},
            "typical_pods": [
                {**msgspec.to_builtins(pod), "usable_milli": usable} for pod, usable in self.usable
            ],
        }

    def csv(self) -> bytes:
        """A line for each node with cards: name, idle and fragment milli."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("node", "idle_milli", "fragment_milli"))
        for name, (idle, fragment) in sorted(self.nodes.items()):
            writer.writerow((name, idle, round(fragment, 3)))
        return text.getvalue().encode()


class CardFragmentationMeter:
    """Measures a node table under fixed typical pods. conventions: by which nodes offer GPUs."""

    def __init__(
        self, typical: Sequence[TypicalPod], conventions: Conventions = DEFAULT_CONVENTIONS
    ) -> None:
        self.typical = tuple(typical)
        self.conventions = conventions

    def measure(self, nodes: NodeTable) -> CardFragmentation | None:
        """The fragmentation now; None for a cluster without cards."""
        names, columns = _cards(nodes, self.conventions)
        if not names:
            return None
        typical = TypicalColumns(self.typical, columns.models)
        milli = milli_by_category_column(columns.cpu_left, columns.left, columns.model, typical)
        sums = milli.sum(axis=0)
        amounts = fragment_column(milli)
        idle = columns.total_left()
        return CardFragmentation(
            int(columns.n_cards.sum()),
            int(idle.sum()),
            float(fragment_column(sums[None, :])[0]),
            {name: float(sums[list(found)].sum()) for name, found in CAUSES.items()},
            dict(zip(CATEGORIES, sums.tolist(), strict=True)),
            tuple((pod, _usable(columns, pod)) for pod in self.typical),
            {name: (int(idle[row]), float(amounts[row])) for row, name in enumerate(names)},
        )

    def by_node(self, nodes: NodeTable) -> list[tuple[str, int, dict[str, float]]]:
        """Nodes with cards: name, idle milli, and what of it is of no use, by cause."""
        names, columns = _cards(nodes, self.conventions)
        if not names:
            return []
        typical = TypicalColumns(self.typical, columns.models)
        milli = milli_by_category_column(columns.cpu_left, columns.left, columns.model, typical)
        idle = columns.total_left().tolist()
        return [
            (
                name,
                idle[row],
                {why: float(milli[row, list(at)].sum()) for why, at in CAUSES.items()},
            )
            for row, name in enumerate(names)
        ]


class CardTotals(NamedTuple):
    """Fragmentation of all cards: fields as in `CardFragmentation`."""

    cards: int
    idle_milli: int
    fragment_milli: float
    by_cause: dict[str, float]

    @property
    def of_capacity(self) -> float:
        """Fragments as a share of all milli."""
        return self.fragment_milli / (self.cards * CARD_MILLI)


class FollowedCardFragmentation:
    """The totals of one node table over time: only rows that have changed are measured again, since
    a replay takes thousands of samples."""

    def __init__(self, meter: CardFragmentationMeter) -> None:
        self._meter = meter
        self._marks = -1, -1
        self._n_models = -1
        self._registered: set[int] = set()
        self._found: CardTotals | None = None
        # Per row of the table: float64 (n_rows, 7) milli by category, int64 (n_rows,) idle milli.
        self._milli = np.zeros((0, len(CATEGORIES)))
        self._idle = np.zeros(0, dtype=np.int64)

    def totals(self, nodes: NodeTable) -> CardTotals | None:
        """The fragmentation now; None for a cluster without cards. nodes: the same table each
        time."""
        if nodes.marks == self._marks:
            return self._found
        columns = CardLedger.of(nodes).columns()
        n_models = len(columns.models)
        rows = nodes.rows_since(self._marks) if self._n_models == n_models else None
        self._n_models, self._marks = n_models, nodes.marks
        n_nodes = nodes.n_nodes
        if rows is None:
            self._registered.clear()
            changed = np.arange(n_nodes)
        else:
            changed = np.array([row for row in rows if row < n_nodes], dtype=np.int64)
        self._resize(n_nodes)
        self._registered = {row for row in self._registered if row < n_nodes}
        self._registered.difference_update(changed.tolist())
        conventions = self._meter.conventions
        self._registered.update(
            row for row in changed.tolist() if _is_registered(nodes.nodes[row], conventions)
        )
        if self._registered:
            found = self._meter.measure(nodes)
            # Reading registered cards may have brought what follows them up to date.
            self._marks, self._n_models = nodes.marks, -1
            self._found = None if found is None else _totals_of(found)
            return self._found
        some = columns.take(changed)
        typical = TypicalColumns(self._meter.typical, columns.models)
        self._milli[changed] = milli_by_category_column(
            some.cpu_left, some.left, some.model, typical
        )
        self._idle[changed] = some.total_left()
        self._found = self._sum(int(columns.n_cards.sum()))
        return self._found

    def _resize(self, n_rows: int) -> None:
        if self._idle.shape[0] != n_rows:
            kept = min(n_rows, self._idle.shape[0])
            milli, idle = self._milli, self._idle
            self._milli = np.zeros((n_rows, len(CATEGORIES)))
            self._idle = np.zeros(n_rows, dtype=np.int64)
            self._milli[:kept], self._idle[:kept] = milli[:kept], idle[:kept]

    def _sum(self, n_cards: int) -> CardTotals | None:
        if not n_cards:
            return None
        sums = self._milli.sum(axis=0)
        by_cause = {name: float(sums[list(found)].sum()) for name, found in CAUSES.items()}
        fragment = float(fragment_column(sums[None, :])[0])
        return CardTotals(n_cards, int(self._idle.sum()), fragment, by_cause)


def _totals_of(found: CardFragmentation) -> CardTotals:
    return CardTotals(found.cards, found.idle_milli, found.fragment_milli, found.by_cause)


def _usable(columns: GpuCardColumns, pod: TypicalPod) -> int:
    """Milli that one kind of pods can use."""
    typical = TypicalColumns([msgspec.structs.replace(pod, share=1.0)], columns.models)
    milli: Floats = milli_by_category_column(columns.cpu_left, columns.left, columns.model, typical)
    return int(milli[:, Q3].sum())


def _cards(nodes: NodeTable, conventions: Conventions) -> tuple[list[str], GpuCardColumns]:
    """The nodes with cards, in the order of rows, by milli or by what they have registered; by
    milli where they have both."""
    columns = CardLedger.of(nodes).columns()
    rows = np.nonzero(columns.n_cards > 0)[0]
    numbers = range(nodes.n_nodes)
    registered = [row for row in numbers if _is_registered(nodes.nodes[row], conventions)]
    names = [nodes.names[row] for row in rows.tolist()]
    if not registered:
        return names, columns.take(rows)
    attempt = DeviceAttempt({}, conventions, DeviceLedger.of(nodes), nodes, 0)
    states: list[CardState] = [columns.state(row) for row in rows.tolist()]
    for row in registered:
        found = attempt.on_cards(nodes.info(row))
        if found is not None:
            states.append(found[0])
            names.append(nodes.names[row])
    return names, GpuCardColumns.of(states)


def _is_registered(node: Node, conventions: Conventions) -> bool:
    return not is_by_milli(node) and report_of(node, conventions).only is not None


# Typical pods.


def has_cards(nodes: Iterable[Node], conventions: Conventions = DEFAULT_CONVENTIONS) -> bool:
    """True when a node has GPU cards that pods share."""
    return any(
        COUNT_KEY in one.status.allocatable or _is_registered(one, conventions) for one in nodes
    )


def conventions_of(profiles: Iterable[Profile]) -> Conventions:
    """The conventions of those profiles that have the plugin for GPU cards; its default ones where
    none has it."""
    args = [one for profile in profiles for one in profile.args.values()]
    named = {name for one in args if isinstance(one, GpuShareArgs) for name in one.conventions}
    if not any(isinstance(one, GpuShareArgs) for one in args):
        return DEFAULT_CONVENTIONS
    return tuple(one for name, one in CONVENTIONS.items() if name in named)


def typical_of(
    pods: Iterable[Pod], nodes: Sequence[Node], conventions: Conventions = DEFAULT_CONVENTIONS
) -> list[TypicalPod]:
    """The typical pods of a workload.

    nodes: a request for memory of a GPU is taken as a part of the largest one that they register.
    """
    memory = largest_card(nodes, conventions)
    return typical_pods(((request_of(pod, memory, conventions), 1) for pod in pods), OPTIONS)


def largest_card(nodes: Iterable[Node], conventions: Conventions = DEFAULT_CONVENTIONS) -> int:
    """MiB of the largest card that nodes register; 0 for none."""
    reports = (report_of(node, conventions).report for node in nodes)
    return max((device.memory for one in reports for device in one.devices), default=0)


def typical_of_configuration(configuration: Configuration) -> list[TypicalPod]:
    """The typical pods that the plugin for GPU cards of a profile has; none for none."""
    found = map(expected_pods, configuration.profiles.values())
    return list(next(filter(None, found), ()))


def expected_pods(profile: Profile) -> tuple[TypicalPod, ...]:
    """The typical pods of the plugin for GPU cards; none without it, or without a workload."""
    plugins = (args for args in profile.args.values() if isinstance(args, GpuShareArgs))
    return next((args.typical_pods for args in plugins if args.workload), ())


def request_of(
    pod: Pod, memory: int, conventions: Conventions = DEFAULT_CONVENTIONS
) -> GpuShareRequest:
    """The request of a pod in milli. memory: MiB of the card that requested memory is a part
    of."""
    request = gpu_request_of(PodInfo.of(pod))
    if request.milli > 0:
        return GpuShareRequest(request.cpu_milli, request.num, request.milli, request.models)
    for device in requests_of(pod, conventions).values() if memory else ():
        return GpuShareRequest(request.cpu_milli, device.count, device.milli_on(memory))
    return GpuShareRequest(request.cpu_milli)


class CardFragmentationWatch:
    """Fragmentation of a scheduler's node table when it is asked for, as for metrics: measured
    again only if something has changed.

    The typical pods are those that the configuration expects, else those of the pods on nodes: of
    as many as TYPICAL_MAX, and again when the number of pods has changed by a tenth.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._found: CardFragmentation | None = None
        self._typical: list[TypicalPod] = []
        self._n_pods = 0

    def measure(self, nodes: NodeTable, configuration: Configuration) -> CardFragmentation | None:
        """The fragmentation now; None without the plugin GpuShare, or without cards."""
        if not has_gpu_share(configuration):
            return None
        key = nodes.marks, id(configuration)
        if key != self._key:
            conventions = conventions_of(configuration.profiles.values())
            typical = typical_of_configuration(configuration) or self._of_pods(nodes, conventions)
            self._found = CardFragmentationMeter(typical, conventions).measure(nodes)
            # Reading the cards may have brought what follows them up to date.
            self._key = nodes.marks, id(configuration)
        return self._found

    def _of_pods(self, nodes: NodeTable, conventions: Conventions) -> list[TypicalPod]:
        n_pods = int(nodes.pod_count.sum())
        if not self._typical or abs(n_pods - self._n_pods) * 10 > self._n_pods:
            pods = [info.pod for row in range(nodes.n_nodes) for info in nodes.pods[row]]
            step = -(-len(pods) // TYPICAL_MAX) or 1
            self._typical = typical_of(pods[::step], nodes.nodes, conventions)
            self._n_pods = n_pods
        return self._typical


def has_gpu_share(configuration: Configuration) -> bool:
    """True where a profile has the plugin GpuShare, which follows the cards of nodes."""
    return any(map(chooses_cards, configuration.profiles.values()))


def chooses_cards(profile: Profile) -> bool:
    """True for a profile with the plugin GpuShare."""
    return any(isinstance(args, GpuShareArgs) for args in profile.args.values())
