"""CycleDecider: decides pods one by one, or in runs, or with what extenders say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stowplan.columns.engine.tie_break import TieBreakSource, draw_tie_break
from stowplan.cycle.attempt import Attempt, filter_pod
from stowplan.cycle.decision import SamplingState, conclude
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.kernel_loading import (
    COMPILE_WORTH_ROWS,
    EngineMode,
    is_loaded,
    load_kernels,
)
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.cycle.refusal_cache import ClassRefusal, RefusalCache
from stowplan.framework import Framework, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.messages.extender_api import HTTPExtender
from stowplan.objects.pod import Pod


class CycleDecider:
    """Decides pods one by one; one for all profiles of a scheduler.

    Runs of pods it gives to the engine, once that pays. A pod that was refused is refused again
    in the same words, without a walk, while nothing has changed that they depend on.
    """

    def __init__(self, mode: EngineMode = EngineMode.AUTO) -> None:
        self._turn = SamplingState()
        self._mode = mode
        self._engine: Engine | None = None
        self._n_looked_at = 0
        self._refusals = RefusalCache()
        self._repeating: dict[Framework, bool] = {}

    def engine(self) -> Engine | None:
        """What places runs of pods; None while there is none."""
        if self._engine is None and self._mode is not EngineMode.WALK and self._pays():
            compiled = load_kernels()
            if compiled is None:
                self._mode = EngineMode.WALK
            else:
                self._engine = Engine(compiled)
        return self._engine

    def forget_idle(self) -> None:
        """Forget what nobody has asked for since the call before the last one."""
        if self._engine is not None:
            self._engine.forget_idle()
            self._refusals.leave(self._engine.classes())

    def _pays(self) -> bool:
        return (
            self._mode is EngineMode.COMPILED
            or is_loaded()
            or self._n_looked_at > COMPILE_WORTH_ROWS
        )

    def decide(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, rng: TieBreakSource
    ) -> Decision:
        """Choose a node for `pod`, or say why there is none."""
        one = None
        if self._engine is not None and snapshot.nominations.is_empty:
            one = self._engine.class_of(pod, framework)
        known = None if one is None else one.refusal_in(snapshot)
        draw = draw_tie_break(rng)
        if known is not None:
            return known
        self._n_looked_at += snapshot.nodes.n_nodes
        attempt = filter_pod(pod, snapshot, framework)
        decision = conclude(attempt, draw, self._turn)
        if one is not None:
            self._learn(one, attempt, decision)
        return decision

    def _learn(self, one: EnginePodClass, attempt: Attempt, decision: Decision) -> None:
        """Keep what others of the class would be told too."""
        assert self._engine is not None
        one.refused = None
        refusal = decision.refusal
        is_refused = refusal is not None and refusal.is_rejected
        if is_refused and not decision.nominated_node and self._repeats_itself(one.framework):
            is_planned = partial(self._engine.is_planned, one, one.made_for)
            n_nodes = attempt.snapshot.nodes.n_nodes
            self._refusals.keep(one, ClassRefusal(decision, attempt, is_planned), n_nodes)

    def _repeats_itself(self, framework: Framework) -> bool:
        known = self._repeating.get(framework)
        if known is None:
            known = self._repeating[framework] = is_repeatable(framework)
        return known

    def decide_with_extenders(
        self, pod: Pod, framework: Framework, rng: TieBreakSource, extenders: Sequence[HTTPExtender]
    ) -> ExtenderConsultation:
        """The attempt of a pod about which extenders are asked."""
        return ExtenderConsultation(pod, framework, extenders, draw_tie_break(rng), self._turn)


def is_repeatable(framework: Framework) -> bool:
    """True where a refusal depends on nothing but the pod's class and the snapshot. A plugin that
    declares neither that nor kernel terms may depend on more, such as state of its own."""
    filters = (*framework.at("preFilter"), *framework.at("filter"))
    return all(
        m.row_local or m.node_only or m.calls["parts"] or m.declaration.repeatable for m in filters
    ) and all(m.declaration.repeatable for m in framework.at("postFilter"))
