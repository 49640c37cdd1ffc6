"""A pod in a session of KAI-Scheduler: its status, what it asks for, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag

from stowplan.apis.machinery.strconv import int_or_none
from stowplan.batch.queue_models.kai.state.kai_amount import Amount, KaiCards, ResourceIndex
from stowplan.batch.queue_models.kai.state.numa_zones import NumaRequests, Placement, numa_requests
from stowplan.columns.pods.podinfo import host_ports
from stowplan.objects.devices.device_claim import AllocationResult
from stowplan.objects.kai.bind_request import CARD_LABEL, RECEIVED
from stowplan.objects.kai.kai_kinds import SUB_GROUP_LABEL
from stowplan.objects.pod import Pod


class KaiStatus(IntFlag):
    """Statuses of a pod. PIPELINED waits for resources that are being released; STUCK is being
    released for so long that nothing may wait for it."""

    PENDING = 1
    GATED = 2
    ALLOCATED = 4
    PIPELINED = 8
    BINDING = 16
    BOUND = 32
    RUNNING = 64
    RELEASING = 128
    SUCCEEDED = 256
    FAILED = 512
    UNKNOWN = 1024
    STUCK = 2048


_PLACED = KaiStatus.ALLOCATED | KaiStatus.BINDING | KaiStatus.BOUND | KaiStatus.RUNNING
ALLOCATED_STATUSES = int(_PLACED)
"""Counts as allocated to its queue when the session opens."""
ACTIVE_STATUSES = int(_PLACED | KaiStatus.PIPELINED)
"""Has a place."""
USED_STATUSES = int(_PLACED | KaiStatus.PIPELINED | KaiStatus.RELEASING | KaiStatus.STUCK)
"""Is on a node."""
ALIVE_STATUSES = int(_PLACED | KaiStatus.PIPELINED | KaiStatus.PENDING | KaiStatus.GATED)
"""Runs or may run."""

WHOLE, SHARE, MEMORY_SHARE, MIG = "Regular", "Fraction", "GpuMemory", "MigInstance"
"""Kinds of requests for cards."""

DEFAULT_SUB_GROUP = "default"
"""The pod set of pods that name none."""


class KaiTask:
    """A pod. uid: unique. job: name of its group. sub_group: name of its pod set. request, cards:
    what it asks for; accepted, accepted_cards: what it has on its node. kind: WHOLE, SHARE,
    MEMORY_SHARE or MIG. groups: the shared cards that it is on. is_virtual: the status is of a
    simulation. numa: what it has of the NUMA zones of its node. devices: what its claims have, by
    their name in the pod. Amounts and devices are never changed in place."""

    __slots__ = (
        "_constraints", "_is_plain", "_zone_requests", "accepted", "accepted_cards", "cards",
        "created", "devices", "groups", "is_old_mig", "is_virtual", "job", "key", "kind", "node",
        "numa", "order", "pod", "received", "request", "status", "sub_group", "uid",
    )  # fmt: skip

    def __init__(
        self,
        pod: Pod,
        job: str,
        request: Amount,
        cards: KaiCards,
        kind: str,
        status: int,
    ) -> None:
        meta = pod.metadata
        self.pod = pod
        self.uid = meta.uid
        self.key = f"{meta.namespace}/{meta.name}"
        self.job = job
        self.sub_group = meta.labels.get(SUB_GROUP_LABEL, "") or DEFAULT_SUB_GROUP
        self.request = request
        self.cards = cards
        self.kind = kind
        self.accepted: Amount = [0.0] * len(request)
        self.accepted_cards = KaiCards()
        self.received = meta.annotations.get(RECEIVED, "")
        # A number: operations on flags are slow.
        self.status = int(status)
        self.node = pod.spec.node_name
        self.groups: tuple[str, ...] = card_groups(meta.labels)
        self.numa: Placement = ()
        self.devices: Mapping[str, AllocationResult | None] = {}
        self.is_virtual = False
        self.is_old_mig = False
        created = meta.creation_timestamp
        stamp = created.timestamp() if created else float("-inf")
        self.created = stamp
        self.order = (*_role_order(meta.labels), stamp, self.uid)
        self._constraints: str | None = None
        self._is_plain: bool | None = None
        self._zone_requests: NumaRequests | None = None

    def clone(self) -> KaiTask:
        """A copy with its own status and place."""
        copied = KaiTask.__new__(KaiTask)
        # Written out: this runs for every pod that a simulation touches.
        copied.pod = self.pod
        copied.uid = self.uid
        copied.key = self.key
        copied.job = self.job
        copied.sub_group = self.sub_group
        copied.request = self.request
        copied.cards = self.cards
        copied.kind = self.kind
        copied.accepted = self.accepted
        copied.accepted_cards = self.accepted_cards
        copied.received = self.received
        copied.status = self.status
        copied.node = self.node
        copied.groups = self.groups
        copied.numa = self.numa
        copied.devices = self.devices
        copied.is_virtual = self.is_virtual
        copied.is_old_mig = self.is_old_mig
        copied.created = self.created
        copied.order = self.order
        copied._constraints = self._constraints
        copied._is_plain = self._is_plain
        copied._zone_requests = self._zone_requests
        return copied

    @property
    def constraints(self) -> str:
        """What its placement depends on apart from amounts."""
        if self._constraints is None:
            self._constraints = _constraints(self.pod)
        return self._constraints

    def zone_requests(self, index: ResourceIndex) -> NumaRequests:
        """What it asks of NUMA zones. index: of its amounts."""
        if self._zone_requests is None:
            self._zone_requests = numa_requests(self.pod, index)
        return self._zone_requests

    @property
    def is_plain(self) -> bool:
        """Asks for whole amounts of a node alone: no part of a card, no claims or volumes, no other
        pods or host ports."""
        if self._is_plain is None:
            spec = self.pod.spec
            affinity = spec.affinity
            self._is_plain = (
                self.kind == WHOLE
                and not self.is_old_mig
                and not spec.resource_claims
                and (
                    affinity is None
                    or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None)
                )
                and not self.has_volumes
                and not host_ports(spec)
            )
        return self._is_plain

    @property
    def has_volumes(self) -> bool:
        """Mounts volumes that are claimed."""
        return any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None
            for volume in self.pod.spec.volumes
        )

    @property
    def is_shared(self) -> bool:
        """Asks for a part of a card."""
        return self.kind in (SHARE, MEMORY_SHARE)

    @property
    def has_share(self) -> bool:
        """Has a part of a card."""
        return self.received == SHARE

    @property
    def needs_card(self) -> bool:
        """Asks for anything of a card."""
        cards = self.cards
        return cards.cards > 0 or cards.claimed_cards > 0 or self.kind in (MEMORY_SHARE, MIG)

    @property
    def gpu_devices(self) -> list[tuple[str, str, str]]:
        """Driver, pool and name of the GPUs that its claims have."""
        return [
            (one.driver, one.pool, one.device)
            for allocation in self.devices.values()
            if allocation is not None
            for one in allocation.devices.results
            if is_gpu_class(one.driver)
        ]

    def may_be_placed(self, is_real: bool) -> bool:
        """Waits; in a simulation also what was evicted in it."""
        if self.status == KaiStatus.PENDING:
            return True
        return not is_real and self.status == KaiStatus.RELEASING and self.is_virtual


def is_gpu_class(name: str) -> bool:
    """Whether a device class or driver counts as one of GPUs, by its name as in KAI-Scheduler."""
    return "gpu" in name.lower()


def card_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Ids of the shared cards by a pod's labels."""
    several = tuple(
        value for key, value in sorted(labels.items()) if key.startswith(f"{CARD_LABEL}/")
    )
    one = labels.get(CARD_LABEL, "")
    return several or ((one,) if one else ())


def _role_order(labels: Mapping[str, str]) -> tuple[int, int, int, int]:
    """Masters of Kubeflow and Ray first, then by the priority label, highest first."""
    master = labels.get("training.kubeflow.org/job-role") in ("master", "launcher")
    head = labels.get("ray.io/node-type") == "head"
    text = labels.get("kai.scheduler/task-priority")
    priority = int_or_none(text or "") or 0
    return (not master, not head, text is None, -priority)


def _constraints(pod: Pod) -> str:
    spec = pod.spec
    ports = [
        port.host_port
        for container in (*spec.containers, *spec.init_containers)
        for port in container.ports
    ]
    priority_class = getattr(spec, "priority_class_name", "")
    spread = getattr(spec, "topology_spread_constraints", ())
    parts = (spec.node_selector, spec.affinity, spec.tolerations, priority_class, spread, ports)
    claims = [
        volume.name if volume.ephemeral is not None else volume.persistent_volume_claim
        for volume in spec.volumes
        if volume.ephemeral is not None or volume.persistent_volume_claim is not None
    ]
    return repr((parts, pod.key, claims)) if claims else repr(parts)
