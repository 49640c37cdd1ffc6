"""A session of KAI-Scheduler: the snapshot on which its actions work, with the orders of jobs and
nodes and the checks before placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.batch.queue_models.kai.actions.search_budget import SearchBudget
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_topology import TopologyPlacement
from stowplan.batch.queue_models.kai.kept_scores import NodeScores
from stowplan.batch.queue_models.kai.session_claims import SessionClaims
from stowplan.batch.queue_models.kai.session_volumes import SessionVolumes
from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    PODS,
    Amount,
    ResourceIndex,
    is_within,
)
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob, off_nodes
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_queue import QueueTree, Shares
from stowplan.batch.queue_models.kai.state.kai_task import (
    ALLOCATED_STATUSES,
    KaiStatus,
    KaiTask,
)
from stowplan.batch.queue_models.kai.state.node_rows import (
    Column,
    Mask,
    NodeRows,
    Rows,
    best_first,
    card_or_cpu,
)
from stowplan.batch.queue_models.kai.state.numa_zones import NumaPolicy, is_guaranteed
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, SubGroupSet
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.kai.zone_placement import KaiZonePlacement

NEW_CARD = ""
"""Stands for a whole card among the shared cards of a node."""
OPENED = "opened/"
"""Begins the names of cards that a session opens; no label can have such a value."""
AVAILABLE_SCORE = 1000.0
SHARED_CARD_SCORE = 10_000.0
KIND_SCORE = 10.0
NOMINATED_SCORE = 10_000_000.0
PACK_SCORE = 9.0
ZONE_SCORE = 100.0
CLAIMS_PLUGIN = "dynamicresources"
SPREAD = "spread"


class KaiRules(msgspec.Struct, frozen=True):
    """fits: whether a pod may go to a node beside the pods that are on nodes now. fits_node:
    whatever is on nodes. volumes: those of a snapshot."""

    fits: Callable[[KaiSession, KaiTask, KaiNode], bool]
    fits_node: Callable[[KaiSession, KaiTask, KaiNode], bool]
    volumes: Callable[[Snapshot], SessionVolumes] = lambda _: SessionVolumes()


class KeptCluster(msgspec.Struct, frozen=True):
    """What sessions of one cluster keep: the columns of its nodes, and its jobs; and which jobs
    have pods on nodes that are gone. The amounts of the queues are counted already."""

    rows: NodeRows
    jobs: dict[str, KaiJob]
    off_nodes: frozenset[str]


class EvictionNote(msgspec.Struct, frozen=True):
    """Why a pod is evicted. text: in KAI's words. size: pods that are evicted together. job: that
    gets their resources, "" for none."""

    action: str
    text: str
    size: int
    job: str = ""


class KaiSession:
    """The snapshot and what happened on it. binds: pod -> node. evicts: keys of pods.
    eviction_notes: why, by key of the pod.

    rules: whether a pod may go to a node apart from amounts; the assembly provides them. rows:
    its nodes as columns. waiting: jobs with pods that waited when it was opened. budget: what
    searches for victims may simulate."""

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
        kept: KeptCluster | None = None,
        usage: Mapping[str, Shares] | None = None,
    ) -> None:
        """nodes: by name. kept: what an earlier session has counted of them. usage: of queues over
        time."""
        self.options = options
        self.nodes = {node.name: node for node in nodes}
        self.rows = NodeRows([*self.nodes.values()]) if kept is None else kept.rows
        self.jobs = {job.uid: job for job in jobs} if kept is None else kept.jobs
        self.off_nodes = off_nodes(self.jobs, self.nodes) if kept is None else kept.off_nodes
        self.queues = queues
        self.topology = topology
        self.now = now
        self.rules = rules
        self.claims = claims
        self.binds: dict[str, str] = {}
        self.evicts: list[str] = []
        self.eviction_notes: dict[str, EvictionNote] = {}
        self.budget = SearchBudget()
        self.volumes = SessionVolumes()
        self.opened_cards = 0
        self._row_scores = NodeScores(self.rows)
        self._exceeding: dict[int, tuple[Sequence[float], bool]] = {}
        self._rooms: dict[tuple[float, ...], tuple[int, float]] = {}
        memories = [node.memory for node in self.nodes.values() if node.memory > 100]
        self.least_memory = min(memories, default=options.unknown_memory or None)
        self.most_memory = max(memories, default=None)
        offered = self.rows.offered
        self.most: list[float] = offered.max(axis=1).tolist() if self.nodes else []
        zoned = [node.numa for node in self.nodes.values() if node.numa is not None]
        self.most_zones = max((len(topology.zones) for topology in zoned), default=0)
        self.zone_devices = {
            place
            for topology in zoned
            if topology.policy != NumaPolicy.NONE
            for place in topology.devices()
        }
        if kept is None:
            for job in self.jobs.values():
                self._account(job)
        self.waiting = [job for job in self.jobs.values() if job.n_pending]
        for job in self.waiting:
            job.make_signature()
        if zoned and kept is None:
            self._open_zones()
        queues.divide(options.k, usage)

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
        if task.has_volumes:
            (self.volumes.take if sign > 0 else self.volumes.give_back)(task)

    def wanted(self, job: KaiJob) -> Shares:
        """What the next pods of a job ask for, in a simulation."""
        return job.wanted_shares(self.least_memory)

    def is_over_capacity(
        self, job: KaiJob, tasks: Sequence[KaiTask], with_limits: bool = True
    ) -> bool:
        """Whether pods would bring the job's queues above a limit or, if it is not preemptible, a
        quota. Shares in memory count by the largest card of the cluster."""
        total = [0.0, 0.0, 0.0]
        last: Amount | None = None
        cpu = memory = cards = 0.0
        for task in tasks:
            # Pods of a job mostly share their request.
            if task.request is not last or task.cards.memory > 0:
                last = task.request
                cpu, memory, cards = job.index.shares(last)
                if task.cards.memory > 0:
                    last, cards = None, task.cards.memory_as_cards(self.most_memory)
            total[0] += cpu
            total[1] += memory
            total[2] += cards
        check = self.queues.is_over if with_limits else self.queues.is_over_quota
        return check(job.queue, total, job.is_preemptible)

    # Nodes.

    def exceeds_every_node(self, task: KaiTask) -> bool:
        """Whether a pod asks for more of a resource than any node has."""
        if "predicates" not in self.options.plugins:
            return False
        # Pods that ask for the same have the same request.
        known = self._exceeding.get(id(task.request))
        if known is None or known[0] is not task.request:
            most = self.most or [0.0] * len(task.request)
            exceeds = any(asked > bound for asked, bound in zip(task.request, most, strict=True))
            known = self._exceeding[id(task.request)] = task.request, exceeds
        return known[1]

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
            and self.is_admitted(task, node)
            and self._claims_fit(task, node)
        )

    # Claims.

    def may_start(self, task: KaiTask) -> bool:
        """Whether a pod may be placed on any node: no request above all nodes, and its claims are
        there for its queue."""
        return not (self.exceeds_every_node(task) or self.claim_problem(task))

    def claim_problem(self, task: KaiTask) -> str:
        """Why its claims keep a pod from all nodes, "" if they do not."""
        if not task.pod.spec.resource_claims or CLAIMS_PLUGIN not in self.options.plugins:
            return ""
        return self.claims.problem(task, self.jobs[task.job].queue)

    def _claims_fit(self, task: KaiTask, node: KaiNode) -> bool:
        if not task.pod.spec.resource_claims or CLAIMS_PLUGIN not in self.options.plugins:
            return True
        return self.claims.fit(task, node)

    # NUMA zones.

    def _open_zones(self) -> None:
        """Give pods their recorded zones; what zones have left follows from the pods on nodes."""
        for node in self.nodes.values():
            node.open_zones()
        for job in self.jobs.values():
            for task in job.tasks():
                home = self.nodes.get(task.node)
                if home is not None:
                    task.numa = home.recorded_zones(task)

    def is_admitted(self, task: KaiTask, node: KaiNode) -> bool:
        """Whether the kubelet could align a pod, where it rejects those that it cannot."""
        if node.numa is None or not node.numa.rejects or not node.is_aligned(task):
            return True
        return node.numa.place(task.zone_requests(node.index)) is not None

    def wants_zones(self, task: KaiTask) -> bool:
        """Whether it matters for a pod which zones nodes have."""
        return self.most_zones > 0 and (
            is_guaranteed(task.pod) or any(task.request[place] > 0 for place in self.zone_devices)
        )

    def choose_zones(self, task: KaiTask, node: KaiNode) -> None:
        """Note the zones that a pod is expected to get on a node."""
        task.numa = ()
        if node.numa is not None and node.is_aligned(task):
            task.numa = node.numa.place(task.zone_requests(node.index)) or ()

    def zone_record(self, task: KaiTask) -> tuple[KaiZonePlacement, ...]:
        """What a pod is expected to get of the zones of its node, as bind requests record it."""
        node = self.nodes.get(task.node)
        if node is None or node.numa is None:
            return ()
        return node.numa.record(task.numa, node.index)

    def _zone_score(self, task: KaiTask, node: KaiNode) -> float:
        """Fewer zones are better. A node without zones counts as the most that any has."""
        topology = node.numa
        if topology is None or not topology.zones:
            return ZONE_SCORE / self.most_zones
        if not node.is_aligned(task):
            return ZONE_SCORE / len(topology.zones)
        placement = topology.place(task.zone_requests(node.index))
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

    def places(self, nodes: Sequence[KaiNode], task: KaiTask) -> Iterator[KaiNode]:
        """Nodes that a pod may go to, now or once what is being released is gone, from the best
        score down, equal ones by name."""
        rows = self.rows.rows_of(nodes)
        is_known = self.is_known_by_row(task)
        if rows is None and is_known and self._has_row_scores(task):
            if not self._is_over(task):
                best = self._row_scores.best_first(task, self)
                yield from (self.rows.nodes[row] for row in best)
            return
        fitting = self.fitting_rows(task)
        chosen = np.flatnonzero(fitting) if rows is None else rows[fitting[rows]]
        if not len(chosen):
            return
        scores, chosen = self._scores(task, chosen, self.rows.free_range(card_or_cpu(task), rows))
        for row in best_first(scores, chosen):
            node = self.rows.nodes[row]
            if is_known or self.fits(task, node):
                yield node

    def may_have_room(
        self, job: KaiJob, rows: Rows | None = None, freed: Sequence[Column] = ()
    ) -> bool:
        """Whether there may be room for the next pods of a job once amounts are freed on some
        nodes. False is certain. rows: of these nodes, one may be there several times. freed:
        float64 (n_resources, n) of parts of them, in their order."""
        for request, count in job.next_plain_requests().items():
            room = self._room(request)
            if room >= count:
                continue
            if rows is not None:
                room = self.room_once_freed(request, rows, freed)
            if room < count:
                return False
        return True

    def room_once_freed(
        self, request: tuple[float, ...], rows: Rows, freed: Sequence[Column]
    ) -> float:
        """How many pods with a request fit at most, see `may_have_room`."""
        room = self._room(request)
        if room == np.inf or not len(rows):
            return room
        return room + self.rows.more_room_for(request, rows, freed)

    def _room(self, request: tuple[float, ...]) -> float:
        self.rows.refresh()
        known = self._rooms.get(request)
        if known is None or known[0] != self.rows.version:
            known = self.rows.version, self.rows.room_for([*request])
            self._rooms[request] = known
        return known[1]

    def is_known_by_row(self, task: KaiTask) -> bool:
        """Whether the columns alone tell where a pod fits."""
        return (
            task.is_plain
            and not self.rows.affine
            and not self.wants_zones(task)
            and "predicates" in self.options.plugins
        )

    def fitting_rows(self, task: KaiTask) -> Mask:
        """Nodes that a pod may go to, by row; if the columns do not tell all, those where it may
        have room."""
        fitting = self.rows.fits(task, later=True)
        if self.is_known_by_row(task):
            fitting &= self._plain_fit(task)
        return fitting

    def _plain_fit(self, task: KaiTask) -> Mask:
        fitting = self.may_go(task)
        if self._is_over(task):
            fitting[:] = False
        return fitting

    def may_go(self, task: KaiTask) -> Mask:
        """Nodes that a plain pod may go to, apart from amounts and queues."""
        fitting: Mask = self.rows.is_ready & self.rows.by_rules(task, self._fits_node)
        if task.needs_card:
            fitting &= self.rows.takes_whole_cards
        return fitting

    def _is_over(self, task: KaiTask) -> bool:
        """Whether a plain pod would bring its queues above a limit or quota."""
        job = self.jobs[task.job]
        shares = task.request[0], task.request[1], float(task.cards.count)
        return self.queues.is_over(job.queue, shares, job.is_preemptible)

    def _has_row_scores(self, task: KaiTask) -> bool:
        """Whether the score of a row depends on the row alone, and on the range of what is free."""
        on = self.options.plugins
        return not (
            ("gpusharingorder" in on and self.rows.shared)
            or ("nominatednode" in on and task.pod.status.nominated_node_name in self.nodes)
            or ("topology" in on and self.topology.has_scores)
            or task.devices
        )

    def scores_of_rows(self, task: KaiTask, rows: Rows, free_range: tuple[float, float]) -> Column:
        """Scores of rows that a plain pod fits on."""
        return self._scores(task, rows, free_range)[0]

    def score_of(self, task: KaiTask, node: KaiNode, free_range: tuple[float, float]) -> float:
        """The same for one node, without columns."""
        on, score = self.options.plugins, 0.0
        if "nodeavailability" in on and is_within(task.request, node.idle):
            score += AVAILABLE_SCORE
        if "resourcetype" in on and node.is_without_cards and not task.needs_card:
            score += KIND_SCORE
        if "nodeplacement" in on:
            score += self._placement_score(task, node, *free_range)
        return score

    def _placement_score(self, task: KaiTask, node: KaiNode, low: float, high: float) -> float:
        place = card_or_cpu(task)
        free, overall = node.idle[place] + node.releasing[place], node.allocatable[place]
        if self.options.placement.get("gpu" if task.needs_card else "cpu") == SPREAD:
            if place == CARDS and node.card_count is not None:
                overall = node.card_count
            return free / overall if overall else 0.0
        if not high or not overall:
            return 0.0
        return PACK_SCORE if low == high else PACK_SCORE * (1 - (free - low) / (high - low))

    def _fits_node(self, task: KaiTask, node: KaiNode) -> bool:
        return self.rules.fits_node(self, task, node)

    def _scores(
        self, task: KaiTask, rows: Rows, free_range: tuple[float, float]
    ) -> tuple[Column, Rows]:
        """Scores of rows, without those that have none."""
        on, nodes = self.options.plugins, self.rows.nodes
        scores = np.zeros(len(rows))
        if "nodeavailability" in on:
            scores[self._fits_idle(task, rows)] += AVAILABLE_SCORE
        if "gpusharingorder" in on and self.rows.shared:
            for i in self._places_in(rows, self.rows.shared):
                node = nodes[rows[i]]
                if any(node.fits_group(task.cards, group) for group in node.used_memory):
                    scores[i] += SHARED_CARD_SCORE
        if "resourcetype" in on and not task.needs_card:
            scores[self.rows.is_without_cards[rows]] += KIND_SCORE
        nominated = self.nodes.get(task.pod.status.nominated_node_name)
        if "nominatednode" in on and nominated is not None:
            scores[rows == nominated.row] += NOMINATED_SCORE
        if "nodeplacement" in on:
            scores += self._placement_scores(task, rows, *free_range)
        if self.wants_zones(task):
            scores += [self._zone_score(task, nodes[row]) for row in rows]
        if "topology" in on and self.topology.has_scores:
            job = self.jobs[task.job]
            given = [self.topology.score(job, task, nodes[row]) for row in rows]
            scores += [one or 0.0 for one in given]
            has_score = np.array([one is not None for one in given], dtype=np.bool_)
            return scores[has_score], rows[has_score]
        return scores, rows

    def _fits_idle(self, task: KaiTask, rows: Rows) -> Mask:
        """Which of these rows a pod fits on now."""
        if task.is_plain:
            return self.rows.fits_on(task, False, rows)
        answers = (self.rows.nodes[row].fits_idle(task) for row in rows)
        return np.fromiter(answers, dtype=np.bool_, count=len(rows))

    def _places_in(self, rows: Rows, wanted: Iterable[int]) -> list[int]:
        """Places in rows of those that are wanted."""
        found = np.isin(rows, np.fromiter(wanted, dtype=np.intp))
        places: list[int] = np.flatnonzero(found).tolist()
        return places

    def _placement_scores(self, task: KaiTask, rows: Rows, low: float, high: float) -> Column:
        place = card_or_cpu(task)
        free, overall = self.rows.later[place][rows], self.rows.offered[place][rows]
        if self.options.placement.get("gpu" if task.needs_card else "cpu") == SPREAD:
            if place == CARDS:
                counts = [self.rows.nodes[row].card_count for row in rows]
                overall = np.array(
                    [
                        given if count is None else count
                        for count, given in zip(counts, overall.tolist(), strict=True)
                    ],
                    dtype=np.float64,
                )
            parts: Column = np.zeros(len(rows))
            np.divide(free, overall, out=parts, where=overall != 0)
            return parts
        if high == 0:
            return np.zeros(len(rows))
        if low == high:
            scores = np.full(len(rows), PACK_SCORE)
        else:
            scores = PACK_SCORE * (1 - (free - low) / (high - low))
        scores[overall == 0] = 0.0
        return scores

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
                chosen.append(f"{OPENED}{self.opened_cards}")
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
