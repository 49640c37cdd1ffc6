"""The page of what is finished, as it was at its end, with its replay: a simulation."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from stowplan._version import __version__
from stowplan.assembly.deciders import Deciders
from stowplan.insight.gpu_fragmentation import has_gpu_share
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod, PodCondition
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.simulate import Simulation
from stowplan.web.model.decision_ring import (
    BOUND,
    OUTCOMES,
    UNSCHEDULABLE,
    DecisionRing,
    RecordedDecision,
    decisions_page,
)
from stowplan.web.model.followed_table import FollowedTable
from stowplan.web.model.node_columns import (
    NodeView,
    copy_columns,
    grouped,
    resource_trees,
    view_of,
)
from stowplan.web.model.node_panel import node_tree
from stowplan.web.model.page_frames import LIVE_TOPICS, FrameBody, Topic
from stowplan.web.model.pending_rows import (
    PendingRows,
    PendingState,
    QueuedCopy,
    page_of,
    whole,
)
from stowplan.web.model.preemption_loops import preemption_trees
from stowplan.web.model.queue_tree import QUEUE_KINDS, queues_of_gangs
from stowplan.web.model.replay_intervals import (
    TIME,
    PodInterval,
    RunIntervals,
    replay_body,
    run_intervals,
)
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from stowplan.web.serving.live_source import API_VERSION, LABELS_MAX
from stowplan.web.serving.page_source import BadRequest, NotFound, TopicState
from stowplan.web.serving.topic_states import DecisionsState, NodesState, WholeState

MS = 1000.0


class FinishedRun(msgspec.Struct, frozen=True):
    """What has been run, and where it ended. waiting: pods without a node then."""

    run: RunIntervals
    ring: DecisionRing
    at_end: ObjectsAtOnce
    waiting: list[QueuedCopy]


class FinishedSource:
    """See `PageSource`. has_evictions: whether preemptions are known."""

    has_evictions = False

    def __init__(self, finished: FinishedRun, deciders: Deciders, epoch: int) -> None:
        self.epoch = epoch
        self.run, self.ring = finished.run, finished.ring
        self._questions = ClusterQuestions(deciders)
        self._table = FollowedTable()
        self._at_end = finished.at_end
        table = self._table.follow(self._at_end.nodes, self._at_end.pods)
        shares_cards = has_gpu_share(deciders.configuration)
        columns = copy_columns(table, None, shares_cards=shares_cards)
        assert columns is not None, "there is no copy yet"
        self._view: NodeView = view_of(columns, None)
        self._pending: PendingState = PendingRows().state(finished.waiting, self._gangs())

    async def look(self, last: Mapping[Topic, TopicState | None]) -> dict[Topic, TopicState]:
        """See `PageSource`: nothing changes any more."""
        found: dict[Topic, TopicState] = {}
        for topic, state in last.items():
            if state is None:
                found[topic] = await self._state(topic)
        return found

    async def _state(self, topic: Topic) -> TopicState:
        match topic:
            case Topic.NODES:
                return NodesState(self._view)
            case Topic.PENDING:
                return self._pending
            case Topic.DECISIONS:
                return DecisionsState.of(self.ring)
            case Topic.QUEUES:
                return WholeState(await self._questions.queues(self._at_end, 0.0))
            case _:
                return WholeState(self._status())

    def _status(self) -> Tree:
        pending = self._pending
        bound = sum(1 for one in self.run.pods if one.node)
        why = [
            {
                "rule": pending.reasons[group["reason"]][0],
                "reason": pending.reasons[group["reason"]][1],
                "pods": group["pods"],
                "gpus": group["gpus"],
            }
            for group in pending.groups[:5]
        ]
        return {
            "healthy": True,
            "unready": [],
            "source": "simulation",
            "leads": False,
            "holder": "",
            "leaderSince": None,
            "synced": True,
            "boundPerSecond": 0.0,
            "refusedPerSecond": 0.0,
            "bound": bound,
            "refused": len(self.run.pods) - bound,
            "pending": {
                "active": 0,
                "backoff": 0,
                "unschedulable": len(pending.rows),
                "gated": 0,
                "sessions": 0,
            },
            "nodes": len(self.run.nodes),
            "pods": int(self._table.table.pod_count.sum()),
            "gpusWaiting": pending.gpus_waiting,
            "longestWait": None,
            "why": why,
            "changed": [],
            "findings": [],
        }

    async def cluster(self) -> Tree:
        """See `PageSource`."""
        view = self._view
        keys = {key for node in view.columns.nodes for key in node.labels}
        return {
            "apiVersion": API_VERSION,
            "version": __version__,
            "source": "simulation",
            "epoch": self.epoch,
            "time": time.time() * MS,
            "server": "",
            "admission": "",
            "schedulerNames": sorted({one.pod.spec.scheduler_name for one in self.run.pods}),
            "resources": resource_trees(view.columns.resources),
            "zones": [name for name in view.zone_names if name],
            "nodes": view.columns.names,
            "queues": sorted(one.name for one in self.run.objects if isinstance(one, QUEUE_KINDS)),
            "labels": sorted(keys)[:LABELS_MAX],
            "rules": [],
            "reasons": sorted({reason for _, reason in self._pending.reasons if reason}),
            "topics": [topic.label for topic in LIVE_TOPICS],
            "can": {
                "whatIf": True,
                "why": True,
                "queues": self._questions.deciders.batch is not None,
                "decisions": True,
                "preemptions": self.has_evictions,
                "experiments": True,
                "replay": True,
                "whyAt": False,
            },
        }

    async def labels(self, key: str) -> Tree:
        """See `PageSource`."""
        values, numbers = grouped(self._view.columns.nodes, key)
        return {"key": key, "values": values, "index": numbers.tolist()}

    async def node(self, name: str, pod: str) -> Tree:
        """See `PageSource`."""
        table = self._table.table
        row = table.row(name)
        if row < 0:
            raise NotFound(f'nodes "{name}" not found')
        tree = node_tree(table, row) | {"time": time.time() * MS, "selected": None}
        queues = self._gangs()
        for one in tree["pods"]:
            one["queue"] = queues.get(one["gang"], "")
        if pod:
            refusals = await self._questions.refusals(pod, name, self._at_end)
            tree["selected"] = {"pod": pod, "fits": not refusals, "refusals": refusals}
        return tree

    async def pending(self, query: Mapping[str, str]) -> Tree:
        """See `PageSource`."""
        try:
            return page_of(self._pending, query)
        except ValueError as problem:
            raise BadRequest(str(problem)) from None

    async def why(self, pod: str, at: float | None = None, *, quickly: bool = False) -> Tree:
        """See `PageSource`."""
        tree = await self._questions.why(pod, self._at_end, quickly=quickly)
        return {**tree, "time": time.time() * MS, "attempts": []}

    async def queues(self, since: float) -> Tree:
        """See `PageSource`."""
        tree = await self._questions.queues(self._at_end, 0.0)
        return {**tree, "history": {"times": [], "series": []}}

    async def decisions(self, query: Mapping[str, str]) -> Tree:
        """See `PageSource`."""
        outcome = query.get("outcome", "")
        if outcome and outcome not in OUTCOMES:
            raise BadRequest(f"outcome: Unsupported value: {outcome[:80]!r}: one of {OUTCOMES}")
        try:
            limit, before = whole(query, "limit", 200), whole(query, "before", 0)
        except ValueError as problem:
            raise BadRequest(str(problem)) from None
        return decisions_page(self.ring, query, min(limit, 1000), before)

    async def decision(self, number: int) -> Tree:
        """See `PageSource`."""
        found = self.ring.get(number)
        if found is None:
            raise NotFound(f"decision {number} is not kept")
        return found.tree()

    async def preemptions(self) -> Tree:
        """See `PageSource`."""
        if not self.has_evictions:
            return {"preemptions": [], "loops": []}
        decisions = reversed(list(self.ring.newest_first()))
        return preemption_trees(list(self.ring.evictions), decisions, {})

    async def what_if(self, asked: Tree) -> Tree:
        """See `PageSource`."""
        return await self._questions.what_if(asked, self._at_end)

    async def replay(self) -> FrameBody:
        """See `PageSource`."""
        return replay_body(self.run)

    def _gangs(self) -> dict[str, str]:
        return queues_of_gangs(self.run.objects)


class SimulationSource(FinishedSource):
    """The page of a simulation. result: with its objects."""

    def __init__(self, result: Simulation, deciders: Deciders, epoch: int) -> None:
        super().__init__(finished_simulation(result), deciders, epoch)


def finished_simulation(result: Simulation) -> FinishedRun:
    """A simulation at its end. Raises ValueError for one that was read from files."""
    objects = result.objects
    if objects is None:
        raise ValueError("simulation: objects: Required value: it was read from files")
    run = run_intervals(
        objects.nodes, objects.bound, objects.pods, result.placements, objects.objects
    )
    ring = DecisionRing()
    ring.extend(_decisions(run))
    pods = [_at_end(one, run.end) for one in run.pods]
    at_end = ObjectsAtOnce(list(objects.nodes), pods, list(objects.objects))
    return FinishedRun(run, ring, at_end, _waiting(run, pods))


def _at_end(one: PodInterval, end: float) -> Pod:
    """The pod as it was when the run ended: on its node, pending with its message, or finished."""
    pod = one.pod
    placement = one.placement
    if one.is_on_node(end):
        if pod.node_name == one.node:
            return pod
        return replace(pod, spec=replace(pod.spec, node_name=one.node))
    if one.node:
        return replace(pod, status=replace(pod.status, phase="Succeeded"))
    if placement is None or not placement.message:
        return pod
    condition = PodCondition("PodScheduled", "False", "Unschedulable", placement.message)
    return replace(pod, status=replace(pod.status, conditions=(condition,)))


def _waiting(run: RunIntervals, pods: list[Pod]) -> list[QueuedCopy]:
    found = []
    for one, pod in zip(run.pods, pods, strict=True):
        if one.node:
            continue
        tries = one.placement.refusals if isinstance(one.placement, TimedPlacement) else 1
        since = one.created * MS if run.axis == TIME else one.created
        found.append(QueuedCopy(pod, "unschedulable", None, tries, since, None, ()))
    return found


def _decisions(run: RunIntervals) -> list[RecordedDecision]:
    """Placements in the order of time; their times are those of the run."""
    found = []
    for one in run.pods:
        if one.placement is None:
            continue
        at = one.bound if one.node else run.end
        at = at * MS if run.axis == TIME else at
        outcome = BOUND if one.node else UNSCHEDULABLE
        scheduler, message = one.pod.spec.scheduler_name, one.placement.message
        key, uid = one.pod.key, one.pod.uid
        found.append(
            RecordedDecision(0, at, key, uid, outcome, one.node, scheduler, message=message)
        )
    found.sort(key=lambda decision: decision.time)
    return found
