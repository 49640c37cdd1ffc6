"""Scores of decisions, at the moment of the decision, for at most ten a second.

Kernels keep no scores by plugin. So for the last decision of a call, while there are viewers, the
attempt is made again by the scheduler's thread with the pod taken off its node: then the nodes are
as they were. A sample that comes to another node is dropped.
"""

from __future__ import annotations

import time

import msgspec

from stowplan.assembly import frameworks_for
from stowplan.columns.overlay import Overlay
from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.explanation import NodeScore, pending_form, top_scores
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.framework import ContractError, Framework
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.web.model.decision_ring import DecisionRing, DecisionSample

INTERVAL_NS = 100_000_000
COST_TIMES = 100
"""The next sample waits so many times as long as the last one took."""
BEST = 3


class DecisionSamples:
    """wanted_until: monotonic seconds until which samples are wanted. n_taken: samples so far."""

    def __init__(self, server: SchedulerServer, ring: DecisionRing) -> None:
        self.wanted_until = 0.0
        self.n_taken = 0
        self._server = server
        self._ring = ring
        self._due = 0
        self._frameworks: dict[str, Framework] = {}
        self._made_of: object = None

    def maybe_take(self, effects: list[Effect], begun: int) -> None:
        """Take a sample of the last binding of a call, if one is wanted and due."""
        if not self.wanted_until or begun < self._due or time.monotonic() > self.wanted_until:
            return
        last = next((one for one in reversed(effects) if isinstance(one, to_do.Bind)), None)
        if last is None:
            return
        started = monotonic_ns()
        self._take(last)
        took = monotonic_ns() - started
        self._due = started + max(INTERVAL_NS, COST_TIMES * took)

    def _take(self, bind: to_do.Bind) -> None:
        scheduler = self._server.scheduler
        record = scheduler.bindings.get(bind.uid)
        table = scheduler.cache.nodes
        row = table.row_of_pod(bind.uid)
        framework = None if record is None else self._framework(record.pod.spec.scheduler_name)
        if record is None or framework is None or row < 0:
            return
        snapshot = scheduler.cache.snapshot()
        try:
            with Overlay(table) as overlay:
                overlay.take(bind.uid, row)
                attempt = filter_pod(pending_form(record.pod), snapshot, framework)
                best = self._best(attempt)
        except ContractError:
            # The plugin's fault is reported where it decides.
            return
        if not best or best[0].name != bind.node:
            return
        scores = [msgspec.to_builtins(one) for one in best[:BEST]]
        feasible = int(attempt.passed.shape[0])
        self._ring.add_sample(bind.uid, DecisionSample(feasible, table.n_nodes, scores))
        self.n_taken += 1

    @staticmethod
    def _best(attempt: Attempt) -> list[NodeScore]:
        """The best nodes of an attempt; none where it fits nowhere or has no scores."""
        if attempt.no_nodes or attempt.failure is not None or not attempt.passed.shape[0]:
            return []
        if not attempt.framework.at("score") or score_pod(attempt) is None:
            return []
        return top_scores(attempt)

    def _framework(self, name: str) -> Framework | None:
        """Of a set of its own: an attempt leaves state in a framework."""
        deciders = self._server.deciders
        if self._made_of is not deciders:
            self._made_of = deciders
            self._frameworks = frameworks_for(
                deciders.configuration, deciders.registry, deciders.gates
            )
        return self._frameworks.get(name)
