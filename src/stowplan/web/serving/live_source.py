"""LiveSource: the page of a running scheduler.

The scheduler's thread copies columns and records, ten times a second at most and only while
there are viewers; how often is bounded by what it costs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping

from stowplan._version import __version__
from stowplan.assembly.deciders import Deciders
from stowplan.driver.client.kueue_listing import list_kueue_objects
from stowplan.driver.clocks import monotonic_ns, unix_offset_ns
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.insight.pod_placement import frameworks_of
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.web.model.changed_nodes import CHANGES_MAX, node_changes
from stowplan.web.model.decision_ring import (
    EVICTED,
    OUTCOMES,
    PROFILES,
    SESSIONS,
    DecisionRing,
    HandledCall,
    decisions_page,
)
from stowplan.web.model.node_columns import NodeView, grouped, is_same_view, resource_trees, view_of
from stowplan.web.model.node_panel import node_tree
from stowplan.web.model.page_frames import LIVE_TOPICS, FrameBody, Topic
from stowplan.web.model.pending_rows import (
    POD,
    SINCE,
    PendingRows,
    PendingState,
    page_of,
    rules_of_reasons,
    whole,
)
from stowplan.web.model.preemption_loops import preemption_trees
from stowplan.web.model.queue_tree import GANG_KINDS, QUEUE_KINDS, queues_of_gangs
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from stowplan.web.serving.decision_samples import DecisionSamples
from stowplan.web.serving.page_source import BadRequest, NotFound, TopicState, Unavailable
from stowplan.web.serving.scheduler_copies import MS, SchedulerCopy, copied
from stowplan.web.serving.topic_states import DecisionsState, NodesState, WholeState

COST_SHARE = 0.01
"""At most this part of the scheduler's thread goes into copies of pending pods."""
STATUS_S = 1.0
QUEUES_S = 2.0
COPY_TIMEOUT_S = 2.0
WHY_MAX = 5
LABELS_MAX = 200
API_VERSION = "stowplan.dev/page/v1"


class LiveSource:
    """See `PageSource`. n_copies: how often the scheduler was asked for copies. samples: scores of
    decisions."""

    def __init__(self, server: SchedulerServer, epoch: int) -> None:
        self.epoch = epoch
        self.n_copies = 0
        self.ring = DecisionRing(self._scheduler_of, self._pod)
        self._server = server
        self._rows = PendingRows(rules_of_reasons(frameworks_of(server.scheduler)))
        self._view: NodeView | None = None
        self._pending: PendingState | None = None
        self._pending_at = self._status_at = self._queues_at = 0.0
        self._decided = -1
        self._changes: deque[Tree] = deque(maxlen=CHANGES_MAX)
        self._looking = asyncio.Lock()
        self._asking: asyncio.Task[Tree] | None = None
        self.questions = self._questions_of(server.deciders)
        self.samples = DecisionSamples(server, self.ring)
        self._n_sessions = 0
        server.on_decided = self._record

    def _scheduler_of(self, pod: str) -> str:
        """The schedulerName of a pod, "" for an unknown one."""
        found = self._pod(pod)
        return "" if found is None else found.spec.scheduler_name

    def _pod(self, pod: str) -> Pod | None:
        """A pod by NAMESPACE/NAME as it was last seen."""
        informers = self._server.informers
        return None if informers is None else informers.pod(pod)

    # In the scheduler's thread.

    def _record(self, effects: list[Effect], begun: int, took: int) -> None:
        n_sessions = self._server.scheduler.lanes.n_sessions
        lane = SESSIONS if n_sessions != self._n_sessions else PROFILES
        self._n_sessions = n_sessions
        if effects:
            at = (begun + unix_offset_ns()) / MS
            self.ring.add(HandledCall(at, took, lane, effects))
            self.samples.maybe_take(effects, begun)

    # Topics.

    async def look(self, last: Mapping[Topic, TopicState | None]) -> dict[Topic, TopicState]:
        """See `PageSource`."""
        now = time.monotonic()
        wants = set(last)
        is_first = any(state is None for state in last.values())
        nodes = bool(wants & {Topic.NODES, Topic.STATUS})
        pending = bool(wants & {Topic.PENDING, Topic.STATUS}) and now >= self._pending_at
        status = Topic.STATUS in wants and (now >= self._status_at or is_first)
        self.samples.wanted_until = now + 1.0 if Topic.DECISIONS in wants else 0.0
        found: dict[Topic, TopicState] = {}
        if nodes or pending or status:
            # Of two copies the later one must be taken last.
            async with self._looking:
                copy = await self._copy(nodes=nodes, pending=pending, status=status)
                self._take_nodes(copy)
                if copy.pending is not None:
                    self._pending = self._rows.state(copy.pending, self._queue_of_gangs())
            if copy.status is not None:
                self._status_at = now + STATUS_S
                found[Topic.STATUS] = WholeState(self._status(copy.status))
        if Topic.NODES in wants and self._view is not None:
            self._put(found, Topic.NODES, last, NodesState(self._view))
        if Topic.PENDING in wants and self._pending is not None:
            before = last[Topic.PENDING]
            if before is not self._pending:
                found[Topic.PENDING] = self._pending
        if Topic.DECISIONS in wants:
            state = DecisionsState.of(self.ring)
            known = last[Topic.DECISIONS]
            if not isinstance(known, DecisionsState) or known.number != state.number:
                found[Topic.DECISIONS] = state
        if Topic.QUEUES in wants:
            self._look_at_queues(found, last[Topic.QUEUES], now)
        return found

    @staticmethod
    def _put(
        found: dict[Topic, TopicState],
        topic: Topic,
        last: Mapping[Topic, TopicState | None],
        state: NodesState,
    ) -> None:
        before = last[topic]
        if not isinstance(before, NodesState) or before.view is not state.view:
            found[topic] = state

    async def _copy(self, *, nodes: bool, pending: bool, status: bool) -> SchedulerCopy:
        """Ask the scheduler's thread for copies; the next ones wait as their cost demands."""
        server, columns = self._server, None if self._view is None else self._view.columns
        spent: list[float] = []

        def copy() -> SchedulerCopy:
            begun = time.perf_counter()
            found = copied(server, columns, nodes=nodes, pending=pending, status=status)
            spent.append(time.perf_counter() - begun)
            return found

        self.n_copies += 1
        found = await server.call_between_handles(copy, COPY_TIMEOUT_S)
        if pending:
            self._pending_at = time.monotonic() + spent[0] / COST_SHARE
        return found

    def _take_nodes(self, copy: SchedulerCopy) -> None:
        if copy.columns is None:
            return
        before, view = self._view, view_of(copy.columns, self._view)
        if before is not None and is_same_view(before, view):
            # Objects were replaced, such as by a heartbeat, and no viewer sees a difference.
            before.columns = copy.columns
            return
        self._view = view
        if before is not None:
            for change in node_changes(before, view, time.time() * 1000):
                self._changes.appendleft(change)

    def _status(self, tree: Tree) -> Tree:
        pending = self._pending
        longest = None
        why: list[Tree] = []
        if pending is not None and pending.rows:
            row = min(pending.rows.values(), key=lambda one: one[SINCE])
            longest = {"pod": row[POD], "since": row[SINCE]}
            for group in pending.groups[:WHY_MAX]:
                rule, reason = pending.reasons[group["reason"]]
                why.append(
                    {"rule": rule, "reason": reason, "pods": group["pods"], "gpus": group["gpus"]}
                )
        return {
            **tree,
            "source": "live",
            "gpusWaiting": 0 if pending is None else pending.gpus_waiting,
            "longestWait": longest,
            "why": why,
            "changed": self._changed(),
            "findings": self._findings(),
        }

    def _changed(self) -> list[Tree]:
        """The latest changes of nodes and preemptions, newest first."""
        evicted = [
            {
                "time": one.time,
                "what": "preemption",
                "name": one.pod,
                "text": f"gave way to {one.preemptor}" if one.preemptor else "gave way",
            }
            for one in list(self.ring.evictions)[-CHANGES_MAX:]
        ]
        found = [*self._changes, *evicted]
        return sorted(found, key=lambda one: -one["time"])[:CHANGES_MAX]

    def _findings(self) -> list[Tree]:
        found = self._server.fairness_watch.findings(monotonic_ns())
        return [
            {"kind": one.kind, "subject": one.subject, "text": one.explanation} for one in found
        ]

    def _look_at_queues(
        self, found: dict[Topic, TopicState], before: TopicState | None, now: float
    ) -> None:
        """Start a computation of queues if one is due; its result is of a later look."""
        asking = self._asking
        if asking is not None and asking.done():
            self._asking = None
            try:
                state = WholeState(asking.result())
            except Unavailable as problem:
                state = WholeState({"schedulers": [], "gangs": [], "error": str(problem)})
            if not isinstance(before, WholeState) or _without_time(before) != _without_time(state):
                found[Topic.QUEUES] = state
        elif asking is None and (now >= self._queues_at or before is None):
            self._asking = asyncio.create_task(self.queues(float("inf")))
            self._queues_at = now + max(QUEUES_S, self.questions.queues_s / COST_SHARE / 5)

    # Requests.

    def _now_view(self) -> NodeView:
        if self._view is None:
            raise Unavailable("nodes have not been read yet")
        return self._view

    async def _viewed(self) -> NodeView:
        """The nodes, looked at now."""
        async with self._looking:
            self._take_nodes(await self._copy(nodes=True, pending=False, status=False))
        return self._now_view()

    async def cluster(self) -> Tree:
        """See `PageSource`."""
        server, view = self._server, await self._viewed()
        profiles = server.deciders.configuration.profiles.values()
        rules = {use.name for one in profiles for use in one.points.get("filter", ())}
        keys = {key for node in view.columns.nodes for key in node.labels}
        objects = [] if server.informers is None else server.informers.objects()
        return {
            "apiVersion": API_VERSION,
            "version": __version__,
            "source": "live",
            "epoch": self.epoch,
            "time": time.time() * 1000,
            "server": server.options.client_config.server,
            "schedulerNames": list(server.scheduler_names()),
            "admission": "" if server.deciders.kueue is None else "kueue",
            "resources": resource_trees(view.columns.resources),
            "zones": [name for name in view.zone_names if name],
            "nodes": view.columns.names,
            "queues": sorted(one.name for one in objects if isinstance(one, QUEUE_KINDS)),
            "labels": sorted(keys)[:LABELS_MAX],
            "rules": sorted(rules),
            "reasons": sorted({reason for _, reason in self._rows.reasons if reason}),
            "topics": [topic.label for topic in LIVE_TOPICS],
            "can": {
                "whatIf": True,
                "why": True,
                "queues": server.deciders.batch is not None or server.deciders.kueue is not None,
                "decisions": True,
                "preemptions": True,
                "experiments": True,
                "replay": False,
                "whyAt": False,
            },
        }

    async def labels(self, key: str) -> Tree:
        """See `PageSource`."""
        view = await self._viewed()
        values, numbers = grouped(view.columns.nodes, key)
        return {"key": key, "values": values, "index": numbers.tolist()}

    async def node(self, name: str, pod: str) -> Tree:
        """See `PageSource`."""
        table = self._server.scheduler.cache.nodes

        def look() -> Tree:
            row = table.row(name)
            if row < 0:
                raise NotFound(f'nodes "{name}" not found')
            return node_tree(table, row)

        tree = await self._server.call_between_handles(look, COPY_TIMEOUT_S)
        tree |= {"time": time.time() * 1000, "selected": None}
        queues = self._queue_of_gangs()
        for one in tree["pods"]:
            one["queue"] = queues.get(one["gang"], "")
        if pod:
            refusals = await self.questions.refusals(pod, name, self._objects())
            tree["selected"] = {"pod": pod, "fits": not refusals, "refusals": refusals}
        return tree

    async def pending(self, query: Mapping[str, str]) -> Tree:
        """See `PageSource`."""
        async with self._looking:
            if self._pending is None or time.monotonic() >= self._pending_at:
                copy = await self._copy(nodes=False, pending=True, status=False)
                self._pending = self._rows.state(copy.pending or (), self._queue_of_gangs())
        try:
            return page_of(self._pending, query)
        except ValueError as problem:
            raise BadRequest(str(problem)) from None

    async def why(self, pod: str, at: float | None = None, *, quickly: bool = False) -> Tree:
        """See `PageSource`."""
        objects = self._objects()
        tree = await self.questions.why(pod, objects, quickly=quickly)
        self.ring.read()
        attempts = [one for one in self.ring.newest_first() if one.pod == pod]
        return {
            **tree,
            "time": time.time() * 1000,
            "attempts": [
                {"time": one.time, "outcome": one.outcome, "node": one.node, "message": one.message}
                for one in attempts[:20]
            ],
        }

    async def queues(self, since: float) -> Tree:
        """See `PageSource`."""
        tree = await self.questions.queues(self._objects(), time.time() * 1000)
        if since == float("inf"):
            return tree
        return {**tree, "history": self.questions.history.tree(since)}

    async def decisions(self, query: Mapping[str, str]) -> Tree:
        """See `PageSource`."""
        outcome = query.get("outcome", "")
        if outcome and outcome not in OUTCOMES:
            raise BadRequest(f"outcome: Unsupported value: {outcome[:80]!r}: one of {OUTCOMES}")
        try:
            limit, before = whole(query, "limit", 200), whole(query, "before", 0)
        except ValueError as problem:
            raise BadRequest(str(problem)) from None
        self.ring.read()
        return decisions_page(self.ring, query, min(limit, 1000), before)

    async def decision(self, number: int) -> Tree:
        """See `PageSource`."""
        self.ring.read()
        found = self.ring.get(number)
        if found is None:
            raise NotFound(f"decision {number} is not kept")
        tree = found.tree()
        if found.sample is None and found.outcome != EVICTED:
            tree["asOf"] = "now"
            try:
                tree["scores"] = (await self._why_now(found.pod))["scores"]
            except (NotFound, Unavailable):
                tree["scores"] = None
        return tree

    async def _why_now(self, pod: str) -> Tree:
        return await self.questions.why(pod, self._objects(), quickly=True)

    async def preemptions(self) -> Tree:
        """See `PageSource`."""
        self.ring.read()
        decisions = reversed(list(self.ring.newest_first()))
        return preemption_trees(list(self.ring.evictions), decisions, {})

    async def what_if(self, asked: Tree) -> Tree:
        """See `PageSource`."""
        return await self.questions.what_if(asked, self._objects())

    async def replay(self) -> FrameBody:
        """See `PageSource`."""
        raise Unavailable("a live scheduler has no replay; record it with --record")

    # Objects.

    def _questions_of(self, deciders: Deciders) -> ClusterQuestions:
        client_config = self._server.options.client_config
        return ClusterQuestions(deciders, lambda: list_kueue_objects(client_config))

    def _objects(self) -> ObjectsAtOnce:
        """All objects as the watches have them."""
        informers = self._server.informers
        if informers is None:
            raise Unavailable("informers have not started")
        deciders = self._server.deciders
        if deciders is not self.questions.deciders:
            history = self.questions.history
            self.questions = self._questions_of(deciders)
            self.questions.history = history
        return ObjectsAtOnce.of(informers.objects())

    def _queue_of_gangs(self) -> dict[str, str]:
        informers = self._server.informers
        if informers is None:
            return {}
        return queues_of_gangs(one for kind in GANG_KINDS for one in informers.objects_of(kind))


def _without_time(state: WholeState) -> Tree:
    return {key: value for key, value in state.tree.items() if key != "time"}
