"""vGPU: shares of GPU cards by memory, cores and slots.

Source: volcano master of 2026-08-20, pkg/scheduler/api/devices/nvidia/vgpu.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from stowplan.batch.queue_models.volcano.volcano_defects import (
    ALL_DEFECTS,
    MEMORY_PERCENTAGE,
    SPREAD_SCORE,
)
from stowplan.framework.deciders.tasks import group_of
from stowplan.objects.node import Node
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import Quantity, value

NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
REGISTER = "volcano.sh/node-vgpu-register"
IDS = "volcano.sh/vgpu-ids-new"
USE_TYPE, NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_UUID, NO_UUID = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
MODE, GROUP_POLICY = "volcano.sh/vgpu-mode", "volcano.sh/vgpu-podgroup-policy"
BINPACK, SPREAD = "binpack", "spread"
MAKER = "NVIDIA"
SHARED, MIG = "hami-core", "mig"
CORES_MAX = 100


class CardRequest(msgspec.Struct, frozen=True):
    """What a container requests of each of `count` cards. percentage: of the memory of a card;
    None where `memory` counts."""

    count: int
    memory: int
    percentage: int | None
    cores: int

    def memory_of(self, card: VgpuCard) -> int:
        """MiB of a card."""
        return self.memory if self.percentage is None else card.memory * self.percentage // 100


class VgpuCard:
    """A card. slots: pods that it takes. used: by pod -> (group, memory, cores)."""

    def __init__(self, index: int, uuid: str, slots: int, memory: int, kind: str) -> None:
        self.index, self.uuid = index, uuid
        self.slots, self.memory, self.kind = slots, memory, kind
        self.used_slots = self.used_memory = self.used_cores = 0
        self.pods: dict[str, tuple[str, int, int]] = {}

    def copy(self) -> VgpuCard:
        """A copy to try changes on."""
        made = VgpuCard(self.index, self.uuid, self.slots, self.memory, self.kind)
        made.used_slots, made.used_memory = self.used_slots, self.used_memory
        made.used_cores, made.pods = self.used_cores, dict(self.pods)
        return made

    def take(self, memory: int, cores: int, sign: int = 1) -> None:
        """Use a slot, memory and cores; sign -1 frees them."""
        self.used_slots += sign
        self.used_memory += sign * memory
        self.used_cores += sign * cores

    def has_group(self, group: str) -> bool:
        """True if a pod of a group uses the card."""
        return bool(group) and any(
            other == group and (memory or cores) for other, memory, cores in self.pods.values()
        )


class CardShare(msgspec.Struct, frozen=True):
    """What a container has of a card."""

    uuid: str
    memory: int
    cores: int


class CardChoice(msgspec.Struct, frozen=True):
    """Cards for a pod: per container that requests any. score: of the node."""

    shares: tuple[tuple[CardShare, ...], ...]
    score: float

    @property
    def ids(self) -> str:
        """The annotation with the cards of the pod."""
        return ";".join(
            "".join(f"{one.uuid},{MAKER},{one.memory},{one.cores}:" for one in container)
            for container in self.shares
        )


class NodeCards:
    """Cards of a node. mode: how they are shared, of the last card that states it."""

    def __init__(self, cards: Iterable[VgpuCard], mode: str) -> None:
        self.cards, self.mode = list(cards), mode

    @classmethod
    def of(cls, node: Node) -> NodeCards | None:
        """The cards that a node registers; None for none, or where its amounts are missing."""
        register = node.metadata.annotations.get(REGISTER, "")
        offered = node.status.allocatable
        if ":" not in register or not all(_whole(offered, n) for n in (NUMBER, CORES, MEMORY)):
            return None
        cards = []
        for index, text in enumerate(register.split(":")):
            if "," not in text:
                continue
            items = text.split(",")
            if len(items) < 6:
                return None
            cards.append(VgpuCard(index, items[0], _count(items[1]), _count(items[2]), items[3]))
        # Without a device ConfigMap no geometry is known, and MIG cards are shared like others.
        return cls(cards, SHARED) if cards else None

    def copy(self) -> NodeCards:
        """A copy to try changes on."""
        return NodeCards((card.copy() for card in self.cards), self.mode)

    def add_running(self, pod: Pod) -> None:
        """Count a pod that has cards; on each card once, whatever its containers have."""
        for container in _decoded(pod.metadata.annotations.get(IDS, "")):
            for share in container:
                card = next((card for card in self.cards if card.uuid in share.uuid), None)
                if card is not None and pod.uid not in card.pods:
                    card.take(share.memory, share.cores)
                    card.pods[pod.uid] = group_of(pod), share.memory, share.cores

    def place(self, pod: Pod, choice: CardChoice) -> None:
        """Count a pod on the cards chosen for it."""
        for card, share in self._shares(choice):
            card.take(share.memory, share.cores)
            _, memory, cores = card.pods.get(pod.uid, ("", 0, 0))
            card.pods[pod.uid] = group_of(pod), memory + share.memory, cores + share.cores

    def remove(self, pod: Pod, choice: CardChoice) -> None:
        """No longer count a pod on the cards chosen for it."""
        for card, share in self._shares(choice):
            card.take(share.memory, share.cores, -1)
            card.pods.pop(pod.uid, None)

    def running_choice(self, pod: Pod) -> CardChoice:
        """The cards that a running pod counts on."""
        found = [
            (CardShare(card.uuid, card.pods[pod.uid][1], card.pods[pod.uid][2]),)
            for card in self.cards
            if pod.uid in card.pods
        ]
        return CardChoice(tuple(found), 0.0)

    def _shares(self, choice: CardChoice) -> Iterator[tuple[VgpuCard, CardShare]]:
        by_uuid = {card.uuid: card for card in self.cards}
        for container in choice.shares:
            for share in container:
                yield by_uuid[share.uuid], share

    def choose(
        self, pod: Pod, policy: str, mends: Collection[str] = ALL_DEFECTS
    ) -> CardChoice | None:
        """Cards for a pod; None if it does not fit. Nothing is changed. mends: see
        `volcano_defects`."""
        wishes = pod.metadata.annotations
        if MODE in wishes and wishes[MODE] != self.mode:
            return None
        group = group_of(pod) if wishes.get(GROUP_POLICY) == SPREAD else ""
        trial, score = self.copy(), 0.0
        shares = []
        for request in card_requests(pod, with_percentage=MEMORY_PERCENTAGE in mends):
            if request.count > len(trial.cards):
                return None
            chosen: list[CardShare] = []
            for card in trial._in_order(policy):
                if not _allows(card, wishes) or card.has_group(group) or not _fits(card, request):
                    continue
                memory = request.memory_of(card)
                card.take(memory, request.cores)
                if request.count > 0:
                    chosen.append(CardShare(card.uuid, memory, request.cores))
                    score += _score(card, policy, SPREAD_SCORE in mends)
                if len(chosen) == request.count:
                    break
            if len(chosen) < request.count:
                return None
            shares.append(tuple(chosen))
        return CardChoice(tuple(shares), score)

    def _in_order(self, policy: str) -> list[VgpuCard]:
        if policy == BINPACK:
            return sorted(self.cards, key=lambda card: (-card.used_memory, card.index))
        if policy == SPREAD:
            return sorted(self.cards, key=lambda card: (card.used_slots, card.index))
        return self.cards[::-1]


def requests_cards(pod: Pod) -> bool:
    """True if a container requests vGPU cards or their memory."""
    return any(
        name in container.resources.limits
        for container in pod.spec.containers
        for name in (MEMORY, NUMBER)
    )


def card_requests(pod: Pod, *, with_percentage: bool = True) -> list[CardRequest]:
    """Requests of the containers that have one. with_percentage: of the memory of a card, too."""
    return [
        _request_of(container, with_percentage)
        for container in pod.spec.containers
        if NUMBER in container.resources.limits or MEMORY in container.resources.limits
    ]


def _request_of(container: Container, with_percentage: bool) -> CardRequest:
    limits = container.resources.limits
    amounts = {**container.resources.requests, **limits}
    memory = _whole(amounts, MEMORY)
    count = _whole(limits, NUMBER) if NUMBER in limits else 1
    percentage = None if memory else 100
    if with_percentage and PERCENTAGE in amounts:
        percentage = min(_whole(amounts, PERCENTAGE), 100)
    return CardRequest(count, memory, percentage, _whole(amounts, CORES))


def _fits(card: VgpuCard, request: CardRequest) -> bool:
    if card.slots <= card.used_slots:
        return False
    if card.memory - card.used_memory < request.memory_of(card):
        return False
    if card.used_cores + request.cores > CORES_MAX:
        return False
    if request.cores == CORES_MAX and card.used_slots > 0:
        return False
    return not (card.used_cores == CORES_MAX and request.cores == 0)


def _allows(card: VgpuCard, wishes: Mapping[str, str]) -> bool:
    """True if the wishes of a pod allow a card, by uuid and type."""
    use, avoid = (_listed(wishes.get(key, "")) for key in (USE_UUID, NO_UUID))
    if (use or avoid) and not card.uuid:
        return False
    if (use and card.uuid not in use) or card.uuid in avoid or MAKER not in card.kind:
        return False
    kind = card.kind.upper()
    if USE_TYPE in wishes:
        return any(part.upper() in kind for part in wishes[USE_TYPE].split(","))
    if NO_TYPE in wishes:
        return not any(part.upper() in kind for part in wishes[NO_TYPE].split(","))
    return True


def _score(card: VgpuCard, policy: str, scores_unused: bool) -> float:
    """Score of a card that was just taken: how full it is; with `spread` whether it was unused."""
    if policy == SPREAD:
        return 100.0 if scores_unused and card.used_slots == 1 else 0.0
    return 100.0 * (card.used_memory / card.memory) if policy == BINPACK and card.memory else 0.0


def _decoded(text: str) -> Iterator[list[CardShare]]:
    for container in text.split(";"):
        shares = []
        for part in container.split(":"):
            items = part.split(",")
            if len(items) >= 4 and items[2].isdigit() and items[3].isdigit():
                shares.append(CardShare(items[0], int(items[2]), int(items[3])))
        yield shares


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _whole(amounts: Mapping[str, Quantity], name: str) -> int:
    return value(amounts[name]) if name in amounts else 0


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
