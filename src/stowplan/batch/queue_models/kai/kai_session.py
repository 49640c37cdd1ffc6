"""A session of KAI-Scheduler: the snapshot on which its actions work, with the orders of jobs and
nodes and the checks before placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.kai.kai_topology import TopologyPlacement
from stowplan.batch.queue_models.kai.session_claims import SessionClaims
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS, CPU, PODS, ResourceIndex
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_queue import QueueTree, Shares
from stowplan.batch.queue_models.kai.state.kai_task import (
    ALLOCATED_STATUSES,
    KaiStatus,
    KaiTask,
)
from stowplan.batch.queue_models.kai.state.numa_zones import NumaPolicy, is_guaranteed
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, SubGroupSet

NEW_CARD = ""
"""Stands for a whole card among the shared cards of a node."""
AVAILABLE_SCORE = 1000.0
SHARED_CARD_SCORE = 10_000.0
KIND_SCORE = 10.0
NOMINATED_SCORE = 10_000_000.0
PACK_SCORE = 9.0
ZONE_SCORE = 100.0
CLAIMS_PLUGIN = "dynamicresources"
SPREAD = "spread"


class KaiOptions(msgspec.Struct, frozen=True):
    """Configuration. actions: in the order in which they run. plugins: that are on. placement:
    pack or spread by `gpu` and `cpu`. k, saturation: of the proportion plugin. Runtimes and grace
    in seconds. max_moved: jobs that consolidation may move, -1 for any number. skips_alike: a job
    with the constraints of one that found no victims is tried only if it asks for less."""

    actions: tuple[str, ...] = ()
    plugins: frozenset[str] = frozenset()
    placement: Mapping[str, str] = {}
    k: float = 1.0
    saturation: float = 1.0
    reclaim_min_runtime: float = 0.0
    preempt_min_runtime: float = 0.0
    reclaim_by_leaf: bool = False
    max_moved: int = -1
    grace: float = 60.0
    skips_alike: bool = True


class KaiRules(msgspec.Struct, frozen=True):
    """fits: whether a pod may go to a node beside the pods that are on nodes now. fits_node:
    whatever is on nodes."""

    fits: Callable[[KaiSession, KaiTask, KaiNode], bool]
    fits_node: Callable[[KaiSession, KaiTask, KaiNode], bool]


class KaiSession:
    """The snapshot and what happened on it. binds: pod -> node. evicts: keys of pods.

    rules: whether a pod may go to a node apart from amounts; the assembly provides them."""

    def __init__(
        self,
        options: KaiOptions,
        nodes: Iterable[KaiNode],
        jobs: Iterable[KaiJob],
        queues: QueueTree,
        topology: TopologyPlacement,
        now: float,
        rules: KaiRules,
        claims: SessionClaims,
    ) -> None:
        self.options = options
        self.nodes = {node.name: node for node in nodes}
        self.jobs = {job.uid: job for job in jobs}
        self.queues = queues
        self.topology = topology
        self.now = now
        self.rules = rules
        self.claims = claims
        self.binds: dict[str, str] = {}
        self.evicts: list[str] = []
        self.opened_cards = 0
        memories = [node.memory for node in self.nodes.values() if node.memory > 100]
        self.least_memory = min(memories, default=None)
        self.most_memory = max(memories, default=None)
        amounts = [node.allocatable for node in self.nodes.values()]
        self.most = [max(column) for column in zip(*amounts, strict=True)]
        zoned = [node.numa for node in self.nodes.values() if node.numa is not None]
        self.most_zones = max((len(topology.zones) for topology in zoned), default=0)
        self.zone_devices = {
            place
            for topology in zoned
            if topology.policy != NumaPolicy.NONE
            for place in topology.devices()
        }
        for job in self.jobs.values():
            self._account(job)
            job.make_signature()
        if zoned:
            self._open_zones()
        queues.divide(options.k)

    @property
    def index(self) -> ResourceIndex:
        """The resources of amounts."""
        return next(iter(self.nodes.values())).index if self.nodes else ResourceIndex(())

    def _account(self, job: KaiJob) -> None:
        index = job.index
        for task in job.tasks():
            if task.status & ALLOCATED_STATUSES:
                shares = index.shares(task.accepted)
                self.queues.allocate(job.queue, shares, job.is_preemptible)
                self.queues.ask(job.queue, shares)
            elif task.status == KaiStatus.PENDING:
                cpu, memory, cards = index.shares(task.request)
                cards += task.cards.memory_as_cards(self.least_memory)
                self.queues.ask(job.queue, (cpu, memory, cards))

    # Accounts of queues.

    def on_placed(self, task: KaiTask, sign: int = 1) -> None:
        """Account for a pod that got a place, or with sign -1 lost one."""
        job = self.jobs[task.job]
        self.queues.allocate(job.queue, job.index.shares(task.accepted), job.is_preemptible, sign)
        node = self.nodes[task.node]
        if node.numa is not None:
            node.numa.charge(task.numa, sign)
        if task.pod.spec.resource_claims:
            if sign > 0:
                self.claims.allocate(task, node)
            else:
                self.claims.release(task)

    def wanted(self, job: KaiJob) -> Shares:
        """What the next pods of a job ask for, in a simulation."""
        return job.index.shares(job.wanted(False, self.least_memory))

    def is_over_capacity(
        self, job: KaiJob, tasks: Sequence[KaiTask], with_limits: bool = True
    ) -> bool:
        """Whether pods would bring the job's queues above a limit or, if it is not preemptible, a
        quota. Shares in memory count by the largest card of the cluster."""
        total = [0.0, 0.0, 0.0]
        for task in tasks:
            cpu, memory, cards = job.index.shares(task.request)
            if task.cards.memory > 0:
                cards = task.cards.memory_as_cards(self.most_memory)
            total = [total[0] + cpu, total[1] + memory, total[2] + cards]
        check = self.queues.is_over if with_limits else self.queues.is_over_quota
        return check(job.queue, total, job.is_preemptible)

    # Nodes.

    def exceeds_every_node(self, task: KaiTask) -> bool:
        """Whether a pod asks for more of a resource than any node has."""
        if "predicates" not in self.options.plugins:
            return False
        most = self.most or [0.0] * len(task.request)
        return any(asked > bound for asked, bound in zip(task.request, most, strict=True))

    def fits(self, task: KaiTask, node: KaiNode) -> bool:
        """Whether a pod may go to a node, now or once what is being released is gone."""
        if not node.fits_later(task):
            return False
        if "predicates" not in self.options.plugins:
            return True
        job = self.jobs[task.job]
        if self.queues.is_over(job.queue, node.quota_of(task), job.is_preemptible):
            return False
        if not node.takes_kind(task) or (task.cards.memory > 0 and not node.reports_memory):
            return False
        return (
            self._has_pod_slots(task, node)
            and node.is_ready
            and self.rules.fits(self, task, node)
            and self._is_admitted(task, node)
            and self._claims_fit(task, node)
        )

    # Claims.

    def may_start(self, task: KaiTask) -> bool:
        """Whether a pod may be placed on any node: no request above all nodes, and its claims are
        there for its queue."""
        if self.exceeds_every_node(task):
            return False
        if not task.pod.spec.resource_claims or CLAIMS_PLUGIN not in self.options.plugins:
            return True
        return self.claims.may_start(task, self.jobs[task.job].queue)

    def _claims_fit(self, task: KaiTask, node: KaiNode) -> bool:
        if not task.pod.spec.resource_claims or CLAIMS_PLUGIN not in self.options.plugins:
            return True
        return self.claims.fit(task, node)

    # NUMA zones.

    def _open_zones(self) -> None:
        """Give pods their recorded zones; what zones have left follows from the pods on nodes."""
        for node in self.nodes.values():
            if node.numa is not None and node.numa.policy != NumaPolicy.NONE:
                node.open_zones()
        for job in self.jobs.values():
            for task in job.tasks():
                home = self.nodes.get(task.node)
                if home is not None and home.numa is not None and home.is_aligned(task):
                    task.numa = home.numa.read_placement(task.pod, home.index)

    def _is_admitted(self, task: KaiTask, node: KaiNode) -> bool:
        """Whether the kubelet could align a pod, where it rejects those that it cannot."""
        if node.numa is None or not node.numa.rejects or not node.is_aligned(task):
            return True
        return node.numa.place(task.pod, node.index) is not None

    def choose_zones(self, task: KaiTask, node: KaiNode) -> None:
        """Note the zones that a pod is expected to get on a node."""
        task.numa = ()
        if node.numa is not None and node.is_aligned(task):
            task.numa = node.numa.place(task.pod, node.index) or ()

    def _zone_score(self, task: KaiTask, node: KaiNode) -> float:
        """Fewer zones are better. A node without zones counts as the most that any has."""
        is_sensitive = is_guaranteed(task.pod) or any(
            task.request[place] > 0 for place in self.zone_devices
        )
        if not self.most_zones or not is_sensitive:
            return 0.0
        topology = node.numa
        if topology is None or not topology.zones:
            return ZONE_SCORE / self.most_zones
        if not node.is_aligned(task):
            return ZONE_SCORE / len(topology.zones)
        placement = topology.place(task.pod, node.index)
        if placement is None:
            return 0.0
        return ZONE_SCORE / max(1, len(placement))

    def _has_pod_slots(self, task: KaiTask, node: KaiNode) -> bool:
        free = node.idle[PODS] + node.releasing[PODS]
        if not task.is_shared:
            return free > 0
        cards = self.fitting_cards(task, node)
        chosen = self.choose_cards(cards, task, node, False)
        if chosen is None or chosen[1]:
            chosen = self.choose_cards(cards, task, node, True)
        is_new = chosen is None or any(not group.lstrip("+-").isdigit() for group in chosen[0])
        # A new shared card is held by a pod of its own.
        return not is_new or free >= 2

    def ordered_nodes(self, nodes: Sequence[KaiNode], task: KaiTask) -> list[KaiNode]:
        """Nodes from the best score down, equal ones by name; without those that have none."""
        low, high = self._free_range(nodes, task)
        scored = []
        for node in nodes:
            score = self._score(task, node, low, high)
            if score is not None:
                scored.append((-score, node.name, node))
        return [node for _, _, node in sorted(scored, key=lambda entry: entry[:2])]

    def _free_range(self, nodes: Sequence[KaiNode], task: KaiTask) -> tuple[float, float]:
        place = CARDS if task.needs_card else CPU
        free = [
            node.idle[place] + node.releasing[place] for node in nodes if node.allocatable[place]
        ]
        return min(free, default=0.0), max(0.0, max(free, default=0.0))

    def _score(self, task: KaiTask, node: KaiNode, low: float, high: float) -> float | None:
        on = self.options.plugins
        score = 0.0
        if "nodeavailability" in on and node.fits_idle(task):
            score += AVAILABLE_SCORE
        if "gpusharingorder" in on and any(
            node.fits_group(task.cards, group) for group in node.used_memory
        ):
            score += SHARED_CARD_SCORE
        if "resourcetype" in on and not task.needs_card and node.is_without_cards:
            score += KIND_SCORE
        if "nominatednode" in on and task.pod.status.nominated_node_name == node.name:
            score += NOMINATED_SCORE
        if "nodeplacement" in on:
            score += self._placement_score(task, node, low, high)
        if self.most_zones:
            score += self._zone_score(task, node)
        if "topology" in on:
            by_topology = self.topology.score(self.jobs[task.job], task, node)
            if by_topology is None:
                return None
            score += by_topology
        return score

    def _placement_score(self, task: KaiTask, node: KaiNode, low: float, high: float) -> float:
        place = CARDS if task.needs_card else CPU
        free = node.idle[place] + node.releasing[place]
        overall = node.allocatable[place]
        if self.options.placement.get("gpu" if task.needs_card else "cpu") == SPREAD:
            if place == CARDS and node.card_count is not None:
                overall = float(node.card_count)
            return free / overall if overall else 0.0
        if overall == 0 or high == 0:
            return 0.0
        if low == high:
            return PACK_SCORE
        return PACK_SCORE * (1 - (free - low) / (high - low))

    # Shared cards.

    def fitting_cards(self, task: KaiTask, node: KaiNode) -> list[str]:
        """Shared cards that a share fits on, and NEW_CARD per whole one, best first."""
        cards = [group for group in node.used_memory if node.fits_group(task.cards, group)]
        cards += [NEW_CARD] * (int(node.idle[CARDS]) + int(node.releasing[CARDS]))
        return sorted(cards, key=lambda card: -self._card_score(node, card))

    def _card_score(self, node: KaiNode, card: str) -> float:
        part = 0.0 if card == NEW_CARD else node.used_memory[card] / node.memory
        on = self.options.plugins
        score = part if "gpupack" in on else 0.0
        if "gpuspread" in on:
            score += 1.0 - part
        return score

    def choose_cards(
        self, cards: Sequence[str], task: KaiTask, node: KaiNode, is_simulated: bool
    ) -> tuple[tuple[str, ...], bool] | None:
        """The cards for a share and whether it must wait for one of them; None if they do not
        suffice."""
        chosen: list[str] = []
        waits = False
        for card in cards:
            if card == NEW_CARD:
                waits |= is_simulated or not node.fits_idle(task)
                self.opened_cards += 1
                chosen.append(f"card-{self.opened_cards}")
            else:
                waits |= not node.fits_group_now(task.cards, card) or not node.fits_idle(task)
                chosen.append(card)
            if len(chosen) == task.cards.count:
                return tuple(chosen), waits
        return None

    def node_sets(
        self,
        job: KaiJob,
        group: KaiPodSet | SubGroupSet,
        pod_sets: Sequence[KaiPodSet],
        tasks: Sequence[KaiTask],
        nodes: Sequence[KaiNode],
    ) -> Sequence[Sequence[KaiNode]]:
        """Sets of nodes to try for pods of a sub-group, best first."""
        if "topology" not in self.options.plugins:
            return [nodes]
        return self.topology.node_sets(job, group, pod_sets, tasks, nodes)
