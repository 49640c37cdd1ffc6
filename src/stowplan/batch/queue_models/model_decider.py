"""ModelDecider: runs a queue model where the scheduler runs sessions.

It follows the cluster for the model, and counts decisions as carried out until the watch confirms
them or an outcome reports their failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.batch.queue_models.queue_model import (
    ModelCluster,
    ModelDecisions,
    ModelReport,
    QueueModel,
)
from stowplan.batch.state.inventory import is_nomination_new
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import ConfigError, ContractError, Framework
from stowplan.framework.deciders.attached_decider import AttachedDecider, with_phase
from stowplan.framework.deciders.session_decider import (
    BindFailureResult,
    NodeAssignment,
    PodGroupReport,
    PodReport,
    SessionResult,
    SessionVictim,
)
from stowplan.framework.deciders.session_metrics import SessionFigures, record_session
from stowplan.framework.deciders.tasks import group_of
from stowplan.framework.metrics import Metrics
from stowplan.framework.object_store import key_of
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_ANNOTATION,
    KAI_GROUP_API_VERSION,
    KaiPodGroupObject,
)
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroup, Queue
from stowplan.objects.quantity import Quantity


class ModelPlan(msgspec.Struct, frozen=True):
    """Settings from a configuration. settings: those of the model. reads: kinds that it reads with
    them, see `QueueModel`."""

    model: str
    scheduler_names: tuple[str, ...]
    default_queue: str
    period_s: float
    uses_priority_classes: bool
    settings: Any
    reads: tuple[type[Object], ...] = ()


class ModelDecider(AttachedDecider[ModelPlan]):
    """The cluster as a queue model sees it, and its sessions.

    reread: parses another text of the configuration, for `reload`. on_closed: called after each
    session, with what the model reports of it. decides: False for sessions that only look.
    """

    def __init__(
        self,
        plan: ModelPlan,
        model: QueueModel,
        framework: Framework,
        reread: Callable[[str, str], ModelPlan],
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(plan, framework, metrics)
        self.model = model
        self.on_closed: Callable[[SessionResult, ModelReport], None] = lambda *_: None
        self.decides = True
        self._reread = reread
        # As the watch shows them; and as the decisions so far leave them.
        self._observed: dict[str, Pod] = {}
        self._pods: dict[str, Pod] = {}
        self._changed: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        # Groups and queues, whose status sessions write.
        self._reported: dict[str, Object] = {}
        self._objects: dict[type[Object], dict[str, Object]] = {kind: {} for kind in model.reads}
        self._changed_objects: dict[tuple[type[Object], str], None] = {}
        # Decisions that the watch has not confirmed yet: uid -> node; uid -> time of eviction.
        self._binding: dict[str, str] = {}
        self._evicting: dict[str, datetime] = {}
        self._nominations: dict[str, str] = {}
        # Why groups wait, and pods: by uid, for the job or the pod alone.
        self._reasons: dict[str, str] = {}
        self._pod_reasons: dict[str, PodReport] = {}

    # Watch events.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated; includes finished pods."""
        pod, uid = with_phase(pod), pod.uid
        if pod.node_name:
            self._failures.pop(uid, None)
        if pod.node_name or pod.status.phase != "Pending":
            self._binding.pop(uid, None)
            self._nominations.pop(uid, None)
        elif is_nomination_new(self._observed.get(uid), pod) and uid not in self._binding:
            # The nomination was written by another scheduler, or by this one before a restart.
            self._nominations.setdefault(uid, pod.status.nominated_node_name)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            self._evicting.pop(uid, None)
        self._observed[uid] = pod
        self._recount(uid)

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""
        for known in (self._observed, self._binding, self._evicting, self._nominations):
            known.pop(uid, None)
        self._failures.pop(uid, None)
        self._recount(uid)

    def _recount(self, uid: str) -> None:
        """A pod has changed, or what was decided about it."""
        self._changed[uid] = None
        self._waiting.pop(uid, None)
        observed = self._observed.get(uid)
        if observed is None:
            self._pods.pop(uid, None)
            self._pod_reasons.pop(uid, None)
            return
        pod = self._pods[uid] = self._as_decided(observed)
        is_ours = pod.spec.scheduler_name in self.plan.scheduler_names
        if is_ours and not pod.node_name and not pod.is_finished:
            self._waiting[uid] = None
        else:
            self._pod_reasons.pop(uid, None)

    def _as_decided(self, pod: Pod) -> Pod:
        uid = pod.uid
        node = self._binding.get(uid)
        if node is not None and not pod.node_name:
            pod = replace(pod, spec=replace(pod.spec, node_name=node))
        since = self._evicting.get(uid)
        if since is not None:
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=since))
        kept = self._nominations.get(uid, "")
        if not pod.node_name and kept != pod.status.nominated_node_name:
            pod = replace(pod, status=replace(pod.status, nominated_node_name=kept))
        return pod

    def object_updated(self, value: Object) -> None:
        """Another object was added or updated."""
        if isinstance(value, PodGroup | Queue | KaiPodGroupObject):
            self._reported[key_of(value)] = value
        if type(value) in self._objects:
            self._put(value)

    def _put(self, value: Object) -> None:
        kind, key = type(value), key_of(value)
        self._objects[kind][key] = value
        self._changed_objects[kind, key] = None

    def object_deleted(self, value: Object) -> None:
        """Another object was deleted."""
        kind, key = type(value), key_of(value)
        if isinstance(value, PodGroup | Queue | KaiPodGroupObject):
            self._reported.pop(key, None)
        if isinstance(value, PodGroup):
            self._reasons.pop(key, None)
        if kind in self._objects:
            self._objects[kind].pop(key, None)
            self._changed_objects[kind, key] = None

    # Sessions.

    def cluster(
        self, name: str = "", nominated: Sequence[NodeAssignment] = (), now: int = 0
    ) -> ModelCluster:
        """What a session would read now."""
        return ModelCluster(
            self.snapshot(),
            self._pods,
            tuple(self._changed),
            self._objects,
            tuple(self._changed_objects),
            nominated,
            name,
            now,
        )

    def run_session(
        self, name: str, nominated: Sequence[NodeAssignment], now: int = 0
    ) -> SessionResult:
        """Run a session. name: unique name of the session. nominated: nominated pods of other
        schedulers, with their nodes. now: Unix time in nanoseconds."""
        metrics = self.metrics
        began = metrics.stopwatch()
        self._states.clear()
        cluster = self.cluster(name, nominated, now)
        self._changed.clear()
        self._changed_objects.clear()
        if not self.decides:
            result = SessionResult()
            self.on_closed(result, self.model.look(cluster))
            return result
        decided = self.model.decide(cluster, metrics)
        result = self._result(decided)
        self._remember(decided, now)
        figures = SessionFigures(
            len(decided.binds),
            len(decided.victims),
            len({victim.preemptor for victim in decided.victims if victim.preemptor}),
            decided.unready,
        )
        record_session(metrics, figures, (metrics.stopwatch() - began) * 1e3)
        self.on_closed(result, self.model.report())
        return result

    def _result(self, decided: ModelDecisions) -> SessionResult:
        pods = self._observed
        return SessionResult(
            tuple(
                NodeAssignment(
                    pods[uid], node, decided.gangs.get(uid, ""), decided.requests.get(uid)
                )
                for uid, node in decided.binds.items()
                if uid in pods
            ),
            tuple(self._victims(decided)),
            tuple(
                NodeAssignment(pods[uid], node)
                for uid, node in decided.nominations.items()
                if uid in pods
            ),
            decided.groups,
            decided.pods,
            decided.queues,
            continues=decided.continues,
            again_in_s=decided.again_in_s,
        )

    def _victims(self, decided: ModelDecisions) -> Iterator[SessionVictim]:
        pods = self._observed
        for victim in decided.victims:
            pod = pods.get(victim.uid)
            if pod is None:
                continue
            preemptor = pods.get(victim.preemptor)
            group = victim.group or ("" if preemptor is None else group_of(preemptor))
            yield SessionVictim(pod, victim.why, preemptor, group, victim.decided_by, victim.member)

    def _remember(self, decided: ModelDecisions, now: int) -> None:
        """Count the decisions as applied until the watch or an outcome says otherwise."""
        before, self._nominations = self._nominations, dict(decided.nominations)
        self._binding.update(decided.binds)
        time = datetime.fromtimestamp(now // 1_000_000_000, UTC)
        self._evicting.update((victim.uid, time) for victim in decided.victims)
        moved = {
            uid
            for uid in (*before, *self._nominations)
            if before.get(uid) != self._nominations.get(uid)
        }
        for uid in (*decided.binds, *(victim.uid for victim in decided.victims), *moved):
            if uid in self._observed:
                self._recount(uid)
        for report in decided.groups:
            self._note_status(report)
        self._note_reasons(decided)

        queues = self._objects.get(Queue, {})
        for sums in decided.queues:
            queue = queues.get(sums.name)
            if isinstance(queue, Queue):
                given: dict[str, Quantity] = dict(sums.allocated)
                self._put(replace(queue, status=replace(queue.status, allocated=given)))

    def _note_reasons(self, decided: ModelDecisions) -> None:
        """Keep why jobs wait; a model reports that when it changes."""
        for uid in decided.binds:
            if uid in self._observed:
                self._reasons.pop(group_of(self._observed[uid]), None)
        for group in decided.groups:
            key = f"{group.namespace}/{group.name}"
            # What is noted on a group of KAI is reported of its pods as well.
            if group.api_version == KAI_GROUP_API_VERSION:
                continue
            for _, reason, message in group.notes:
                self._reasons.pop(key, None)
                if reason == UNSCHEDULABLE:
                    self._reasons[key] = message
        for pod in decided.pods:
            if pod.pod.uid in self._waiting:
                self._pod_reasons[pod.pod.uid] = pod

    def _note_status(self, report: PodGroupReport) -> None:
        group = self._objects.get(PodGroup, {}).get(f"{report.namespace}/{report.name}")
        if report.status is not None and isinstance(group, PodGroup):
            self._put(replace(group, status=report.status))

    # Outcomes.

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod, of any scheduler, is assumed on a node; the watch has not confirmed it yet."""
        if self._binding.get(pod.uid) != node and pod.uid in self._observed:
            self._binding[pod.uid] = node
            self._recount(pod.uid)

    def forgotten(self, uid: str) -> None:
        """The pod is no longer assumed."""
        if self._binding.pop(uid, None) is not None:
            self._recount(uid)

    def bind_failed(self, pod: Pod, reason: str, *, counts: bool) -> BindFailureResult:
        """A bind failed: the pod is pending again. counts: False if it was not refused."""
        self.forgotten(pod.uid)
        if counts:
            self._failures[pod.uid] = self._failures.get(pod.uid, 0) + 1
        return BindFailureResult()

    def status_not_written(self, namespace: str, name: str) -> None:
        """The status of a group or queue was not written; it is as the watch has last shown it."""
        seen = self._reported.get(f"{namespace}/{name}" if namespace else name)
        if seen is not None and type(seen) in self._objects:
            self._put(seen)

    def pod_not_evicted(self, uid: str) -> None:
        """A pod was not evicted and is not terminating."""
        if self._evicting.pop(uid, None) is not None:
            self._recount(uid)

    def reload(self, text: str, source: str) -> str:
        """Load another configuration; returns "" or why it is invalid."""
        try:
            plan = self._reread(text, source)
        except (ConfigError, ContractError) as refused:
            return str(refused)
        for field in ("model", "scheduler_names", "default_queue", "uses_priority_classes"):
            if getattr(plan, field) != getattr(self.plan, field):
                return f"{source}: {field} cannot change before a restart"
        unread = [kind.__name__ for kind in plan.reads if kind not in self._objects]
        if unread:
            return f"{source}: {', '.join(unread)} cannot be read before a restart"
        self.plan = plan
        self.model.configure(plan.settings)
        return ""

    # Reads.

    @property
    def n_waiting(self) -> int:
        """Number of its pods that wait for a node."""
        return len(self._waiting)

    def waiting(self) -> Iterator[str]:
        """Uids of its pods that wait for a node."""
        return iter(self._waiting)

    @property
    def waiting_reasons(self) -> Mapping[str, str]:
        """Why jobs wait, as sessions have last reported it: by PodGroup, or by pod."""
        return dict(self.each_waiting_reason())

    def each_waiting_reason(self) -> Iterator[tuple[str, str]]:
        """The same, one by one: there may be very many."""
        known = set()
        for uid, report in self._pod_reasons.items():
            pod = self._observed[uid]
            key = pod.key if report.is_own else self._job_key(pod)
            if key not in known:
                known.add(key)
                yield key, report.message
        yield from ((key, text) for key, text in self._reasons.items() if key not in known)

    def pending_pods(self) -> Iterator[Pod]:
        """Its pods that wait for a node."""
        return (self._pods[uid] for uid in self.waiting())

    def known(self) -> Iterator[str]:
        """Uids of all known pods."""
        return iter(self._observed)

    def _job_key(self, pod: Pod) -> str:
        """The PodGroup of a pod, else the pod."""
        if KaiPodGroupObject in self._objects:
            name = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION)
            return f"{pod.namespace}/{name}" if name else pod.key
        return group_of(pod) or pod.key

    def validate(self) -> None:
        """Compare the pods as decided with what they are made of; raises InvariantBroken."""
        for uid, pod in self._observed.items():
            if self._pods.get(uid) != self._as_decided(pod):
                raise InvariantBroken(f"queue model {self.model.name}: pod {uid} is outdated")
        unknown = (self._binding.keys() | self._evicting.keys()) - self._observed.keys()
        if unknown:
            raise InvariantBroken(f"queue model {self.model.name}: {min(unknown)} is no pod")
