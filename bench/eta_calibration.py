"""How often the intervals of `stowplan eta` hold: OpenB under pressure, asked again and again.

    python bench/eta_calibration.py FOLDER [--node-count 8] [--pods 600] [--speedup 50]
        [--arrivals SECONDS] [--share 1.0]

FOLDER has the trace's files. What happens is a replay of the first pods, which arrive faster than
in the trace, on few nodes. At moments of it the cluster is taken as a dump would show it: running
pods with their start, finished pods with start and end, pending pods; not the run times of pods
that have not ended. Pods with equal requests count as pods of one owner. Every pending pod is
forecast, and compared with a replay to which nothing arrives any more, and with when the replay
bound it: the latter forecast is made with `--arrivals`, as in so many seconds before, and is also
widened as by `eta --calibrate`, by the moments before with what was known by then of their pods.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from stowplan import eta, read_cluster
from stowplan.forecast.expected_starts import ExpectedStart
from stowplan.forecast.start_times.interval_calibration import (
    IntervalCalibration,
    PastForecast,
    calibration_of,
    widened,
)
from stowplan.forecast.start_times.run_times import declared_s
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.cluster_resize import resized
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import (
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    Pod,
    PodStatus,
)
from stowplan.simulation.replay import PodHistory, Replay, ReplayOptions
from stowplan.simulation.scheduler_configuration import counting_cards, read_deciders

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def loaded(folder: Path, n_nodes: int, n_pods: int, speedup: float) -> Cluster:
    """The first pods of the trace, each with an owner by its requests, on a few GPU nodes; they
    arrive faster by a factor."""
    files = [folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"]
    cluster = resized(read_cluster(files), n_nodes)
    owners: dict[int, str] = {}
    pods = []
    for pod in cluster.pending()[:n_pods]:
        name = owners.setdefault(id(pod.spec), f"shape-{len(owners)}")
        owner = OwnerReference("batch/v1", "Job", name, name, controller=True)
        created = pod.metadata.creation_timestamp
        assert created is not None
        at = EPOCH + (created - EPOCH) / speedup
        meta = replace(pod.metadata, owner_references=(owner,), creation_timestamp=at)
        pods.append(replace(pod, metadata=meta))
    return replace(cluster, pods=pods)


def replayed(cluster: Cluster) -> dict[str, PodHistory]:
    """What happens, by pod."""
    deciders = counting_cards(read_deciders(None), cluster)
    run = Replay(cluster, deciders.scheduler(rng=np.random.default_rng(0)), ReplayOptions())
    run.run(lambda now: None, 10**30)
    return run.pod_histories


def as_dumped(
    cluster: Cluster, histories: dict[str, PodHistory], at_s: float, *, with_run_times: bool
) -> Cluster:
    """The cluster as a dump shows it at a moment of the replay."""
    pods = [
        one
        for pod in cluster.pods
        if (one := _at(pod, histories[pod.key], at_s, with_run_times=with_run_times)) is not None
    ]
    return replace(cluster, pods=pods)


def _at(pod: Pod, history: PodHistory, at_s: float, *, with_run_times: bool) -> Pod | None:
    if history.arrived / SECOND > at_s:
        return None
    meta = pod.metadata
    if not with_run_times:
        # What it asks of GPU cards is in annotations, too.
        notes = {key: text for key, text in meta.annotations.items() if key != RUN_ANNOTATION}
        meta = replace(meta, annotations=notes)
    if history.started is None or history.started / SECOND > at_s:
        return replace(pod, metadata=meta, status=PodStatus(phase="Pending"))
    spec = replace(pod.spec, node_name=history.node)
    started = moment(history.started)
    if history.ended is None or history.ended / SECOND > at_s:
        return replace(
            pod, metadata=meta, spec=spec, status=PodStatus(phase="Running", start_time=started)
        )
    ended = ContainerState(terminated=ContainerTerminated(moment(history.ended)))
    status = PodStatus(
        phase="Succeeded",
        start_time=started,
        container_statuses=(ContainerStatus("main", state=ended),),
    )
    return replace(pod, metadata=meta, spec=spec, status=status)


def moment(nanoseconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=nanoseconds // 1000)


class Tally:
    """How often intervals held, and how far the medians were off."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.n_held = self.n_early = self.n_after = 0
        self.n_never = self.n_never_started = self.n_open = 0
        self.errors: list[float] = []

    def add(
        self, pod: ExpectedStart, actual: float, calibration: IntervalCalibration | None = None
    ) -> None:
        """Compare the forecast of a pod with its start, in seconds; infinity for none."""
        start = pod.start
        assert start is not None
        if pod.never:
            self.n_never += 1
            self.n_never_started += math.isfinite(actual)
            return
        low, median, high = (
            math.inf if mark is None else mark
            for mark in (start.earliest_s, start.median_s, start.latest_s)
        )
        low, high = widened(calibration, low, high)
        self.n_open += math.isinf(high)
        # A second for what latencies and whole seconds round away.
        self.n_early += actual < low - 1
        self.n_after += actual > high + 1
        self.n_held += low - 1 <= actual <= high + 1
        if math.isfinite(median) and math.isfinite(actual):
            self.errors.append(abs(median - actual))

    def line(self) -> str:
        n_all = self.n_held + self.n_early + self.n_after
        if not n_all:
            return f"{self.title}: no pending pods"
        shares = [100 * n / n_all for n in (self.n_held, self.n_early, self.n_after)]
        off = np.median(self.errors) / 60 if self.errors else math.nan
        return (
            f"{self.title}: {n_all} forecasts, {shares[0]:.0f} % held, {shares[1]:.0f} % started "
            f"before and {shares[2]:.0f} % after the interval; the median is off by {off:.0f} min "
            f"in half of them; {self.n_open} intervals were open at the horizon; {self.n_never} "
            f"more were to start never, and {self.n_never_started} of them did"
        )


def known_by(
    now_s: float,
    former: list[tuple[float, tuple[ExpectedStart, ...]]],
    histories: dict[str, PodHistory],
) -> list[list[PastForecast]]:
    """Forecasts at former moments, compared with what had followed by now."""
    found = []
    for at_s, pods in former:
        compared = []
        for pod in pods:
            if pod.start is None or pod.never:
                continue
            ends = (
                math.inf if s is None else s for s in (pod.start.earliest_s, pod.start.latest_s)
            )
            started = histories[pod.pod].started
            has_started = started is not None and started / SECOND <= now_s
            until_s = started / SECOND if has_started and started is not None else now_s
            compared.append(PastForecast(*ends, until_s - at_s, has_started))
        found.append(compared)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--node-count", type=int, default=4)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--speedup", type=float, default=50.0)
    parser.add_argument("--moments", type=int, default=8)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--arrivals", type=float, default=0.0, help="seconds; 0: none")
    parser.add_argument("--horizon", type=float, default=None, help="seconds, with --arrivals")
    parser.add_argument("--share", type=float, default=1.0, help="of the arrivals, for moments")
    given = parser.parse_args()
    began = time.process_time()
    cluster = loaded(given.folder, given.node_count, given.pods, given.speedup)
    assert all(declared_s(pod) is not None for pod in cluster.pods)
    histories = replayed(cluster)
    # The few nodes lack some models of GPU cards: pods that ask for these never start.
    startable = [pod for pod in cluster.pods if histories[pod.key].bound is not None]
    print(f"{len(cluster.pods) - len(startable)} pods never start: left out", file=sys.stderr)
    cluster = replace(cluster, pods=startable)
    histories = replayed(cluster)
    arrivals = sorted(history.arrived for history in histories.values())
    with_later, alone = Tally("what happened"), Tally("nothing arrives any more")
    calibrated, raw = Tally("what happened, calibrated"), Tally("the same moments, as they are")
    former: list[tuple[float, tuple[ExpectedStart, ...]]] = []
    for number in range(1, given.moments + 1):
        # Spread over the arrivals: the trace has most of them in its last weeks.
        place = int(len(arrivals) * given.share * number) // (given.moments + 1)
        at_s = arrivals[place] / SECOND
        now = moment(round(at_s * SECOND))
        dumped = as_dumped(cluster, histories, at_s, with_run_times=False)
        found = eta(dumped, now=now, draws=given.draws)
        known = eta(as_dumped(cluster, histories, at_s, with_run_times=True), now=now)
        truth = {pod.pod: pod.start for pod in known.pods}
        for pod in found.pods:
            without = truth[pod.pod]
            median = None if without is None else without.median_s
            alone.add(pod, math.inf if median is None else median)
        if given.arrivals:
            found = eta(
                dumped,
                now=now,
                draws=given.draws,
                arrivals_s=given.arrivals,
                horizon_s=given.horizon,
            )
        for pod in found.pods:
            bound = histories[pod.pod].bound
            with_later.add(pod, math.inf if bound is None else bound / SECOND - at_s)
        calibration = calibration_of(known_by(at_s, former, histories), (10, 90))
        former.append((at_s, found.pods))
        for pod in found.pods if calibration is not None else ():
            bound = histories[pod.pod].bound
            actual = math.inf if bound is None else bound / SECOND - at_s
            calibrated.add(pod, actual, calibration)
            raw.add(pod, actual)
        print(f"{now:%Y-%m-%d %H:%M} {found!r}", file=sys.stderr, flush=True)
    for tally in (alone, with_later, raw, calibrated):
        print(tally.line())
    print(f"{time.process_time() - began:.0f} s of CPU", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
