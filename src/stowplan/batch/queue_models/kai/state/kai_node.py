"""A node in a session of KAI-Scheduler: what is idle, used and being released, and its shared
cards.

A shared card is a group of shares with one id. Its memory is counted in MiB: used by all shares,
also those that wait for it; allocated without those; being released.
"""

from __future__ import annotations

import math
from collections import defaultdict

from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    Amount,
    KaiCards,
    ResourceIndex,
    is_mig,
    is_within,
)
from stowplan.batch.queue_models.kai.state.kai_task import (
    ACTIVE_STATUSES,
    MIG,
    SHARE,
    USED_STATUSES,
    WHOLE,
    KaiStatus,
    KaiTask,
)
from stowplan.batch.queue_models.kai.state.numa_zones import NumaPolicy, NumaTopology, Placement
from stowplan.columns.nodeinfo import NodeInfo
from stowplan.columns.pods.podinfo import host_ports
from stowplan.objects.kai.annotation_numbers import unsigned_number
from stowplan.objects.node import Node

DEFAULT_CARD_MEMORY = 100
"""MiB of a card without the label, so that shares of it are whole numbers."""
MIB_BELOW = 1 << 20
"""Card memory from here on is in bytes."""
PIPELINED, RELEASING = int(KaiStatus.PIPELINED), int(KaiStatus.RELEASING)
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def card_memory(labels: dict[str, str]) -> tuple[int, bool]:
    """MiB of a card, down to a multiple of 100, and whether the node says it."""
    memory = unsigned_number(labels.get("nvidia.com/gpu.memory"))
    if memory is None:
        return DEFAULT_CARD_MEMORY, False
    if memory >= MIB_BELOW:
        memory //= 1 << 20
    return memory - memory % 100, True


def is_ready(node: Node) -> bool:
    """Schedulable, ready as far as it says, and under no pressure."""
    if node.spec.unschedulable:
        return False
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return False
        if condition.type in PRESSURES and condition.status != "False":
            return False
    return True


class KaiNode:
    """A node. allocatable, idle, used, releasing: amounts. tasks: copies of the pods on it, as
    they were when they were put there. affine: those that have affinity to pods. memory: MiB of
    each card. numa: its zones, where a report of them is there and the plugin is on. row,
    changed_rows: where `NodeRows` learns of changes. was_touched: pods were put on it or taken off
    since it was counted."""

    def __init__(self, node: Node, index: ResourceIndex, numa: NumaTopology | None = None) -> None:
        self.node = node
        self.name = node.name
        self.index = index
        self.numa = numa
        self.allocatable: Amount = index.read(node.status.allocatable)
        self.idle: Amount = list(self.allocatable)
        self.used: Amount = index.empty()
        self.releasing: Amount = index.empty()
        self.memory, self.reports_memory = card_memory(node.labels)
        self.tasks: dict[str, KaiTask] = {}
        self.old_mig: set[str] = set()
        self.used_memory: dict[str, int] = defaultdict(int)
        self.releasing_memory: dict[str, int] = defaultdict(int)
        self.allocated_memory: dict[str, int] = {}
        self.releasing_groups: set[str] = set()
        self.has_claimed_cards = False
        self.affine: dict[str, KaiTask] = {}
        self.row = -1
        self.changed_rows: set[int] = set()
        self.was_touched = False
        self._free_cards: float | None = None
        self._n_users: dict[tuple[str, str, str], int] = {}
        self.is_ready = is_ready(node)
        self.card_count = unsigned_number(node.labels.get("nvidia.com/gpu.count"))

    # Fit.

    def fits_idle(self, task: KaiTask) -> bool:
        """Whether a pod fits now."""
        return self._fits(task, self.idle)

    def fits_later(self, task: KaiTask) -> bool:
        """Whether a pod fits now or once what is being released is gone."""
        return self._fits(task, [a + b for a, b in zip(self.idle, self.releasing, strict=True)])

    def _fits(self, task: KaiTask, free: Amount) -> bool:
        if not self._is_valid_portion(task.cards):
            return False
        if task.kind in (WHOLE, MIG):
            shared = sum(1 for device in task.gpu_devices if device in self._n_users)
            if shared:
                free = [*free]
                free[CARDS] += shared
            return is_within(task.request, free)
        if any(asked > free[place] for place, asked in enumerate(task.request) if place != CARDS):
            return False
        whole = math.floor(free[CARDS])
        shared = sum(1 for group in self.used_memory if self.fits_group(task.cards, group))
        return whole + min(shared, task.cards.count) >= task.cards.count

    def _is_valid_portion(self, cards: KaiCards) -> bool:
        portion = self.portion_of(cards)
        return portion <= 1 or portion == int(portion)

    def portion_of(self, cards: KaiCards) -> float:
        """The part of a card that a request asks for here."""
        return self.as_portion(cards.memory) if cards.memory > 0 else cards.portion

    def as_portion(self, memory: int) -> float:
        """Memory as a part of a card, up to a hundredth."""
        return math.ceil(memory / self.memory * 100) / 100

    def share_memory(self, cards: KaiCards) -> int:
        """MiB of each card that a request asks for here."""
        return cards.memory if cards.memory > 0 else int(cards.portion * self.memory)

    def quota_of(self, task: KaiTask) -> tuple[float, float, float]:
        """cpu, memory and cards that a pod would count for here."""
        if task.cards.mig:
            cards = task.cards.quota
        else:
            cards = task.cards.count * self.as_portion(self.share_memory(task.cards))
        return task.request[0], task.request[1], cards

    def fits_group(self, cards: KaiCards, group: str) -> bool:
        """Whether a share fits on a shared card, what is released there counted as free."""
        allocated = self.allocated_memory.get(group, 0)
        releasing = self.releasing_memory.get(group, 0)
        return (
            self.used_memory.get(group, 0) != 0
            and self.memory - allocated + releasing - self.share_memory(cards) >= 0
            and allocated != releasing
        )

    def fits_group_now(self, cards: KaiCards, group: str) -> bool:
        """Whether a share fits on a shared card that is in use now."""
        if group not in self.allocated_memory:
            return False
        return self.memory - self.allocated_memory[group] - self.share_memory(cards) >= 0

    # NUMA zones.

    def is_aligned(self, task: KaiTask) -> bool:
        """Whether the kubelet aligns a pod here."""
        return self.numa is not None and self.numa.is_aligned(task.pod, task.request)

    def recorded_zones(self, task: KaiTask) -> Placement:
        """What is recorded that a pod has of the zones; empty for one that is not aligned here."""
        if self.numa is None or not self.is_aligned(task):
            return ()
        return self.numa.read_placement(task.pod, self.index)

    def open_zones(self) -> None:
        """Zones have what they may give, less what is recorded for the pods that are here; with
        other rules what their report says."""
        numa = self.numa
        if numa is None or numa.policy == NumaPolicy.NONE or numa.trusts_available:
            return
        numa.reset()
        for task in self.tasks.values():
            if task.status & ACTIVE_STATUSES:
                numa.charge(numa.read_placement(task.pod, self.index))

    # Kind of node.

    @property
    def is_mig(self) -> bool:
        """Cards are divided by MIG."""
        label = self.node.labels.get("node-role.kubernetes.io/mig-enabled")
        if label is not None:
            return label in ("1", "t", "T", "TRUE", "true", "True")
        return any(
            is_mig(name) and self.allocatable[place] > 0
            for place, name in enumerate(self.index.names)
        )

    @property
    def is_without_cards(self) -> bool:
        """A node for pods without cards."""
        return not self.is_mig and self.allocatable[CARDS] <= 0 and not self.has_claimed_cards

    @property
    def takes_whole_cards(self) -> bool:
        """Whether pods that ask for whole cards may go here."""
        return not self.is_mig or self.node.labels.get("nvidia.com/mig.strategy") != "mixed"

    def takes_kind(self, task: KaiTask) -> bool:
        """Whether the node has the kind of card that a pod asks for."""
        if task.is_old_mig:
            return False
        if not task.needs_card:
            return True
        if self.has_claimed_cards and task.is_shared:
            return False
        if not self.is_mig:
            return task.kind != MIG
        if task.kind == MIG and self.old_mig:
            return False
        strategy = self.node.labels.get("nvidia.com/mig.strategy")
        if strategy == "single":
            return task.kind == WHOLE
        return strategy != "mixed" or task.kind == MIG

    # Pods that come and go.

    def add(self, task: KaiTask, may_move: bool = False) -> bool:
        """Put a pod on the node; False if it is here already. may_move: a share that goes to
        another card of the node."""
        self.accept(task)
        if task.has_share and may_move:
            self.tasks.pop(task.key, None)
        elif task.key in self.tasks:
            return False
        self.tasks[task.key] = task.clone()
        if task.is_old_mig:
            self.old_mig.add(task.uid)
        self._count(task, 1)
        if task.has_share:
            for group in task.groups:
                self._add_share(task, group)
        affinity = task.pod.spec.affinity
        if affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity):
            self.affine[task.key] = self.tasks[task.key]
        self._note_change()
        return True

    def has_ports_for(self, task: KaiTask) -> bool:
        """Whether the host ports of a pod are free; those of pods that terminate are not."""
        ports = host_ports(task.pod.spec)
        if not ports:
            return True
        taken = [port for other in self.tasks.values() for port in host_ports(other.pod.spec)]
        there = NodeInfo(self.node, used_ports=tuple(taken))
        return not any(map(there.port_conflicts, ports))

    def remove(self, task: KaiTask) -> bool:
        """Take a pod off the node, as it was put there; False if it is not here."""
        placed = self.tasks.pop(task.key, None)
        if placed is None:
            return False
        self._count(placed, -1)
        if placed.has_share:
            for group in placed.groups:
                self._remove_share(placed, group)
        self.affine.pop(task.key, None)
        self._note_change()
        return True

    def _note_change(self) -> None:
        self.was_touched = True
        self._free_cards = None
        self.changed_rows.add(self.row)

    def update(self, task: KaiTask) -> bool:
        """Count a pod by its present status."""
        return self.remove(task) and self.add(task)

    def accept(self, task: KaiTask) -> None:
        """Note what a pod has here, if its status is that of one on a node."""
        if not task.status & USED_STATUSES:
            return
        cards = task.cards
        if task.kind == WHOLE and not cards.claimed and cards.portion in (0.0, 1.0):
            # It has what it asks for.
            task.received, task.accepted, task.accepted_cards = WHOLE, task.request, cards
            return
        if task.kind == MIG:
            task.received = MIG
            task.accepted_cards = KaiCards(mig=cards.mig)
        elif task.is_shared:
            task.received = SHARE
            task.accepted_cards = KaiCards(
                cards.count, self.portion_of(cards), self.share_memory(cards)
            )
        else:
            task.received = WHOLE
            whole = cards.cards
            count = int(whole) if whole >= 1 else int(whole > 0)
            portion = 1.0 if whole >= 1 else whole
            task.accepted_cards = KaiCards(count, portion, claimed=cards.claimed)
        accepted = list(task.request)
        accepted[CARDS] = task.accepted_cards.cards + task.accepted_cards.claimed_cards
        task.accepted = accepted

    def add_claimed_cards(self, count: int) -> None:
        """GPUs that a driver offers for claims."""
        self.allocatable[CARDS] += count
        self.idle[CARDS] += count
        self.has_claimed_cards = True
        self._note_change()

    def _count(self, task: KaiTask, sign: int) -> None:
        accepted = task.accepted
        if accepted[CARDS] > 0 and task.devices:
            shared = self._count_users(task, sign)
            accepted = list(accepted)
            accepted[CARDS] -= min(shared, accepted[CARDS])
        waits, leaves = task.status == PIPELINED, task.status == RELEASING
        used, idle, releasing, offered = self.used, self.idle, self.releasing, self.allocatable
        for place, asked in enumerate(accepted):
            if not asked or offered[place] == 0 or (place == CARDS and task.has_share):
                continue
            amount = sign * asked
            used[place] += amount
            if waits:
                releasing[place] -= amount
                continue
            idle[place] -= amount
            if leaves:
                releasing[place] += amount

    def _count_users(self, task: KaiTask, sign: int) -> int:
        """Count users of the GPUs of a pod's claims; how many GPUs others use as well."""
        shared = 0
        for device in task.gpu_devices:
            users = self._n_users.get(device, 0)
            shared += users > (0 if sign > 0 else 1)
            users = max(0, users + sign)
            if users:
                self._n_users[device] = users
            else:
                self._n_users.pop(device, None)
        return shared

    # Shared cards.

    def _used_cards(self) -> int:
        return int(self.used[CARDS]) + sum(1 for used in self.used_memory.values() if used > 0)

    def _cards(self) -> int:
        return int(self.allocatable[CARDS]) if self.card_count is None else self.card_count

    def _allocate_memory(self, group: str, memory: int) -> None:
        self.allocated_memory[group] = self.allocated_memory.get(group, 0) + memory

    def _open_card(self) -> None:
        if self._cards() < int(self.idle[CARDS]) + self._used_cards():
            self.idle[CARDS] -= 1

    def _close_card(self) -> None:
        if self._cards() >= int(self.idle[CARDS]) + self._used_cards():
            self.idle[CARDS] += 1

    def _add_share(self, task: KaiTask, group: str) -> None:
        memory = self.share_memory(task.cards)
        self.used_memory[group] += memory
        if task.status == KaiStatus.RELEASING:
            self.releasing_memory[group] += memory
            self._allocate_memory(group, memory)
            if self.used_memory[group] == self.releasing_memory[group]:
                if group not in self.releasing_groups:
                    self.releasing[CARDS] += 1
                    self.releasing_groups.add(group)
                self._open_card()
        elif task.status == KaiStatus.PIPELINED:
            self.releasing_memory[group] -= memory
            if self.used_memory[group] - memory == self.releasing_memory[group] + memory:
                self.releasing[CARDS] -= 1
        else:
            self._allocate_memory(group, memory)
            if self.used_memory[group] <= memory:
                self._open_card()
            if group in self.releasing_groups:
                self.releasing[CARDS] -= 1
                self.releasing_groups.discard(group)

    def _remove_share(self, task: KaiTask, group: str) -> None:
        memory = self.share_memory(task.cards)
        self.used_memory[group] -= memory
        if task.status == KaiStatus.RELEASING:
            self.releasing_memory[group] -= memory
            self._allocate_memory(group, -memory)
            if self.used_memory[group] <= 0:
                self._close_card()
                if group in self.releasing_groups:
                    self.releasing[CARDS] -= 1
                    self.releasing_groups.discard(group)
        elif task.status == KaiStatus.PIPELINED:
            self.releasing_memory[group] += memory
            used, releasing = self.used_memory[group], self.releasing_memory[group]
            if used + memory == releasing - memory or (used == 0 and releasing == 0):
                self.releasing[CARDS] += 1
        else:
            self._allocate_memory(group, -memory)
            if self.used_memory[group] <= 0:
                self._close_card()
            if self._is_all_releasing(group) and group not in self.releasing_groups:
                self.releasing[CARDS] += 1
                self.releasing_groups.add(group)

    def _is_all_releasing(self, group: str) -> bool:
        used = self.used_memory.get(group, 0)
        return used != 0 and group in self.releasing_memory and self.releasing_memory[group] == used

    # Sums.

    def idle_cards(self) -> tuple[float, int]:
        """Cards and MiB of them that are free, parts of shared cards included."""
        cards, memory = 0.0, 0
        for allocated in self.allocated_memory.values():
            if allocated > 0:
                cards += 1 - self.as_portion(allocated)
                memory += self.memory - allocated
        idle = self.index.total_cards(self.idle)
        return cards + idle, memory + int(idle) * self.memory

    def releasing_cards(self) -> tuple[float, int]:
        """Cards and MiB of them that are being released, parts of shared cards included."""
        cards, memory = 0.0, 0
        for group, releasing in self.releasing_memory.items():
            if releasing > 0 and not self._is_all_releasing(group):
                cards += self.as_portion(releasing)
                memory += releasing
        whole = self.index.total_cards(self.releasing)
        return cards + whole, memory + int(whole) * self.memory

    def free_cards(self) -> float:
        """Cards that are free or being released."""
        if self._free_cards is None:
            self._free_cards = self.idle_cards()[0] + self.releasing_cards()[0]
        return self._free_cards

    def free_parts(self) -> float:
        """Free parts of shared cards, in cards."""
        total = 0.0
        for group, used in self.used_memory.items():
            free = (
                self.memory
                - self.allocated_memory.get(group, 0)
                + self.releasing_memory.get(group, 0)
            )
            if used > 0 and free > 0:
                total += free / self.memory
        return total
