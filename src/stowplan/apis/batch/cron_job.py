"""CronJob.

Source: kubernetes v1.36, pkg/registry/batch/cronjob, pkg/apis/batch/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.batch.cron_schedule import ScheduleError, load_time_zone, parse_schedule
from stowplan.apis.batch.job import validate_job_spec
from stowplan.apis.core.workload_validation import PodTemplateStrategy
from stowplan.apis.kind.printing import (
    NONE,
    TEMPLATE_COLUMNS,
    PrintedTable,
    containers_of,
    selector_text,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ConcurrencyPolicy = string

JobTemplateSpec
  metadata ObjectMeta -- labels and annotations of the jobs.
  spec JobSpec -- desired state of the jobs.

CronJob -- creates Jobs on a schedule.
  +PartialObjectMetadata
  spec CronJobSpec -- desired state.
  status CronJobStatus -- last observed state.

CronJobSpec
  schedule string! -- five fields of cron, or @daily and the like.
  timeZone string? -- time zone of the schedule, as Europe/Vienna.
  startingDeadlineSeconds int64? -- a start that is later than this is missed.
  concurrencyPolicy ConcurrencyPolicy =Allow -- Allow, Forbid or Replace.
  suspend bool? =false -- no jobs are started while it is true.
  jobTemplate JobTemplateSpec! -- the jobs to start.
  successfulJobsHistoryLimit int32? =3 -- completed jobs to keep.
  failedJobsHistoryLimit int32? =1 -- failed jobs to keep.

CronJobStatus
  active [core.ObjectReference] -- jobs that run.
  lastScheduleTime Time? -- when a job was started last.
  lastSuccessfulTime Time? -- when a job completed last.
"""
_TIME_ZONE_PART = re.compile(r"(?!-)[A-Za-z.\-_0-9+]{1,14}")


class CronJobStrategy(PodTemplateStrategy):
    """Warnings of the pod template are not given."""

    def __init__(self) -> None:
        super().__init__(_validate, status={}, counted=("spec",))

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        return ()


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    name = obj["metadata"].get("name", "")
    if len(name) > 52:
        yield invalid("metadata.name", name, "must be no more than 52 characters")
    yield from _validate_schedule(spec)
    yield from field_checks.not_negative_fields(spec, ("startingDeadlineSeconds",), "spec")
    if "timeZone" in spec:
        yield from _validate_time_zone(spec["timeZone"])
    yield from field_checks.one_of(
        spec["concurrencyPolicy"], ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy"
    )
    yield from _validate_job_template(spec["jobTemplate"]["spec"])
    limits = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    yield from field_checks.not_negative_fields(spec, limits, "spec")


def _validate_job_template(spec: Tree) -> Iterator[Cause]:
    path = "spec.jobTemplate.spec"
    yield from validate_job_spec(spec, path)
    if "selector" in spec:
        yield invalid(f"{path}.selector", spec["selector"], "`selector` will be auto-generated")
    if spec.get("manualSelector"):
        yield not_supported(f"{path}.manualSelector", True, ["nil", "false"])


def _validate_schedule(spec: Tree) -> Iterator[Cause]:
    schedule = spec["schedule"]
    if not schedule:
        yield required("spec.schedule")
        return
    try:
        parse_schedule(schedule)
    except ScheduleError as error:
        yield invalid("spec.schedule", schedule, str(error))
    if "TZ" in schedule:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid("spec.schedule", schedule, text)


def _validate_time_zone(name: str) -> Iterator[Cause]:
    if not name:
        yield invalid("spec.timeZone", name, "timeZone must be nil or non-empty string")
        return
    for part in name.split("/"):
        if part in (".", "..") or _TIME_ZONE_PART.fullmatch(part) is None:
            yield invalid("spec.timeZone", name, f"unknown time zone {name}")
            return
    if name.lower() == "local":
        place = "https://www.iana.org/time-zones"
        text = f"timeZone must be an explicit time zone as defined in {place}"
        yield invalid("spec.timeZone", name, text)
        return
    try:
        load_time_zone(name)
    except ScheduleError as error:
        yield invalid("spec.timeZone", name, str(error))


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    last = status.get("lastScheduleTime")
    job = spec["jobTemplate"]["spec"]
    return [
        "True" if spec.get("suspend") else "False",
        len(status.get("active", ())),
        timestamps.human_age(last, now) if last else NONE,
        *containers_of(job["template"]),
        selector_text(job.get("selector")),
    ]


KIND = KindRegistration(
    group="batch",
    kind="CronJob",
    types=TYPES,
    strategy=CronJobStrategy(),
    status=StatusStrategy(),
    short_names=("cj",),
    categories=("all",),
    table=PrintedTable(
        f"Name, Schedule=spec.schedule, Timezone=spec.timeZone|{NONE}, Suspend:boolean, "
        f"Active:integer, Last Schedule, Age, {TEMPLATE_COLUMNS}, Selector+",
        _cells,
    ),
)
