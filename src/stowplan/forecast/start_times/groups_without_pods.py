"""PodGroups of controllers that make pods once a session admits the group: Volcano Jobs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import pod_group_of
from stowplan.objects.meta import OwnerReference
from stowplan.objects.podgroup import PodGroup
from stowplan.simulation.session_runner import SessionRunner


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group without pods. job: its controller, as `job/train`. group: its key. reason: why it
    waits."""

    namespace: str
    job: str
    group: str
    reason: str

    @property
    def text(self) -> str:
        """One sentence."""
        return f"{self.job} in {self.namespace} has no pods yet: {self.reason}"


def waiting_groups(
    cluster: Cluster, deciders: Deciders, now: datetime.datetime | None = None
) -> list[WaitingGroup]:
    """The groups without pods that a session keeps waiting, in order. now: of the session. Raises
    InputError, ConfigError and ContractError."""
    groups = list(_without_pods(cluster))
    if not groups or deciders.batch is None:
        return []
    jobs = SessionRunner(cluster, deciders, now=now).run_session().jobs
    reasons = {one.uid: one.message or one.reason for one in jobs if one.reason}
    return [
        WaitingGroup(
            group.metadata.namespace,
            f"{owner.kind.lower()}/{owner.name}",
            group.key,
            reasons[group.key],
        )
        for group, owner in groups
        if group.key in reasons
    ]


def _without_pods(cluster: Cluster) -> Iterator[tuple[PodGroup, OwnerReference]]:
    """With their controllers, which make the pods; other groups need not get any."""
    used = {pod_group_of(pod) for pod in cluster.pods}
    for one in cluster.objects:
        if isinstance(one, PodGroup) and one.key not in used:
            controllers = [owner for owner in one.metadata.owner_references if owner.controller]
            if controllers:
                yield one, controllers[0]
