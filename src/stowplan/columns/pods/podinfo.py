"""What a pod uses on its node, computed once per pod template."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_requests import counted_requests
from stowplan.objects.pod_templates import common_spec_of

WILDCARD_IP = "0.0.0.0"

AMOUNT_MAX = 1 << 62
"""What containers without a request count may be added to it without exceeding int64."""

Port = tuple[str, str, int]


class Footprint(msgspec.Struct, frozen=True, gc=False):
    """A pod's use of a node.

    requested: base units by resource name. nonzero: (milli-CPU, bytes) with the scheduler's
    defaults for containers that request none. ports: (ip, protocol, host port) in use. priority:
    `spec.priority`, 0 where absent: read here for many pods at once, since templates are few.
    is_plain: requested is the sum of the regular containers, none left out, and each above 0 and at
    most AMOUNT_MAX.
    """

    requested: dict[str, int]
    nonzero: tuple[int, int]
    ports: tuple[Port, ...]
    has_affinity: bool
    priority: int
    is_plain: bool = False


class PodInfo(msgspec.Struct, frozen=True, gc=False):
    """A pod on a node with its footprint."""

    pod: Pod
    footprint: Footprint

    @classmethod
    def of(cls, pod: Pod) -> PodInfo:
        """The pod with its footprint; computed once for pods that share a spec object."""
        if reports_resources(pod):
            return cls(pod, _footprint(pod))
        return cls(pod, footprint_of(pod))

    @property
    def uid(self) -> str:
        """The pod's uid."""
        pod = self.pod
        return pod.metadata.uid or pod.key


def footprint_of(pod: Pod) -> Footprint:
    """The footprint of a pod whose status reports no resources."""
    # Neither its node nor the names of its claims affect it.
    known: Footprint | None = pod.spec.__dict__.get("footprint")
    if known is not None:
        return known
    shared = common_spec_of(pod.spec).__dict__
    kept: Footprint | None = shared.get("footprint")
    if kept is None:
        kept = shared["footprint"] = _footprint(pod)
    return kept


def is_same_to_rules(before: Pod, after: Pod) -> bool:
    """True for two versions of a pod that are equal in all that columns, or plugins that look at
    pods on nodes, read: spec without the node's name, labels, start and end."""
    old, new = before.metadata, after.metadata
    # Counted by kind, and a kind has its labels in one order.
    if old.labels is not new.labels and list(old.labels.items()) != list(new.labels.items()):
        return False
    if old.deletion_timestamp != new.deletion_timestamp:
        return False
    if old.namespace != new.namespace or before.status.start_time != after.status.start_time:
        return False
    wishes, node_name = before.spec, after.spec.node_name
    if wishes.node_name != node_name:
        wishes = replace(wishes, node_name=node_name)
    if wishes != after.spec:
        return False
    return not (reports_resources(before) or reports_resources(after))


def reports_resources(pod: Pod) -> bool:
    """True when the status affects the requests (in-place resize), so that the spec is not
    enough."""
    status = pod.status
    if status.resources or status.allocated_resources:
        return True
    # Loops, because this is called for every version of every pod.
    for container in status.container_statuses:
        if container.resources or container.allocated_resources:
            return True
    for container in status.init_container_statuses:
        if container.resources or container.allocated_resources:
            return True
    return False


def host_ports(spec: PodSpec) -> tuple[Port, ...]:
    """(ip, protocol, port) of every host port, sidecars first.

    An absent IP is 0.0.0.0 and an absent protocol TCP. Source: kube-scheduler v1.36,
    plugins/nodeports and framework/types HostPortInfo.
    """
    running = spec.containers
    if spec.init_containers:
        running = (*(c for c in spec.init_containers if c.is_sidecar), *running)
    # A loop, because this is called for every template.
    for container in running:
        if container.ports:
            break
    else:
        return ()
    return tuple(
        (p.host_ip or WILDCARD_IP, p.protocol or "TCP", p.host_port)
        for c in running
        for p in c.ports
        if p.host_port > 0
    )


def _footprint(pod: Pod) -> Footprint:
    spec = pod.spec
    affinity = spec.affinity
    requested, nonzero, is_plain = counted_requests(pod)
    if is_plain:
        for amount in requested.values():
            is_plain &= 0 < amount <= AMOUNT_MAX
    return Footprint(
        requested=requested,
        nonzero=nonzero,
        ports=host_ports(spec),
        has_affinity=bool(affinity and (affinity.pod_affinity or affinity.pod_anti_affinity)),
        priority=spec.priority or 0,
        is_plain=is_plain,
    )
