"""CronJob.

Source: kubernetes v1.36, pkg/registry/batch/cronjob, pkg/apis/batch/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

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
from stowplan.apis.machinery.strconv import NumError, atoi
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ConcurrencyPolicy = string

JobTemplateSpec
  metadata ObjectMeta
  spec JobSpec

CronJob -- creates Jobs on a schedule.
  +PartialObjectMetadata
  spec CronJobSpec
  status CronJobStatus

CronJobSpec
  schedule string!
  timeZone string?
  startingDeadlineSeconds int64?
  concurrencyPolicy ConcurrencyPolicy =Allow
  suspend bool? =false
  jobTemplate JobTemplateSpec!
  successfulJobsHistoryLimit int32? =3
  failedJobsHistoryLimit int32? =1

CronJobStatus
  active [core.ObjectReference]
  lastScheduleTime Time?
  lastSuccessfulTime Time?
"""
_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_NAMES = re.compile(r"[a-zA-Z]{3}")
_CRON_PART = re.compile(r"(\*|\?|\w+(?:-\w+)?)(?:/(\d+))?")


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
    schedule = spec["schedule"]
    if not schedule:
        yield required("spec.schedule")
    else:
        wrong = _cron_problem(schedule)
        if wrong:
            yield invalid("spec.schedule", schedule, wrong)
        if "TZ" in schedule:
            text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            yield invalid("spec.schedule", schedule, text)
    yield from field_checks.not_negative_fields(spec, ("startingDeadlineSeconds",), "spec")
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
        yield not_supported(f"{path}.manualSelector", True, [])


def _cron_problem(schedule: str) -> str:
    """What is wrong with a schedule; "" if it is valid."""
    if schedule.startswith("@"):
        return ""
    parts = schedule.split()
    if parts and parts[0].startswith(("TZ=", "CRON_TZ=")):
        parts = parts[1:]
    if len(parts) != 5:
        return f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
    for part, (low, high) in zip(parts, _CRON_RANGES, strict=True):
        for one in part.split(","):
            problem = _cron_part_problem(one, low, high)
            if problem:
                return problem
    return ""


def _cron_part_problem(one: str, low: int, high: int) -> str:
    form = _CRON_PART.fullmatch(one)
    if form is None:
        return f'failed to parse int from {one}: strconv.Atoi: parsing "{one}": invalid syntax'
    for word in form[1].split("-"):
        if word in ("*", "?") or _CRON_NAMES.fullmatch(word):
            continue
        try:
            number = atoi(word)
        except NumError as error:
            return f"failed to parse int from {word}: {error}"
        if number < low:
            return f"beginning of range ({word}) below minimum ({low}): {one}"
        if number > high:
            return f"end of range ({word}) above maximum ({high}): {one}"
    return ""


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
