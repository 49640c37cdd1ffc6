"""KaiModel: KAI-Scheduler's sessions as a queue model of the scheduler.

Pods with parts of cards are bound by requests to KAI's binder, which writes their cards to them;
where none are written cards are remembered (`kai_memory`). KAI's priority classes exist also where
they are not installed. NodeResourceTopology objects are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.kai.actions.kai_actions import ACTIONS
from stowplan.batch.queue_models.kai.actions.search_budget import SearchBudget
from stowplan.batch.queue_models.kai.actions.unbound_victims import place_instead
from stowplan.batch.queue_models.kai.kai_objects import STUCK_AFTER
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.kai.kai_session import KaiRules, KaiSession
from stowplan.batch.queue_models.kai.model.group_statuses import (
    GroupStatuses,
    eviction_reports,
)
from stowplan.batch.queue_models.kai.model.group_times import GroupTimes
from stowplan.batch.queue_models.kai.model.kai_memory import KaiMemory
from stowplan.batch.queue_models.kai.model.kai_reasons import (
    KaiReasons,
    gist_of,
    outside_text,
    text_for,
)
from stowplan.batch.queue_models.kai.model.kai_report import OpenKaiSession, report_of, waits
from stowplan.batch.queue_models.kai.model.kai_state import KaiState
from stowplan.batch.queue_models.kai.model.next_session import next_session_in
from stowplan.batch.queue_models.kai.model.pod_grouper import OWNER_TYPES
from stowplan.batch.queue_models.kai.session_claims import Allocate
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import Shares
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask
from stowplan.batch.queue_models.kai.state.kai_usage import KaiUsage, UsageRules
from stowplan.batch.queue_models.queue_model import (
    ModelCluster,
    ModelDecisions,
    ModelReport,
    ModelVictim,
)
from stowplan.framework import ContractError
from stowplan.framework.deciders.session_decider import PodGroupReport, PodReport
from stowplan.framework.deciders.session_metrics import ACTION_LATENCY
from stowplan.framework.metrics import Metrics
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.kai.bind_request import (
    KaiBindRequest,
    KaiBindRequestSpec,
    KaiReceivedGpu,
)
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiQueueObject,
    KaiTopologyObject,
)
from stowplan.objects.kai.node_topology import NodeResourceTopology
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace, PriorityClass

SHARES_LEFT_OUT = "parts of cards are not given to pods: gpuSharing is false"
LOOKED_AT_MAX = 100
"""Waiting jobs whose reason is looked at in a session."""
GROUP_WAIT_S = 1.0
"""How long a group that the pod-grouper makes is waited for before its pods have a reason."""


_READS: tuple[type[Object], ...] = (
    KaiPodGroupObject,
    KaiQueueObject,
    KaiTopologyObject,
    KaiBindRequest,
    Namespace,
    PriorityClass,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    *OWNER_TYPES,
)


def kinds_of_kai(options: KaiOptions) -> tuple[type[Object], ...]:
    """Kinds that sessions read beside pods and nodes."""
    return _READS if options.zones is None else (*_READS, NodeResourceTopology)


class KaiParts(msgspec.Struct, frozen=True):
    """What the assembly provides. devices: (slices, classes) -> chooses devices for claims."""

    rules: KaiRules
    devices: Callable[[Iterable[ResourceSlice], Iterable[DeviceClass]], Allocate]


class KaiModel:
    """Sessions of KAI-Scheduler on the cluster that the scheduler follows."""

    name = "kai"

    def __init__(
        self, options: KaiOptions, parts: KaiParts, scheduler_names: tuple[str, ...]
    ) -> None:
        self._options = options
        self._budget = SearchBudget(options.simulated_max)
        self._usage = KaiUsage(options.usage or UsageRules())
        self._parts = parts
        self._memory = KaiMemory()
        self._state = KaiState(scheduler_names, self._memory, parts.rules, parts.devices)
        # By job: why it waits, the pod that this names, with the pods for which that was reported;
        # pods that it lacks.
        self._texts: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._reported: dict[str, tuple[str, frozenset[str]]] = {}
        self._missing: dict[str, int] = {}
        # Group that does not exist yet -> when a session first found pods of it, in seconds.
        self._awaited_since: dict[str, float] = {}
        self._statuses = GroupStatuses()
        self._times = GroupTimes()
        self._next = 0
        self._turn: set[str] = set()
        self._leaves_reasons = False
        self._last = ModelReport()
        self._keeps_reports = False
        self._asked = ""

    @property
    def reads(self) -> tuple[type[Object], ...]:
        """Kinds that it reads beside pods and nodes."""
        return kinds_of_kai(self._options)

    def configure(self, settings: object) -> None:
        """Use other actions and plugins. settings: KaiOptions."""
        if not isinstance(settings, KaiOptions):
            raise ContractError("settings of the queue model kai must be KaiOptions")
        if settings.usage != self._options.usage:
            self._usage = KaiUsage(settings.usage or UsageRules())
        self._options = settings
        self._budget = SearchBudget(settings.simulated_max)

    def decide(self, cluster: ModelCluster, metrics: Metrics) -> ModelDecisions:
        """Run a session."""
        session = self._state.open(cluster, self._options, self._used(cluster))
        try:
            return self._decide(session, cluster, metrics)
        finally:
            session.volumes.close()

    def _decide(
        self, session: KaiSession, cluster: ModelCluster, metrics: Metrics
    ) -> ModelDecisions:
        session.budget = self._budget
        self._budget.begin_session()
        causes: dict[str, str] = {}
        for name in self._options.actions:
            began, n_before = metrics.stopwatch(), len(session.evicts)
            session.budget.begin_action(name)
            ACTIONS[name](session)
            causes.update(dict.fromkeys(session.evicts[n_before:], name))
            took = (metrics.stopwatch() - began) * 1e6
            metrics.observe(ACTION_LATENCY, took, (("action", name),))
        place_instead(session, self._pending_as, self._memory.last_evictions)
        if self._options.usage is not None:
            allocated = {name: queue.allocated for name, queue in session.queues.queues.items()}
            self._usage.hold(allocated, session.queues.total)
        changed = [*self._state.settle(session)]
        reasons = KaiReasons(session)
        decisions = self._decisions(session, changed, reasons, causes)
        outdated = self._memory.note(session, changed)
        self._state.outdated(outdated)
        usage = None if self._options.usage is None else self._usage
        awaited = (at + GROUP_WAIT_S for at in self._awaited_since.values())
        moments = (*awaited, *(at + STUCK_AFTER for at in self._state.terminating()))
        again = next_session_in(session, self._memory, moments, usage)
        written = [*self._group_reports(cluster, session, reasons)]
        groups = cluster.objects.get(KaiPodGroupObject, {})
        evicted = (self._state.task(victim.uid) for victim in decisions.victims)
        victims = [task for task in evicted if task is not None]
        written += eviction_reports(session, victims, groups)
        written += self._times.reports(self._memory, groups, outdated, cluster.changed_objects)
        decisions = msgspec.structs.replace(
            decisions,
            again_in_s=again,
            groups=written,
            requests=self._requests(session, changed, decisions.binds),
        )
        if self._keeps_reports:
            self._last = report_of(self._opened(session), reasons, self._asked)
        return decisions

    def look(self, cluster: ModelCluster) -> ModelReport:
        """Jobs and queues as a session finds them."""
        session = self._state.open(cluster, self._options, self._used(cluster))
        return report_of(self._opened(session), KaiReasons(session), self._asked)

    def inspect(self, pod: str = "") -> None:
        """Keep a report of each session from now on. pod: uid of one that is asked about."""
        self._keeps_reports, self._asked = True, pod

    def report(self) -> ModelReport:
        """Jobs and queues as the last session left them."""
        return self._last

    # The session.

    def _used(self, cluster: ModelCluster) -> Mapping[str, Shares] | None:
        """What queues had over time, if that counts."""
        if self._options.usage is None:
            return None
        self._usage.advance(cluster.now / 1e9)
        return self._usage.shares()

    def _opened(self, session: KaiSession) -> OpenKaiSession:
        state = self._state
        return OpenKaiSession(
            session,
            state.owned(),
            dict(state.orphans),
            dict(state.refusals),
            dict(state.outside),
        )

    def _decisions(
        self,
        session: KaiSession,
        changed: Sequence[KaiJob],
        reasons: KaiReasons,
        causes: Mapping[str, str],
    ) -> ModelDecisions:
        bound: dict[str, str] = {}
        gangs: dict[str, str] = {}
        victims: list[ModelVictim] = []
        for job in changed:
            tasks = job.tasks()
            new = [t for t in tasks if t.status == KaiStatus.BINDING and not self._had_node(t)]
            bound.update((task.uid, task.node) for task in new)
            missing = reasons.missing(job)
            if new and job.active - len(new) < reasons.minimum(job):
                gangs.update((task.uid, job.uid) for task in new)
            self._missing.pop(job.uid, None)
            if missing > 0:
                self._missing[job.uid] = missing
            victims += (
                _victim(session, task, causes[task.key])
                for task in tasks
                if self._is_evicted(task) and task.key in causes
            )
        started = {*gangs.values()}
        unready = [
            (key, missing)
            for key, missing in self._missing.items()
            if key in session.jobs and key not in started
        ]
        reports = [*self._reports(session, reasons, {job.uid for job in changed})]
        return ModelDecisions(
            bound, victims, {}, gangs, (), reports, unready, continues=self._leaves_reasons
        )

    def _requests(
        self, session: KaiSession, changed: Iterable[KaiJob], bound: Mapping[str, str]
    ) -> dict[str, KaiBindRequestSpec]:
        """By uid: what KAI's binder does for the pods that are bound with parts of cards, or to
        NUMA zones."""
        found = {}
        for task in (task for job in changed for task in job.tasks() if task.uid in bound):
            zones = session.zone_record(task)
            if not task.is_shared and not zones:
                continue
            found[task.uid] = KaiBindRequestSpec(
                pod_name=task.pod.name,
                selected_node=task.node,
                received_resource_type=task.received,
                received_gpu=KaiReceivedGpu(
                    task.accepted_cards.count, f"{task.accepted_cards.portion:.2f}"
                ),
                selected_gpu_groups=self._memory.cards(task.uid),
                predicted_numa_zones=zones,
            )
        return found

    def _had_node(self, task: KaiTask) -> bool:
        before = self._state.task(task.uid)
        return before is not None and bool(before.node)

    def _pending_as(self, task: KaiTask) -> KaiTask | None:
        before = self._state.task(task.uid)
        return before if before is not None and not before.node else None

    def _is_evicted(self, task: KaiTask) -> bool:
        """Whether a pod was on a node and is not to stay there."""
        return (
            task.status in (KaiStatus.RELEASING, KaiStatus.PIPELINED)
            and self._had_node(task)
            and task.pod.metadata.deletion_timestamp is None
        )

    def _group_reports(
        self, cluster: ModelCluster, session: KaiSession, reasons: KaiReasons
    ) -> Iterator[PodGroupReport]:
        """What has changed of why groups wait."""
        groups = cluster.objects.get(KaiPodGroupObject, {})
        self._statuses.follow(groups, cluster.changed_objects)
        # Only those that were looked at: to find a reason takes long.
        known = {
            job.uid: (reasons.of(job)[0] if job.uid in self._turn else "", self._texts[job.uid])
            for job in session.waiting
            if job.uid in self._texts
        }
        return self._statuses.reports(session, groups, known, self._memory.stale)

    # Why pods wait.

    def _reports(
        self, session: KaiSession, reasons: KaiReasons, changed: Collection[str]
    ) -> Iterator[PodReport]:
        """What has changed of why pods wait."""
        before, self._reported = self._reported, {}
        for job, text in self._texts_of(session, reasons):
            known = before.get(job.uid)
            if known is not None and job.uid not in changed and job.uid not in self._turn:
                self._reported[job.uid] = known
                continue
            tasks = job.pending() if text else []
            key = self._named.get(job.uid, "")
            named = next((task for task in tasks if task.key == key), None)
            texts = {task.uid: text_for(task, text, named) for task in tasks}
            yield from self._report(job.uid, text, {t.uid: t.pod for t in tasks}, known, texts)
        for pod in self._state.left_out.values():
            yield from self._report_own(pod, SHARES_LEFT_OUT, before)
        for job_key, outside in self._state.outside.items():
            for task in (one for one in outside if waits(one.pod)):
                text = outside_text(job_key, task.sub_group)
                yield from self._report_own(task.pod, text, before)
        awaited = self._awaited_groups(session.now)
        for key, pods in self._state.orphans.items():
            if key in awaited:
                continue
            waiting = {pod.uid: pod for pod in pods if not pod.node_name}
            text = self._state.refusals.get(pods[0].uid) or reasons.no_group(key)
            yield from self._report(key, text, waiting, before.get(key))

    def _awaited_groups(self, now: float) -> Collection[str]:
        """Groups of pods that the pod-grouper is about to make: the watch shows pods with the name
        of a group before it shows the group."""
        since = self._awaited_since
        self._awaited_since = {
            key: since.get(key, now)
            for key, pods in self._state.orphans.items()
            if key in since or self._state.makes_group_of(pods[0])
        }
        return {key for key, at in self._awaited_since.items() if now < at + GROUP_WAIT_S}

    def _report_own(
        self, pod: Pod, text: str, before: Mapping[str, tuple[str, frozenset[str]]]
    ) -> Iterator[PodReport]:
        """The reason of a pod alone."""
        known = text, frozenset((pod.uid,))
        self._reported[pod.uid] = known
        if before.get(pod.uid) != known:
            yield PodReport(pod, text, is_own=True)

    def _report(
        self,
        key: str,
        text: str,
        pods: Mapping[str, Pod],
        known: tuple[str, frozenset[str]] | None,
        texts: Mapping[str, str] = {},
    ) -> Iterator[PodReport]:
        """texts: of pods for which it is worded otherwise."""
        if not pods:
            return
        gist = gist_of(text)
        self._reported[key] = gist, frozenset(pods)
        same = known[1] if known is not None and known[0] == gist else frozenset()
        for uid, pod in pods.items():
            if uid not in same:
                yield PodReport(pod, texts.get(uid, text))

    def _texts_of(self, session: KaiSession, reasons: KaiReasons) -> Iterator[tuple[KaiJob, str]]:
        """Why jobs wait. To look at all nodes for each takes long where many wait: so many of them
        are looked at, in turn, and the others have the text that they had."""
        waiting = [job for job in session.waiting if job.n_pending]
        first = self._next % len(waiting) if len(waiting) > LOOKED_AT_MAX else 0
        self._next = first + LOOKED_AT_MAX
        turn = self._turn = {job.uid for job in (waiting[first:] + waiting[:first])[:LOOKED_AT_MAX]}
        known, named = self._texts, self._named
        looked_at = [job for job in waiting if job.uid in turn or job.uid in known]
        self._texts = {
            job.uid: reasons.message(job) if job.uid in turn else known[job.uid]
            for job in looked_at
        }
        self._named = {
            job.uid: reasons.named(job) if job.uid in turn else named[job.uid] for job in looked_at
        }
        self._leaves_reasons = len(self._texts) < len(waiting)
        for job in waiting:
            yield job, self._texts.get(job.uid, "")


_NEW_STATUSES = KaiStatus.PENDING | KaiStatus.PIPELINED | KaiStatus.BINDING
"""Of pods that the session may have evicted others for."""


def _victim(session: KaiSession, task: KaiTask, action: str) -> ModelVictim:
    """A pod to evict, for the job that its note names, if any."""
    note = session.eviction_notes.get(task.key)
    job = None if note is None else session.jobs.get(note.job)
    if job is None:
        return ModelVictim(task.uid, action, group="" if note is None else note.job)
    waiting = (one.uid for one in job.tasks() if one.status & _NEW_STATUSES)
    return ModelVictim(task.uid, action, group=job.uid, member=next(waiting, ""))
