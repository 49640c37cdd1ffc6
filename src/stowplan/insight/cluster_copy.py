"""Cluster copy: pods decided one after another on a copy of the nodes, by the scheduler's decider.

Only placed pods change the copy. What Reserve, Permit and PreBind plugins keep of a pod (such as
volumes that wait for their first consumer) is not followed: `follows` says for which pods that
makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stowplan.columns import NodeTable
from stowplan.columns.engine.tie_break import NO_TIE_BREAKS
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle import CycleDecider
from stowplan.cycle.attempt import filter_pod
from stowplan.framework import Framework, ObjectStore, Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.diagnosis import NO_NODES
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

POINTS_BETWEEN = ("reserve", "permit", "preBind")
"""Extension points between a decision and its binding."""


class ClusterCopy:
    """Nodes with pods, on which further pods are decided. n_decided: pods decided so far.

    frameworks: by scheduler name, without PostFilter plugins: nothing is evicted here. Ties go to
    the first node in the snapshot's order.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        bound: Iterable[Pod],
        object_store: ObjectStore,
        frameworks: Mapping[str, Framework],
    ) -> None:
        self.table = NodeTable()
        for node in nodes:
            self.table.add_node(node)
        for pod in bound:
            self.table.add_pod(pod)
        self.snapshot = Snapshot(self.table, object_store)
        self.frameworks = frameworks
        self.n_decided = 0
        self._decider = CycleDecider()

    def place(self, pods: Sequence[Pod], *, stops: bool = False) -> list[Decision]:
        """Decide pods in their order, each counted before the next; their decisions.

        stops: end with the first pod that no node takes; later pods have no decision.
        """
        made: list[Decision] = []
        while len(made) < len(pods):
            rows = self._place_run(pods, len(made))
            made += [Decision(node_name=self.table.names[row]) for row in rows]
            if len(made) == len(pods):
                break
            decision = self._place_one(pods[len(made)])
            made.append(decision)
            if stops and not decision.node_name:
                break
        return made

    def remove(self, pod: Pod) -> None:
        """Take a pod off its node."""
        self.table.remove_pod(pod.uid)

    def refusal(self, pod: Pod) -> dict[str, int]:
        """Reason -> number of nodes that refuse the pod now for it, most nodes first."""
        framework = self.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return {no_profile(pod.spec.scheduler_name): self.table.n_nodes}
        self.table.refresh()
        attempt = filter_pod(pod, self.snapshot, framework)
        if attempt.no_nodes:
            return {NO_NODES: 0}
        if attempt.failure is not None:
            return {attempt.failure.message: self.table.n_nodes}
        counts = attempt.diagnosis.reasons()
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _place_run(self, pods: Sequence[Pod], start: int) -> list[int]:
        """Rows of the pods from `start` on that kernels place."""
        engine = self._decider.engine()
        if engine is None:
            return []
        classes = []
        for pod in pods[start:]:
            framework = self.frameworks.get(pod.spec.scheduler_name)
            one = None if framework is None else engine.class_of(pod, framework)
            if one is None:
                break
            classes.append(one)
        if not classes:
            return []
        self.table.refresh()
        run = engine.run(pods[start : start + len(classes)], classes, NO_TIE_BREAKS)
        rows = run.place(0, self.snapshot)
        self.n_decided += len(rows)
        return rows

    def _place_one(self, pod: Pod) -> Decision:
        self.n_decided += 1
        framework = self.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return Decision(message=no_profile(pod.spec.scheduler_name))
        gate = framework.run_pre_enqueue(pod)
        if not gate.is_success:
            return Decision(refusal=gate, message=gate.message)
        self.table.refresh()
        decision = self._decider.decide(pod, self.snapshot, framework, None)
        if decision.node_name:
            self.table.add_pod(pod, decision.node_name)
        return decision


def follows(pod: Pod, frameworks: Mapping[str, Framework]) -> bool:
    """True when no plugin between decision and binding concerns the pod, so that a copy decides the
    next pod as the scheduler would."""
    framework = frameworks.get(pod.spec.scheduler_name)
    if framework is None:
        return True
    between = (member for point in POINTS_BETWEEN for member in framework.at(point))
    return not any(m.calls["applies_to"] is None or m.call("applies_to", pod) for m in between)
