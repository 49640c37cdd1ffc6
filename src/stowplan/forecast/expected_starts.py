"""Expected starts of pending pods: the results of `eta`."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.forecast.start_times.interval_calibration import IntervalCalibration
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text

SCHEMA = "stowplan.dev/eta/v1"
PENDING, RUNNING, FINISHED = "Pending", "Running", "Finished"


class StartInterval(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When something starts, in seconds from now, over the draws.

    earliest_s, median_s, latest_s: None where it does not start before the horizon in as many
    draws, `latest_s` also where past forecasts set no end to it. median_at: the median as a
    timestamp, absent where nothing shows what the time is. probability: share of the draws in
    which it starts.
    """

    earliest_s: float | None = None
    median_s: float | None = None
    latest_s: float | None = None
    median_at: str = ""
    probability: float = 0.0

    @property
    def is_late(self) -> bool:
        """True if it starts before the horizon in no draw."""
        return not self.probability


class ExpectedStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Expected start of a pod.

    pod: NAMESPACE/NAME. state: Pending, Running or Finished. owner: `job/train`, "" for none.
    pod_group: NAMESPACE/NAME. start: None for a pod that is not pending. run_time: what is assumed
    of its own run time. never: why it cannot start, whatever ends. late: why it does not start
    before the horizon, where it may start later. at: when a pod that is not pending started or
    ended.
    """

    pod: str
    state: str
    owner: str = ""
    pod_group: str = ""
    start: StartInterval | None = None
    run_time: str = ""
    never: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    at: str = ""


class ExpectedJobStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Expected start of the pods of one owner or PodGroup, or of a pod without either.

    name: `podgroup/train`, `job/train` or `pod/web`. pods: all pods that are not finished. pending:
    of them. needed: pods that must have a node for the job to have started: minMember of a
    PodGroup, else 1. start: when as many have one; None if they have. complete: when all pods have
    one. never, late: as those of `ExpectedStart`.
    """

    name: str
    namespace: str
    pods: int
    pending: int
    needed: int
    start: StartInterval | None
    complete: StartInterval | None
    run_time: str = ""
    never: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


class ExpectedStarts(msgspec.Struct, frozen=True, rename="camel"):
    """Expected starts of pods and of their jobs.

    now: the moment from which seconds count, "" where nothing shows what the time is. percentiles:
    of `earliest_s` and `latest_s`. draws: number of simulations. horizon_s: where they end, in
    seconds from now. assumptions: what the forecast takes for granted. calibration: by which
    intervals were widened; None without one.
    """

    api_version: str
    now: str
    percentiles: tuple[int, int]
    draws: int
    horizon_s: float
    seed: int
    jobs: tuple[ExpectedJobStart, ...]
    pods: tuple[ExpectedStart, ...]
    assumptions: tuple[str, ...]
    calibration: IntervalCalibration | None = None

    def __repr__(self) -> str:
        waiting = [pod for pod in self.pods if pod.start is not None]
        n_never = sum(bool(pod.never) for pod in waiting)
        n_late = sum(pod.start is not None and pod.start.is_late for pod in waiting) - n_never
        found = f"{len(waiting)} pending pods, {n_never} of them never start"
        return f"ExpectedStarts({found}, {n_late} not within the horizon)"

    def _repr_html_(self) -> str:
        """For notebooks: a row per job, in seconds from now, and what is assumed."""
        low, high = self.percentiles
        columns = ("Namespace", "Name", "Pending", "Starts in (s)", f"{low} to {high} % (s)")
        rows = (
            (one.namespace, one.name, f"{one.pending}/{one.pods}", *_start_texts(one))
            for one in self.jobs
        )
        return html_summary(
            repr(self), html_table(columns, rows), *map(html_text, self.assumptions)
        )

    def to_frame(self, library: str = "") -> Any:
        """The pods as a DataFrame, one row each, with the fields of their `start`.

        library: `pandas` or `polars`; "" takes the first that is installed. Raises ImportError
        when it is not installed.
        """
        columns: dict[str, list[Any]] = {
            name: [getattr(pod, name) for pod in self.pods]
            for name in ("pod", "state", "owner", "pod_group", "run_time")
        }
        for field in msgspec.structs.fields(StartInterval):
            values = (getattr(pod.start, field.name, None) for pod in self.pods)
            columns[field.name] = list(values)
        columns["never"] = ["; ".join(pod.never) for pod in self.pods]
        columns["late"] = ["; ".join(pod.late) for pod in self.pods]
        return to_dataframe(columns, library)


def _start_texts(job: ExpectedJobStart) -> tuple[str, str]:
    """Median and interval of a job's start, in seconds."""
    if job.never:
        return "never", ""
    if job.start is None:
        return "started", ""
    times = job.start.median_s, job.start.earliest_s, job.start.latest_s
    median, first, last = ("later" if one is None else f"{one:,.0f}" for one in times)
    return median, f"{first} to {last}"
