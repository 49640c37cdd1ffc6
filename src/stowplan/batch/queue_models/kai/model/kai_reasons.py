"""Why jobs of a session of KAI-Scheduler wait, one gate at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from stowplan.batch.queue_models.kai.actions.reclaim_rules import may_reclaim
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.model import node_refusals
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS, CPU, MEMORY
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_queue import RANGE, Shares
from stowplan.batch.queue_models.kai.state.kai_task import (
    ALLOCATED_STATUSES,
    MEMORY_SHARE,
    SHARE,
    KaiStatus,
    KaiTask,
)
from stowplan.batch.queue_models.kai.state.pod_sets import KaiPodSet, Member

RESOURCE_NAMES = ("cpu", "memory", "nvidia.com/gpu")
"""Resources of queues, as people know them."""
QUEUE_NOT_FOUND, GROUP_NOT_FOUND = "QueueNotFound", "PodGroupNotFound"
QUEUE_NOT_LEAF, SUB_GROUP_NOT_FOUND = "QueueNotLeaf", "SubGroupNotFound"
OVER_LIMIT, OVER_QUOTA = "OverLimit", "NonPreemptibleOverQuota"
NOT_ENOUGH_PODS, ROOM_BEING_FREED = "NotEnoughPods", "RoomBeingFreed"
DOES_NOT_FIT, CLAIM_NOT_READY = "Unschedulable", "ResourceClaimNotReady"
NOT_READY = "node(s) not ready or unschedulable"
NOT_MATCHING = "node(s) didn't match node selector, affinity or taints"
OVER_BOUNDS = "node(s) would bring a queue above its limit or quota"
NOT_ALIGNED = "node(s) cannot NUMA-align the pod's resources under their Topology Manager policy"
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
NO_CARDS = (
    "node(s) cannot give parts of 0 cards, as the annotation gpu-fraction-num-devices asks for"
)
KINDS_MAX = 16
"""Kinds of pods of a job that are looked at for its reason."""
MIB = 2**20
_NO_RECLAIM = "no reclaim"
_NUMBERS = re.compile(r"\d+")
_PLACED = ALLOCATED_STATUSES | int(KaiStatus.SUCCEEDED)


class KaiReasons:
    """Reasons of the jobs of a session, as it leaves them; each is found once."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._known: dict[str, tuple[str, str]] = {}
        self._named: dict[str, str] = {}
        self._by_class: dict[tuple[object, ...], tuple[Counter[str], int]] = {}

    def of(self, job: KaiJob) -> tuple[str, str]:
        """A reason in one word, and in a sentence; "" for a job that has all its pods placed."""
        if job.uid not in self._known:
            self._known[job.uid] = self._find(job)
        return self._known[job.uid]

    def message(self, job: KaiJob) -> str:
        """The sentence."""
        return self.of(job)[1]

    def named(self, job: KaiJob) -> str:
        """The key of the pod that the sentence names, "" for none."""
        reason, text = self.of(job)
        if reason == CLAIM_NOT_READY:
            return text.partition(": ")[0].removeprefix("pod ")
        return self._named.get(job.uid, "")

    def no_group(self, key: str) -> str:
        """For pods whose group does not exist. key: NAMESPACE/NAME."""
        namespace, _, name = key.partition("/")
        return f'podgroups.scheduling.run.ai "{name}" not found in namespace "{namespace}"'

    def minimum(self, job: KaiJob) -> int:
        """Pods that a job needs: of its smallest sub-groups where it does not need all."""
        return _least(job.root)

    def missing(self, job: KaiJob) -> int:
        """Pods that a job lacks to start."""
        return self.minimum(job) - len(placed(job))

    def _find(self, job: KaiJob) -> tuple[str, str]:
        session, pending = self._session, job.pending()
        if job.queue not in session.queues.queues:
            text = session.queues.left_out.get(job.queue) or f'queues "{job.queue}" not found'
            return (QUEUE_NOT_FOUND, text) if pending else ("", "")
        if pending and session.queues.queues[job.queue].children:
            return QUEUE_NOT_LEAF, f"queue {job.queue} has queues below it, and starts no jobs"
        waiting = [task for task in job.tasks() if task.status == KaiStatus.PIPELINED]
        if waiting:
            count = f"{len(waiting)} of its pods wait"
            return ROOM_BEING_FREED, f"{count} for other pods to terminate"
        if not pending:
            return "", ""
        if not job.is_ready:
            gated = sum(task.status == KaiStatus.GATED for task in job.tasks())
            pods = f"{len(placed(job))} placed, {len(pending)} waiting, {gated} gated"
            return NOT_ENOUGH_PODS, f"minMember {self.minimum(job)} not reached: {pods}"
        return self._gate(job) or self._claims(job, pending) or self._no_room(job, pending)

    def _gate(self, job: KaiJob) -> tuple[str, str] | None:
        wanted = self._session.wanted(job)
        for queue in self._session.queues.up(job.queue):
            for i in RANGE:
                bound, used = queue.limit[i], queue.allocated[i]
                if bound != UNLIMITED and wanted[i] and bound < used + wanted[i]:
                    return OVER_LIMIT, _above("limit", queue.name, i, bound, used, wanted)
                bound, used = queue.quota[i], queue.fixed[i]
                if job.is_preemptible or bound == UNLIMITED or not wanted[i]:
                    continue
                if bound < used + wanted[i]:
                    text = _above("quota", queue.name, i, bound, used, wanted)
                    return OVER_QUOTA, f"not preemptible, {text}"
        return None

    def _claims(self, job: KaiJob, pending: Sequence[KaiTask]) -> tuple[str, str] | None:
        for task in pending:
            text = self._session.claim_problem(task)
            if text:
                return CLAIM_NOT_READY, f"pod {task.key}: {text}"
        return None

    def _no_room(self, job: KaiJob, pending: Sequence[KaiTask]) -> tuple[str, str]:
        session = self._session
        # What comes next may be kept from a simulation, with pods that are evicted since.
        following = [one for one in job.next_tasks(False) if one.status == KaiStatus.PENDING]
        task, counts, fitting = self._first_without_room(following or pending[:1])
        self._named[job.uid] = task.key
        text = f"{fitting}/{len(session.nodes)} nodes fit pod {task.key}"
        if counts:
            found = sorted(counts.items())
            text += ": " + ", ".join(f"{number} {reason}" for reason, number in found)
        at_once = self.missing(job)
        # Each of them may fit alone.
        together = (f"its group needs {at_once} pods at once",) if fitting and at_once > 1 else ()
        notes = (*together, *self._domains(job), *self.evictions(job))
        return DOES_NOT_FIT, "; ".join((text, *notes))

    def _first_without_room(self, tasks: Sequence[KaiTask]) -> tuple[KaiTask, Counter[str], int]:
        """The first of some pods that fits nowhere, or the first one, with its counts. Of many
        kinds of pods not all are looked at."""
        kinds: dict[tuple[int, str], KaiTask] = {}
        for task in tasks:
            kinds.setdefault((id(task.request), task.constraints), task)
        found = None
        for task in islice(kinds.values(), KINDS_MAX):
            counted = task, *self._counts(task)
            if counted[2] == 0:
                return counted
            found = found or counted
        assert found is not None, "there is a pod"
        return found

    def _domains(self, job: KaiJob) -> Iterator[str]:
        """What is wrong with the topology constraints of a job, and which domains it needs."""
        session = self._session
        if "topology" not in session.options.plugins or not job.has_topology:
            return
        found = {
            text
            for constraint in job.root.constraints()
            if (text := session.topology.demand_of(constraint))
        }
        yield from sorted(found)

    def _counts(self, task: KaiTask) -> tuple[Counter[str], int]:
        """Reason -> nodes that do not fit a pod for it; and how many fit it."""
        session = self._session
        if _asks_for_no_card(task):
            return Counter({NO_CARDS: len(session.nodes)}), 0
        # Where the columns tell all, pods of one queue that ask for the same have the same answer.
        if not session.is_known_by_row(task):
            of_nodes = [self.of_node(task, node) for node in session.nodes.values()]
            return Counter(one for own in of_nodes for one in own), sum(not own for own in of_nodes)
        job = session.jobs[task.job]
        key = job.queue, job.is_preemptible, tuple(task.request), task.constraints
        if key not in self._by_class:
            self._by_class[key] = self._count_rows(task, job)
        return self._by_class[key]

    def _count_rows(self, task: KaiTask, job: KaiJob) -> tuple[Counter[str], int]:
        """The same by columns; the reasons are those of `of_node`."""
        session, rows = self._session, self._session.rows
        counts: Counter[str] = Counter()
        left = ~session.fitting_rows(task)
        fitting = len(rows.nodes) - int(left.sum())
        by_rules = rows.by_rules(
            task, lambda one, node: session.rules.fits_node(session, one, node)
        )
        for text, holds in ((NOT_READY, ~rows.is_ready), (NOT_MATCHING, ~by_rules)):
            counts[text] += int((left & holds).sum())
            left &= ~holds
        shares = task.request[CPU], task.request[MEMORY], float(task.cards.count)
        if session.queues.is_over(job.queue, shares, job.is_preemptible):
            counts[OVER_BOUNDS] += int(left.sum())
            return +counts, fitting
        is_short = np.zeros(len(left), dtype=np.bool_)
        for i, name in enumerate(session.index.names):
            lacks = left & (rows.later[i] < task.request[i])
            counts[_insufficient(i, name)] += int(lacks.sum())
            is_short |= lacks
        for row in np.flatnonzero(left & ~is_short):
            counts[node_refusals.refusal(session, task, rows.nodes[row])] += 1
        return +counts, fitting

    def evictions(self, job: KaiJob) -> tuple[str, ...]:
        """Why reclaim takes nothing from other queues for a job; nothing where it may."""
        session = self._session
        if "reclaim" not in session.options.actions or may_reclaim(session, job):
            return ()
        queue, wanted = session.queues.queues[job.queue], session.wanted(job)
        for i in RANGE:
            fair, used = queue.fair[i], queue.allocated[i]
            if fair != UNLIMITED and used + wanted[i] > fair:
                above = _above("fair share", queue.name, i, fair, used, wanted)
                return (f"{_NO_RECLAIM}: {above}",)
        return (f"{_NO_RECLAIM}: not preemptible, and queue {queue.name} above its quota",)

    def of_node(self, task: KaiTask, node: KaiNode) -> tuple[str, ...]:
        """Why a node does not fit a pod; nothing where it fits, now or once released."""
        session = self._session
        if _asks_for_no_card(task):
            return (NO_CARDS,)
        if problem := session.claim_problem(task):
            return (problem,)
        if session.fits(task, node):
            return ()
        if not node.is_ready:
            return (NOT_READY,)
        if not session.rules.fits_node(session, task, node):
            return (NOT_MATCHING,)
        job = session.jobs[task.job]
        if session.queues.is_over(job.queue, node.quota_of(task), job.is_preemptible):
            return (OVER_BOUNDS,)
        if (refusal := self._refusal(task, node)) != "":
            return (refusal,)
        short = self._short_of(task, node)
        if not short and not session.is_admitted(task, node):
            return (NOT_ALIGNED,)
        return short or (node_refusals.refusal(session, task, node),)

    def _short_of(self, task: KaiTask, node: KaiNode) -> tuple[str, ...]:
        """What a node has too little of for a pod."""
        free = [a + b for a, b in zip(node.idle, node.releasing, strict=True)]
        short = [
            _insufficient(i, name)
            for i, name in enumerate(node.index.names)
            if task.request[i] > free[i]
        ]
        if task.is_shared:
            of_cards = _insufficient(CARDS, "")
            short = [one for one in short if one != of_cards]
            if why := node_refusals.card_refusal(task, node):
                short.append(why)
            elif node_refusals.lacks_cards(task, node):
                short.append(of_cards)
        return tuple(short)

    def _refusal(self, task: KaiTask, node: KaiNode) -> str:
        """Why its volumes or host ports keep a pod from a node."""
        if task.has_volumes and (why := self._session.volumes.refusal(task, node)):
            return why
        return "" if node.has_ports_for(task) else NO_PORTS


def gist_of(text: str) -> str:
    """What of a reason is news when it changes: not the numbers of nodes, nor what reclaim may
    take, which change with every pod."""
    counts, *notes = text.split("; ")
    kept = (note for note in notes if not note.startswith(_NO_RECLAIM))
    return "; ".join((_NUMBERS.sub("", counts), *kept))


def outside_text(job: str, sub_group: str) -> str:
    """Why a pod belongs to no sub-group of its job, in KAI's words. job: NAMESPACE/NAME."""
    return f'Pod references subgroup "{sub_group}", which does not exist in PodGroup {job}'


def _asks_for_no_card(task: KaiTask) -> bool:
    """Whether a pod asks for parts of 0 cards, which no node gives, though nothing is lacking."""
    return task.kind in (SHARE, MEMORY_SHARE) and task.cards.count == 0


def _insufficient(i: int, name: str) -> str:
    return f"Insufficient {RESOURCE_NAMES[i] if i < len(RESOURCE_NAMES) else name}"


def _least(member: Member) -> int:
    if isinstance(member, KaiPodSet):
        return member.minimum
    return sum(sorted(_least(one) for one in member.members)[: member.needed])


def text_for(task: KaiTask, text: str, named: KaiTask | None) -> str:
    """The sentence about a job for one of its pods. named: the pod that it names, None for none.

    It holds of pods that ask for the same, and has no name there, so that tables count them as
    one; any other pod waits for the one that is named."""
    if named is None:
        return text
    if named.key == task.key or _asks_for(task) == _asks_for(named):
        return text.replace(f"pod {named.key}", "this pod", 1)
    return f"waits for another pod of its group: {text}"


def _asks_for(task: KaiTask) -> tuple[object, ...]:
    cards = task.cards
    of_cards = task.kind, cards.count, cards.portion, cards.memory
    return task.request, task.constraints, task.pod.spec.resource_claims, *of_cards


def placed(job: KaiJob) -> list[KaiTask]:
    """Pods with a node that they do not wait for, and those that have succeeded."""
    return [task for task in job.tasks() if task.status & _PLACED]


def plain_amount(i: int, amount: float) -> float:
    """An amount of a queue in cores, bytes or cards."""
    return round(amount / 1000, 3) if i == CPU else round(amount, 3)


def _above(what: str, queue: str, i: int, bound: float, used: float, wanted: Shares) -> str:
    """`queue q's limit nvidia.com/gpu 4, 3 in use, 2 asked`."""
    figures = (_text(i, one) for one in (bound, used, wanted[i]))
    most, now, more = figures
    return f"queue {queue}'s {what} {RESOURCE_NAMES[i]} {most}, {now} in use, {more} asked"


def _text(i: int, amount: float) -> str:
    if i == MEMORY:
        return f"{amount / MIB:.0f}Mi"
    return f"{plain_amount(i, amount):g}"
