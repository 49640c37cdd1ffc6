"""Disruption controller: how many pods of a budget are healthy, must be, and may be disrupted.

Source: kube-controller-manager v1.36, pkg/controller/disruption/disruption.go and
kubectl/component-helpers apps/poddisruptionbudget.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan.apis.kind.conditions import set_status_condition
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.go_format import go_selector
from stowplan.apis.policy.pod_disruption_budget import set_disruption_allowed
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    int_or_percent_of,
    parse_label_selector,
    selector_matches,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import (
    BUDGETS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from stowplan.controllers.controller_scale import PodWithoutController, scale_of_controller
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "controllermanager"
_SCALED = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
DISRUPTED_SECONDS = 120.0
"""How long an evicted pod that still exists counts as deleted."""


@dataclass(slots=True)
class _SelectedPods:
    """A budget's selector and the pods that it selects."""

    selector: LabelSelector | None
    pods: set[Key]


class DisruptionController(Controller):
    """Computes `status` of disruption budgets; evictions count it down."""

    name = "disruption"
    path = BUDGETS

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._budgets: dict[str, dict[str, _SelectedPods]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed budget, and the budgets that select a changed pod."""
        key = split_key(change)
        if change.path == BUDGETS:
            self.queue.add(key)
            self._note_budget(change, key)
        elif change.path == PODS and self._budgets.get(key[0]):
            if self._note_pod(before, self.index.pods.get(key)):
                self._warn_of_several(change.value, key)
        elif change.path in _SCALED:
            for name in self._budgets.get(key[0], ()):
                self.queue.add((key[0], name))

    def sync(self, key: Key) -> None:
        """Count, and write the status if it differs."""
        budget = self.api.get(BUDGETS, *key)
        if budget is None:
            return
        chosen = self._budgets.get(key[0], {}).get(key[1])
        pods = [self.index.pods[pod] for pod in sorted(chosen.pods)] if chosen else []
        if not pods:
            self.recorder.record(budget, COMPONENT, "NoPods", "No matching pods found")
        try:
            expected, desired = self._expected(budget, pods)
        except PodWithoutController as error:
            self._fail(budget, str(error))
            return
        disrupted, again = self._disrupted(budget, pods)
        if again:
            self.queue.add(key, again)
        healthy = sum(p.ready and not p.deleting and p.key[1] not in disrupted for p in pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        self._write(budget, expected, desired, healthy, allowed, disrupted)

    def _note_budget(self, change: WatchEvent, key: Key) -> None:
        """Record which pods a budget selects."""
        known = self._budgets.setdefault(key[0], {})
        if change.type == "DELETED":
            known.pop(key[1], None)
            return
        tree = self.decoded(change.value) or {}
        wanted = parse_label_selector((tree.get("spec") or {}).get("selector"))
        old = known.get(key[1])
        if old is None or old.selector != wanted:
            pods = self.index.in_namespace(key[0])
            known[key[1]] = _SelectedPods(
                wanted, {pod.key for pod in pods if selector_matches(wanted, pod.labels)}
            )

    def _note_pod(self, before: PodFacts | None, now: PodFacts | None) -> bool:
        """Queue the budgets that select a changed pod, or selected it before; True if several
        select it now."""
        pod, n_selecting = now or before, 0
        for name, chosen in self._budgets.get(pod.key[0], {}).items() if pod else ():
            assert pod is not None
            selected = now is not None and selector_matches(chosen.selector, now.labels)
            if selected or pod.key in chosen.pods:
                self.queue.add((pod.key[0], name))
            if selected:
                n_selecting += 1
                chosen.pods.add(pod.key)
            else:
                chosen.pods.discard(pod.key)
        return n_selecting > 1

    def _warn_of_several(self, value: bytes, key: Key) -> None:
        """Record that several budgets select a pod, which therefore cannot be evicted."""
        name = min(name for name, one in self._budgets[key[0]].items() if key in one.pods)
        text = (
            f'Pod "{key[0]}"/"{key[1]}" matches multiple PodDisruptionBudgets.  Chose "{name}"'
            " arbitrarily."
        )
        pod = {"apiVersion": "v1", "kind": "Pod", **(self.decoded(value) or {})}
        reason = "MultiplePodDisruptionBudgets"
        self.recorder.record(pod, COMPONENT, reason, text, type="Warning")

    def _expected(self, budget: Tree, pods: list[PodFacts]) -> tuple[int, int]:
        """Expected number of pods, and desired number of healthy ones."""
        spec = budget["spec"]
        if spec.get("maxUnavailable") is not None:
            expected = self._scale(budget, pods)
            lost = int_or_percent_of(spec["maxUnavailable"], expected, round_up=True)
            return expected, max(0, expected - lost)
        least = spec.get("minAvailable")
        if isinstance(least, str):
            expected = self._scale(budget, pods)
            return expected, int_or_percent_of(least, expected, round_up=True)
        return (len(pods), int(least)) if least is not None else (0, 0)

    def _scale(self, budget: Tree, pods: list[PodFacts]) -> int:
        """Sum of the scales of all controllers of these pods."""
        sizes: dict[str, int] = {}
        unmanaged = []
        for pod in pods:
            if not pod.owner:
                unmanaged.append(pod.key[1])
            elif pod.owner not in sizes:
                scale = scale_of_controller(self.api, pod)
                sizes[scale.uid] = scale.replicas
                sizes.setdefault(pod.owner, 0)
        if unmanaged:
            selector = go_selector(budget["spec"].get("selector"))
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to "
                "be unmanaged. As a result, the status of the PDB cannot be calculated correctly, "
                "which may result in undefined behavior. To account for these pods please set "
                '".spec.minAvailable" field of the PDB to an integer value.'
            )
            self.recorder.record(budget, COMPONENT, "UnmanagedPods", text, type="Warning")
        return sum(sizes.values())

    def _disrupted(self, budget: Tree, pods: list[PodFacts]) -> tuple[dict[str, str], float]:
        """Evicted pods that still exist, and when to sync again because of them."""
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        kept: dict[str, str] = {}
        again = 0.0
        for pod in pods:
            since = noted.get(pod.key[1])
            if since is None or pod.deleting:
                continue
            due = unix_seconds(since) + DISRUPTED_SECONDS
            if due > self.api.now:
                kept[pod.key[1]] = since
                again = min(again, due) if again else due
        return kept, again

    def _write(
        self,
        budget: Tree,
        expected: int,
        desired: int,
        healthy: int,
        allowed: int,
        disrupted: dict[str, str],
    ) -> None:
        old = budget.get("status") or {}
        generation = budget["metadata"].get("generation", 0)
        status: Tree = {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        conditions = list(old.get("conditions") or ())
        set_disruption_allowed(conditions, allowed, generation, self.api.now)
        status["conditions"] = conditions
        if status != old:
            budget["status"] = status
            self.api.update_status(BUDGETS, budget)

    def _fail(self, budget: Tree, why: str) -> None:
        """Allow no disruptions while the count fails."""
        status = budget.setdefault("status", {})
        before = dict(status)
        conditions = [dict(each) for each in status.get("conditions") or ()]
        entry = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration", 0),
            "reason": "SyncFailed",
            "message": why,
        }
        set_status_condition(conditions, entry, self.api.now)
        status["disruptionsAllowed"] = 0
        status["conditions"] = conditions
        text = f"Failed to calculate the number of expected pods: {why}"
        reason = "CalculateExpectedPodCountFailed"
        self.recorder.record(budget, COMPONENT, reason, text, type="Warning")
        if status != before:
            try:
                self.api.update_status(BUDGETS, budget)
            except ApiError as error:
                if error.code != 409:
                    raise
