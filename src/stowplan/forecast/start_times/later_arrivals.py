"""Later arrivals: pods that may arrive, like those that have arrived before.

The time from which arrivals are known is cut into blocks. A simulation appends blocks drawn from
it, each with the pods that were created in it: what arrives together stays together, and quiet
times stay quiet. Source: H. Kuensch, The jackknife and the bootstrap for general stationary
observations, Annals of Statistics 17 (1989).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from stowplan.forecast.start_times.run_times import is_service
from stowplan.forecast.start_times.start_replay import ArrivalBlocks, RandomRun
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.pod import Pod, PodStatus

N_BLOCKS = 8
"""Blocks into which the observed time is cut."""


class LaterArrivals:
    """Pods that were created in the `window_s` seconds before `now`. pods: those of Jobs and those
    without owner; pods of PodGroups and of services are left out."""

    def __init__(
        self,
        cluster: Cluster,
        now: datetime.datetime,
        window_s: float,
    ) -> None:
        begins = now - datetime.timedelta(seconds=window_s)
        self.window_s = window_s
        found: list[tuple[float, Pod]] = []
        for pod in cluster.pods:
            created = pod.metadata.creation_timestamp
            if created is None or not begins < created <= now:
                continue
            if is_service(pod) or group_of(pod):
                continue
            found.append(((created - begins).total_seconds(), pod))
        found.sort(key=lambda one: one[0])
        self.times = np.array([at_s for at_s, _ in found])
        self.pods: Sequence[Pod] = [pod for _, pod in found]

    def blocks(self, rng: np.random.Generator, run_of: Callable[[Pod], RandomRun]) -> ArrivalBlocks:
        """The arrivals of one simulation. run_of: draws the run time of a pod."""
        block_s = self.window_s / N_BLOCKS
        n_made = 0

        def next_block() -> tuple[float, list[tuple[float, Pod, RandomRun]]]:
            nonlocal n_made
            start = rng.random() * (self.window_s - block_s)
            first, last = np.searchsorted(self.times, [start, start + block_s])
            made = []
            for place in range(int(first), int(last)):
                n_made += 1
                pod = _another(self.pods[place], n_made)
                made.append((float(self.times[place]) - start, pod, run_of(self.pods[place])))
            return block_s, made

        return next_block


def _another(pod: Pod, number: int) -> Pod:
    """A new pod like one that has arrived."""
    meta = replace(
        pod.metadata,
        name=f"{pod.name}-later-{number}",
        uid=f"{pod.uid}-later-{number}",
        creation_timestamp=None,
        deletion_timestamp=None,
    )
    spec = replace(pod.spec, node_name="") if pod.spec.node_name else pod.spec
    return Pod(meta, spec, PodStatus())
