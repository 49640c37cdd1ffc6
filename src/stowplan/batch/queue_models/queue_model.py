"""QueueModel: decides sessions as another scheduler does, on the cluster that is followed for it.

`ModelDecider` follows the cluster, and hands it to a model for each session: a model has no watch,
no clock and no retries of its own. A new one is a package beside this module with a class of this
protocol, an entry in `assembly/sessions/queue_models.py` and a reader of its configuration in
`config`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from stowplan.batch.job_report import JobReport
from stowplan.framework.deciders.session_decider import (
    NodeAssignment,
    PodGroupReport,
    PodReport,
    QueueStatusReport,
)
from stowplan.framework.metrics import Metrics
from stowplan.framework.snapshot import Snapshot
from stowplan.objects.kai.bind_request import KaiBindRequestSpec
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod

Objects = Mapping[type[Object], Mapping[str, Object]]


class ModelCluster(msgspec.Struct, frozen=True):
    """What a session reads.

    snapshot: nodes with the pods on them, assumed ones too. pods: uid -> pod as the decisions so
    far leave it: with the node that it is being bound to, and a deletion time where it is being
    evicted. changed_pods: uids of pods that were added, changed or deleted since the last session.
    objects: kind -> key -> object, of the kinds that the model reads, PodGroups with the status
    that was last decided. changed_objects: their kinds and keys. nominated: pods of other
    schedulers with the nodes that are kept for them. session: unique name. now: Unix time in
    nanoseconds.
    """

    snapshot: Snapshot
    pods: Mapping[str, Pod]
    changed_pods: Collection[str]
    objects: Objects
    changed_objects: Collection[tuple[type[Object], str]]
    nominated: Sequence[NodeAssignment] = ()
    session: str = ""
    now: int = 0


class ModelVictim(msgspec.Struct, frozen=True):
    """A pod to evict. why: name of the action. preemptor: uid of the pod that gets its resources,
    "" for none in particular. decided_by: tier and plugins that agreed on it, "" if unknown. group:
    that gets its resources, "" for that of the preemptor. member: uid of a pod of it, where there
    is no preemptor."""

    uid: str
    why: str
    preemptor: str = ""
    decided_by: str = ""
    group: str = ""
    member: str = ""


class ModelQueue(msgspec.Struct, frozen=True):
    """A queue in a session, for people. Amounts: resource -> cores, bytes or units.

    deserved, share: None where the model does not divide. capability: its limits. inqueue: what
    admitted jobs may still take. parent: the queue above it, whose amounts and pods have its own;
    "" for none, and where the model has no tree. state: Open, Closed or Closing, "" where queues
    have none. gives_back: what it borrows may be reclaimed from it. owned: what it has without
    borrowing, all of a resource that is not named; None: what it deserves, or its weighted share
    where the model does not divide. fixed: what jobs have of it that may not be preempted.
    """

    name: str
    weight: int
    pods_placed: int
    pods_pending: int
    allocated: dict[str, float]
    pending: dict[str, float]
    deserved: dict[str, float] | None = None
    share: float | None = None
    capability: dict[str, float] = {}
    guarantee: dict[str, float] = {}
    inqueue: dict[str, float] = {}
    parent: str = ""
    state: str = ""
    gives_back: bool = True
    owned: dict[str, float] | None = None
    fixed: dict[str, float] = {}


class ModelMoment(msgspec.Struct, frozen=True):
    """A time from which on more may be evicted for a job. at: Unix seconds. what: which time ends,
    such as the minimum runtime. victim: uid of the job that may then be evicted, "" where the job
    itself may not evict before. action: which evicts it."""

    at: float
    what: str
    victim: str = ""
    action: str = ""


class ModelReport(msgspec.Struct, frozen=True):
    """Jobs and queues of a session. total, idle: amounts of all nodes.

    nodes: node -> why it does not fit the pod that was asked about, as the session leaves it; no
    reasons: it fits. evictions: what evictions would do for that pod's job, and why not. moments:
    from when on evictions may do more for it, the first ones first. left_out: queues that exist and
    are none of `queues` -> why.
    """

    jobs: Sequence[JobReport] = ()
    queues: Sequence[ModelQueue] = ()
    total: dict[str, float] = {}
    idle: dict[str, float] = {}
    nodes: Mapping[str, tuple[str, ...]] = {}
    evictions: tuple[str, ...] = ()
    moments: tuple[ModelMoment, ...] = ()
    left_out: Mapping[str, str] = {}


class ModelDecisions(msgspec.Struct, frozen=True):
    """Decisions of a session.

    binds: uid -> node. gangs: uid -> name of the gang whose pods start all or none. nominations:
    uid -> node kept for a pod until resources are released; the complete list. groups: statuses and
    events of PodGroups to write. pods: why pods have no node. unready: (group, number of missing
    pods) of groups that are not ready. continues, again_in_s: see SessionResult. queues: what pods
    of queues have, where that is not what their status says. requests: by uid, of bound pods that
    KAI's binder binds.
    """

    binds: Mapping[str, str]
    victims: Sequence[ModelVictim] = ()
    nominations: Mapping[str, str] = {}
    gangs: Mapping[str, str] = {}
    groups: Sequence[PodGroupReport] = ()
    pods: Sequence[PodReport] = ()
    unready: Sequence[tuple[str, int]] = ()
    continues: bool = False
    queues: Sequence[QueueStatusReport] = ()
    again_in_s: float | None = None
    requests: Mapping[str, KaiBindRequestSpec] = {}


class QueueModel(Protocol):
    """Decides sessions. It may keep state from one session to the next, as long as that equals what
    it would read from the cluster.
    """

    @property
    def name(self) -> str:
        """Its name: that of the scheduler whose decisions it makes."""

    @property
    def reads(self) -> tuple[type[Object], ...]:
        """Kinds that it reads beside pods and nodes."""

    def decide(self, cluster: ModelCluster, metrics: Metrics) -> ModelDecisions:
        """Run a session. The node table of the snapshot is afterwards as before."""

    def inspect(self, pod: str = "") -> None:
        """Keep a report of each session from now on. pod: uid of one that is asked about."""

    def report(self) -> ModelReport:
        """Jobs and queues as the last session left them; only after `inspect`."""

    def look(self, cluster: ModelCluster) -> ModelReport:
        """Jobs and queues as a session finds them, without deciding."""

    def configure(self, settings: Any) -> None:
        """Use other settings, as the model's reader made them, from the next session on."""
