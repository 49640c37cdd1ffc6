"""Which pods to move so that GPU cards are less fragmented, and the plan of these moves.

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/deschedule.go, for the choice. What
keeps a pod on its node is that of `kubectl drain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.columns import NodeTable
from stowplan.framework import NodeInfo, PodInfo
from stowplan.inputs.counts import count_of
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.pools import runs_on_every_node
from stowplan.insight.gpu_fragmentation import DEFAULT_CONVENTIONS, CardFragmentation, Conventions
from stowplan.objects.devices.gpu_cards import GpuShareRequest
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import CardLedger, gpu_request_of
from stowplan.plugins.gpu_share.conventions.device_ledger import DeviceLedger
from stowplan.plugins.gpu_share.conventions.device_sharing import DeviceAttempt
from stowplan.plugins.gpu_share.descheduling import NodeWithCards, PodWithCards

UNKNOWN_CARDS = "the cards of pod {} are not known: no annotation names them"


class CardMove(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that is evicted and comes back. from_cards, cards: indices, or ids of devices."""

    pod: str
    from_node: str
    from_cards: tuple[str, ...]
    node: str
    cards: tuple[str, ...]


class CardFigures(msgspec.Struct, frozen=True, rename="camel"):
    """Fragmentation of all cards. of_capacity, of_idle: fragments as a share of these."""

    idle_milli: int
    fragment_milli: float
    of_capacity: float
    of_idle: float

    @classmethod
    def of(cls, found: CardFragmentation) -> CardFigures:
        """The figures of a measure."""
        return cls(
            found.idle_milli,
            round(found.fragment_milli, 3),
            round(found.of_capacity, 6),
            round(found.of_idle, 6),
        )


class KeptPod(msgspec.Struct, frozen=True, rename="camel"):
    """Reason why a pod is not moved."""

    pod: str
    reason: str


class DefragmentPlan(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Pods to evict, in this order, and where the scheduler places them after all are evicted.

    pods: on the nodes of the cluster. commands: what a user of kubectl types; none where the plan
    does not lower the fragmentation. kept: pods that the policy may not choose.
    """

    api_version: str
    policy: str
    pods: int
    before: CardFigures
    after: CardFigures
    moves: tuple[CardMove, ...] = ()
    commands: tuple[str, ...] = ()
    kept: tuple[KeptPod, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        figures = f"{self.before.of_capacity:.1%} to {self.after.of_capacity:.1%}"
        return f"DefragmentPlan({count_of(len(self.moves), 'move')}, fragments {figures})"

    def _repr_html_(self) -> str:
        """For notebooks: the moves in their order, and why other pods stay."""
        moves = ((one.pod, one.from_node, one.node) for one in self.moves)
        return html_summary(
            repr(self),
            html_table(("Pod", "From", "To"), moves),
            html_table(("Pod that stays", "Reason"), ((one.pod, one.reason) for one in self.kept)),
            *map(html_text, self.notes),
        )

    @property
    def lowers(self) -> bool:
        """True where less is of no use to typical pods afterwards."""
        return bool(self.moves) and self.after.fragment_milli < self.before.fragment_milli

    def to_frame(self, library: str = "") -> Any:
        """One row per move as a DataFrame of pandas or polars; see `to_dataframe`."""
        columns = {
            "pod": [move.pod for move in self.moves],
            "from_node": [move.from_node for move in self.moves],
            "from_cards": [",".join(move.from_cards) for move in self.moves],
            "to_node": [move.node for move in self.moves],
            "to_cards": [",".join(move.cards) for move in self.moves],
        }
        return to_dataframe(columns, library)


class CardsOfNodes:
    """The cards of the nodes of a table, and the cards that their pods have. conventions: by which
    nodes offer GPUs."""

    def __init__(self, table: NodeTable, conventions: Conventions = DEFAULT_CONVENTIONS) -> None:
        self._conventions = conventions
        self._ledger = CardLedger.of(table)
        self._devices = DeviceLedger.of(table)
        self._attempt = DeviceAttempt({}, conventions, self._devices, table, 0)
        self.infos = [table.info(row) for row in range(table.n_nodes)]

    def nodes(self) -> list[NodeWithCards]:
        """All nodes; pods are named by namespace and name."""
        return [self._node(info) for info in self.infos]

    def _node(self, node: NodeInfo) -> NodeWithCards:
        registered = self._attempt.on_cards(node)
        state = self._ledger.state(node) if registered is None else registered[0]
        pods = []
        for info in node.pods:
            found = self.cards_of(node, info) or ()
            request = gpu_request_of(info)
            if registered is not None:
                request = self._device_request(node, info, request)
            pods.append(PodWithCards(info.pod.key, request, tuple(index for index, _ in found)))
        return NodeWithCards(node.name, state, tuple(pods))

    def cards_of(self, node: NodeInfo, info: PodInfo) -> list[tuple[int, str]] | None:
        """The cards of a pod by index, each with its name; None where they are not known."""
        report = self._devices.report(node, self._conventions)
        convention = report.only
        if convention is None:
            cards = self._ledger.cards_of(info.pod, gpu_request_of(info))
            return None if cards is None else [(card, str(card)) for card in cards]
        if convention.request(info.pod) is None:
            return []
        shares = self._devices.shares_of(info, convention)
        if shares is None:
            return None
        ids = [device.id for device in report.report.devices]
        held = dict.fromkeys(share.id for container in shares for share in container)
        return [(ids.index(name), name) for name in held if name in ids]

    def _device_request(
        self, node: NodeInfo, info: PodInfo, plain: GpuShareRequest
    ) -> GpuShareRequest:
        found = self._devices.report(node, self._conventions)
        request = None if found.only is None else found.only.request(info.pod)
        if request is None or not found.report.devices:
            return GpuShareRequest(plain.cpu_milli)
        milli = request.milli_on(found.report.devices[0].memory)
        return GpuShareRequest(plain.cpu_milli, request.count, milli)


def kept_pods(cards: CardsOfNodes, budgets: Budgets, *, force: bool) -> dict[str, str]:
    """Pod -> why it is not moved. force: pods without a controller may be."""
    return {
        info.pod.key: reason
        for node in cards.infos
        for info in node.pods
        if (reason := _keeps(info.pod, budgets, force=force) or _unknown(cards, node, info))
    }


def _keeps(pod: Pod, budgets: Budgets, *, force: bool) -> str:
    if runs_on_every_node(pod):
        return f"pod {pod.key} runs on every node, or is static"
    if pod.metadata.deletion_timestamp is not None:
        return f"pod {pod.key} is being deleted"
    if pod.controller is None and not force:
        return f"pod {pod.key} has no controller: nothing would create it again (see --force)"
    return budgets.blocking(pod)


def _unknown(cards: CardsOfNodes, node: NodeInfo, info: PodInfo) -> str:
    return UNKNOWN_CARDS.format(info.pod.key) if cards.cards_of(node, info) is None else ""


def within_budgets(pods: Sequence[Pod], budgets: Budgets) -> tuple[list[Pod], dict[str, str]]:
    """The pods that may be evicted together, the first ones first, and why the others may not."""
    left = dict(budgets.allowed)
    found, refused = [], {}
    for pod in pods:
        covering = budgets.covering(pod)
        if all(left[key] > 0 for key in covering):
            found.append(pod)
            for key in covering:
                left[key] -= 1
        else:
            name = next(key for key in covering if left[key] <= 0)
            refused[pod.key] = (
                f"PodDisruptionBudget {name} allows no further disruption together with that of "
                "the pods of the plan"
            )
    return found, refused


def delete_commands(pods: Iterable[Pod]) -> tuple[str, ...]:
    """The commands that evict pods in their order, one for pods of a namespace that follow each
    other."""
    lines: list[list[str]] = []
    last = None
    for pod in pods:
        if pod.namespace != last:
            lines.append([f"kubectl delete pod -n {pod.namespace}"])
            last = pod.namespace
        lines[-1].append(pod.name)
    return tuple(" ".join(words) for words in lines)


def moves_of(
    victims: Sequence[Pod],
    before: Mapping[str, tuple[str, tuple[str, ...]]],
    after: Mapping[str, tuple[str, tuple[str, ...]]],
) -> tuple[CardMove, ...]:
    """The moves of pods. before, after: pod -> node and cards; pods with the same in both stay."""
    pairs = ((pod.key, before[pod.key], after[pod.key]) for pod in victims)
    return tuple(CardMove(key, *old, *new) for key, old, new in pairs if old != new)
