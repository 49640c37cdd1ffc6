"""CycleDecider: decides pods one by one, in runs by kernel, or with extender responses."""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.columns.engine import numpy_kernels
from stowplan.columns.engine.tie_break import TieBreakSource, draw_tie_break
from stowplan.cycle.attempt import Attempt, filter_pod, run_filters_of
from stowplan.cycle.decision import SamplingState, conclude, refusal
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.kernel_loading import (
    COMPILE_ROWS_MIN,
    EngineMode,
    is_compiled_elsewhere,
    is_loaded,
    load_card_kernels,
    load_kernels,
    load_preemption_kernel,
    loaded_preemption_kernel,
)
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.cycle.preemptor_attempts import PreemptorAttempts
from stowplan.cycle.refusal_cache import ClassRefusal, RefusalCache
from stowplan.framework import Framework, Snapshot
from stowplan.framework.cycle_state import REFUSED_ALONE
from stowplan.framework.deciders.decider import Decision, MemberTrial
from stowplan.framework.deciders.preemptor_search import PreemptionKernel
from stowplan.messages.extender_api import HTTPExtender
from stowplan.objects.pod import Pod


class CycleDecider:
    """Decides pods; one instance serves all profiles of a scheduler.

    Runs of pods go to the engine, which has NumPy kernels until compiling others pays off. A
    refused pod is refused again from the cache while nothing that the decision depends on has
    changed, and pods that preempt in turn cost what has changed between them. n_walked: attempts of
    single pods that no cached refusal and no kept search has answered.
    """

    def __init__(self, mode: EngineMode = EngineMode.AUTO) -> None:
        self._sampling = SamplingState()
        self._mode = mode
        self._engine: Engine | None = None
        self._n_evaluated = 0
        self.n_walked = 0
        self._is_numba_missing = False
        self._refusals = RefusalCache()
        self._preemptors = PreemptorAttempts(self._sampling, self._preemption_kernel)
        self._repeatable_profiles: dict[Framework, bool] = {}

    def engine(self) -> Engine | None:
        """The engine that places runs of pods; None in mode WALK."""
        if self._mode is EngineMode.WALK:
            return None
        if self._engine is None:
            self._engine = Engine(numpy_kernels)
        if self._engine.kernels is numpy_kernels and self._compiling_pays(self._engine):
            compiled = load_kernels()
            self._is_numba_missing = compiled is None
            if compiled is not None:
                # Only this mode compiles where a pod asks for it.
                of_preemptors = (
                    load_preemption_kernel
                    if self._mode is EngineMode.COMPILED
                    else loaded_preemption_kernel
                )
                self._engine.use(compiled, load_card_kernels, of_preemptors)
        return self._engine

    def forget_idle(self) -> None:
        """Forget classes that were not used since the call before the last one."""
        if self._engine is not None:
            self._engine.forget_idle()
            self._refusals.retain(self._engine.classes())
            self._preemptors.retain(self._engine.classes())

    def _compiling_pays(self, engine: Engine) -> bool:
        if self._is_numba_missing:
            return False
        n_evaluated = self._n_evaluated + engine.n_evaluated
        if self._mode is EngineMode.COMPILED or is_loaded():
            return True
        return n_evaluated > COMPILE_ROWS_MIN and not is_compiled_elsewhere()

    def _preemption_kernel(self) -> PreemptionKernel | None:
        """The kernel that plans preemptors; None without compiled kernels."""
        return None if self._engine is None else self._engine.preemption_kernel()

    def decide(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, rng: TieBreakSource
    ) -> Decision:
        """Choose a node for `pod`, or say why no node fits."""
        engine = self._engine
        one = known = of_class = None
        if engine is not None:
            with_devices = bool(pod.spec.resource_claims)
            of_class = engine.class_of(
                pod, framework, with_devices=with_devices, with_nominated=True
            )
        if of_class is not None and snapshot.nominations.is_empty:
            # Claims of another pod of the class may be in use on other nodes.
            is_alike = of_class.claims is None or pod.spec.resource_claims
            if is_alike and not pod.status.nominated_node_name:
                one = of_class
                known = one.refusal_in(snapshot)
        draw = draw_tie_break(rng)
        if known is None and of_class is not None:
            known = self._preemptors.decide(of_class, pod, snapshot, draw)
        if known is not None:
            return known
        self.n_walked += 1
        self._n_evaluated += snapshot.nodes.n_nodes
        attempt = filter_pod(pod, snapshot, framework)
        decision: Decision | None = None
        if of_class is not None and engine is not None:
            decision = self._preemptors.first(
                of_class, attempt, draw, engine.plan_of, engine.row_totals
            )
        if decision is None:
            decision = conclude(attempt, draw, self._sampling)
        if one is not None:
            self._cache_refusal(one, attempt, decision)
        return decision

    def decide_member(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, trial: MemberTrial
    ) -> Decision:
        """Choose a node for a member of a group; see `Decider`."""
        attempt = Attempt(pod, snapshot, framework, trial.rows)
        attempt.state.group_values = trial.values
        run_filters_of(attempt)
        is_refused = attempt.failure is None and attempt.passed.shape[0] == 0
        if is_refused and not attempt.no_nodes and not trial.has_post_filter:
            return refusal(attempt, None)
        decision = conclude(attempt, trial.draw, self._sampling)
        # A member for which preemption made room is reserved like a placed one.
        decision.state = attempt.state
        return decision

    def _cache_refusal(self, one: EnginePodClass, attempt: Attempt, decision: Decision) -> None:
        """Cache the refusal for other pods of the class."""
        assert self._engine is not None
        one.refused = None
        refusal = decision.refusal
        is_refused = refusal is not None and refusal.is_rejected
        if attempt.state.find(REFUSED_ALONE) is not None:
            return
        if is_refused and not decision.nominated_node and self._is_repeatable(one.framework):
            is_planned = self._engine.plan_of(one)
            n_nodes = attempt.snapshot.nodes.n_nodes
            kept = ClassRefusal(decision, attempt, is_planned, one.card_filter)
            if one.pod.spec.resource_claims:
                # Devices are released without a change of their node.
                kept.forget_verdicts()
            self._refusals.keep(one, kept, n_nodes)

    def _is_repeatable(self, framework: Framework) -> bool:
        known = self._repeatable_profiles.get(framework)
        if known is None:
            known = self._repeatable_profiles[framework] = is_repeatable(framework)
        return known

    def decide_with_extenders(
        self, pod: Pod, framework: Framework, rng: TieBreakSource, extenders: Sequence[HTTPExtender]
    ) -> ExtenderConsultation:
        """Begin an attempt that needs extenders."""
        return ExtenderConsultation(pod, framework, extenders, draw_tie_break(rng), self._sampling)


def is_repeatable(framework: Framework) -> bool:
    """True if refusals of this profile depend only on the pod class and the snapshot. A plugin that
    declares neither this nor kernel terms may depend on more, such as state of its own."""
    filters = (*framework.at("preFilter"), *framework.at("filter"))
    return all(
        m.row_local or m.node_only or m.calls["kernel_terms"] or m.declaration.repeatable
        for m in filters
    ) and all(m.declaration.repeatable for m in framework.at("postFilter"))
