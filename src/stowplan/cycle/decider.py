"""CycleDecider: decides pods one by one, or in runs, or with what extenders say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from stowplan.columns.engine.lots import Dice, drawn
from stowplan.cycle.attempt import Attempt, filter_pod
from stowplan.cycle.decide import Turn, concluded
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.classes import PodClass
from stowplan.cycle.engine.start import WORTH_ROWS, Mode, is_loaded, kernels
from stowplan.cycle.extending import PodConsultation
from stowplan.cycle.refused import Refusal, Refusals
from stowplan.framework import Framework, Snapshot
from stowplan.framework.decider import Decision
from stowplan.objects.extender import Extender
from stowplan.objects.pod import Pod


class CycleDecider:
    """Decides pods one by one; one for all profiles of a scheduler.

    Runs of pods it gives to the engine, once that pays. A pod that was refused is refused again
    in the same words, without a walk, while nothing has changed that they depend on.
    """

    def __init__(self, mode: Mode = Mode.AUTO) -> None:
        self._turn = Turn()
        self._mode = mode
        self._engine: Engine | None = None
        self._n_looked_at = 0
        self._refusals = Refusals()
        self._repeating: dict[Framework, bool] = {}

    def engine(self) -> Engine | None:
        """What places runs of pods; None while there is none."""
        if self._engine is None and self._mode is not Mode.WALK and self._pays():
            compiled = kernels()
            if compiled is None:
                self._mode = Mode.WALK
            else:
                self._engine = Engine(compiled)
        return self._engine

    def forget_idle(self) -> None:
        """Forget what nobody has asked for since the call before the last one."""
        if self._engine is not None:
            self._engine.forget_idle()
            self._refusals.leave(self._engine.classes())

    def _pays(self) -> bool:
        return self._mode is Mode.COMPILED or is_loaded() or self._n_looked_at > WORTH_ROWS

    def decide(self, pod: Pod, snapshot: Snapshot, framework: Framework, dice: Dice) -> Decision:
        """Choose a node for `pod`, or say why there is none."""
        one = None
        if self._engine is not None and snapshot.nominations.is_empty:
            one = self._engine.class_of(pod, framework)
        known = None if one is None else one.refusal_in(snapshot)
        draw = drawn(dice)
        if known is not None:
            return known
        self._n_looked_at += snapshot.nodes.n_nodes
        attempt = filter_pod(pod, snapshot, framework)
        decision = concluded(attempt, draw, self._turn)
        if one is not None:
            self._learn(one, attempt, decision)
        return decision

    def _learn(self, one: PodClass, attempt: Attempt, decision: Decision) -> None:
        """Keep what others of the class would be told too."""
        assert self._engine is not None
        one.refused = None
        refusal = decision.refusal
        is_refused = refusal is not None and refusal.is_rejected
        if is_refused and not decision.nominated_node and self._repeats_itself(one.framework):
            is_planned = partial(self._engine.is_planned, one, one.made_for)
            n_nodes = attempt.snapshot.nodes.n_nodes
            self._refusals.keep(one, Refusal(decision, attempt, is_planned), n_nodes)

    def _repeats_itself(self, framework: Framework) -> bool:
        known = self._repeating.get(framework)
        if known is None:
            known = self._repeating[framework] = repeats_itself(framework)
        return known

    def consult(
        self, pod: Pod, framework: Framework, dice: Dice, extenders: Sequence[Extender]
    ) -> PodConsultation:
        """The attempt of a pod about which extenders are asked."""
        return PodConsultation(pod, framework, extenders, drawn(dice), self._turn)


def repeats_itself(framework: Framework) -> bool:
    """True where what refuses a pod reads nothing but its class and the snapshot. A plugin that
    says neither so nor what its rule amounts to may read more: what it keeps by itself, say."""
    filters = (*framework.at("preFilter"), *framework.at("filter"))
    return all(
        m.row_local or m.node_only or m.calls["parts"] or (m.in_tree and m.calls["concerns"])
        for m in filters
    ) and all(m.in_tree for m in framework.at("postFilter"))
