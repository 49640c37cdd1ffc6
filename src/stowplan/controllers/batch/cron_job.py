"""CronJob controller: creates a Job at each due time, and deletes old ones.

Source: kube-controller-manager v1.36, pkg/controller/cronjob/cronjob_controllerv2.go.
"""

from __future__ import annotations

import copy

from stowplan.apis.batch.cron_schedule import (
    CronSchedule,
    ScheduleError,
    format_in_zone,
    format_rfc1123,
    load_time_zone,
    parse_schedule,
)
from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controller_runtime.resource_paths import CRON_JOBS, JOBS
from stowplan.controllers.batch.cron_job_schedule import MISSED_MAX, latest_start, next_sync_at
from stowplan.controllers.workloads.job_sync_state import finished_condition
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, WatchEvent

COMPONENT = "cronjob-controller"
SCHEDULED_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobController(Controller):
    """Creates Jobs of CronJobs on their schedule, and keeps their history short."""

    name = "cronjob"
    path = CRON_JOBS
    observed = (CRON_JOBS, JOBS)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed CronJob, and that of a changed Job."""
        if change.path == CRON_JOBS:
            self.queue.add(split_key(change), self._due_after(change))
        elif change.path == JOBS and b'"CronJob"' in change.value:
            owner = controller_of(self.decoded(change.value) or {"metadata": {}})
            if owner is not None and owner["kind"] == "CronJob":
                self.queue.add((change.namespace, owner["name"]))

    def sync(self, key: Key) -> None:
        """Delete old Jobs, update the list of active ones, and start what is due."""
        cron_job = self.api.get(CRON_JOBS, *key)
        if cron_job is None:
            return
        jobs = self._jobs_of(cron_job)
        before = copy.deepcopy(cron_job.setdefault("status", {}))
        self._delete_old(cron_job, jobs)
        self._note_active(cron_job, jobs)
        problem = self._start_due(key, cron_job)
        if not cron_job["status"].get("active"):
            cron_job["status"].pop("active", None)
        if cron_job["status"] != before:
            self.api.update_status(CRON_JOBS, cron_job)
        if problem is not None:
            raise problem

    def _due_after(self, change: WatchEvent) -> float:
        """When to sync after a change: at once, or when a changed schedule is due next."""
        if change.type != "MODIFIED":
            return 0.0
        new, old = self.decoded(change.value), self.decoded(change.previous)
        if new is None or old is None:
            return 0.0
        if all(new["spec"].get(name) == old["spec"].get(name) for name in ("schedule", "timeZone")):
            return 0.0
        try:
            schedule = _schedule_of(new)
        except ScheduleError:
            return 0.0
        return next_sync_at(new, schedule, self.api.now) or 0.0

    def _jobs_of(self, cron_job: Tree) -> list[Tree]:
        """The Jobs that this CronJob controls, by name."""
        items = sorted(self.index.dependents(cron_job["metadata"]["uid"]))
        found = (self.api.get(*item) for item in items if item[0] == JOBS)
        return [job for job in found if job is not None]

    def _delete_old(self, cron_job: Tree, jobs: list[Tree]) -> None:
        """Delete the oldest finished Jobs beyond the history limits."""
        limits = {"Complete": "successfulJobsHistoryLimit", "Failed": "failedJobsHistoryLimit"}
        for type_, field in limits.items():
            limit = cron_job["spec"].get(field)
            if limit is None:
                continue
            ended = [job for job in jobs if (finished_condition(job) or {}).get("type") == type_]
            ended.sort(key=_start_order)
            for job in ended[: max(0, len(ended) - limit)]:
                self._delete(cron_job, job)

    def _delete(self, cron_job: Tree, job: Tree) -> ApiError | None:
        meta = job["metadata"]
        try:
            self.api.delete(
                JOBS, meta["namespace"], meta["name"], DeleteOptions(propagation="Background")
            )
        except ApiError as error:
            self._record(cron_job, "FailedDelete", f"Deleted job: {error.message}", "Warning")
            return error
        _remove_active(cron_job, meta["uid"])
        self._record(cron_job, "SuccessfulDelete", f"Deleted job {meta['name']}")
        return None

    def _note_active(self, cron_job: Tree, jobs: list[Tree]) -> None:
        """Remove Jobs from `status.active` that have finished or are missing."""
        for job in jobs:
            meta = job["metadata"]
            is_listed = any(each["uid"] == meta["uid"] for each in _active(cron_job))
            end = finished_condition(job)
            if end is None:
                if not is_listed:
                    text = "Saw a job that the controller did not create or forgot: "
                    self._record(cron_job, "UnexpectedJob", text + meta["name"], "Warning")
                continue
            if is_listed:
                _remove_active(cron_job, meta["uid"])
                text = f"Saw completed job: {meta['name']}, condition: {end['type']}"
                self._record(cron_job, "SawCompletedJob", text)
            _note_success(cron_job["status"], job)
        known = {job["metadata"]["uid"] for job in jobs}
        for each in list(_active(cron_job)):
            missing = each["uid"] not in known
            if missing and self.api.get(JOBS, each["namespace"], each["name"]) is None:
                text = f"Active job went missing: {each['name']}"
                self._record(cron_job, "MissingJob", text)
                _remove_active(cron_job, each["uid"])

    def _start_due(self, key: Key, cron_job: Tree) -> ApiError | None:
        """Create the Job that is due, and queue the next start; returns an error to retry."""
        now = self.api.now
        schedule = None if is_deleting(cron_job) else self._read_schedule(cron_job)
        if schedule is None:
            return None
        try:
            start = latest_start(cron_job, schedule, now, is_limited=True)
        except ScheduleError as error:
            text = f"invalid schedule: {cron_job['spec']['schedule']} : {error}"
            self._record(cron_job, "InvalidSchedule", text, "Warning")
            return None
        if start.due is not None:
            if start.missed > MISSED_MAX:
                text = (
                    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds "
                    "or check clock skew"
                )
                self._record(cron_job, "TooManyMissedTimes", text, "Warning")
            if self._may_start(cron_job, start.due):
                problem = self._start(cron_job, start.due)
                if problem is not None:
                    return problem
        following = next_sync_at(cron_job, schedule, now)
        if following is not None:
            self.queue.add(key, following)
        return None

    def _read_schedule(self, cron_job: Tree) -> CronSchedule | None:
        """The schedule; None if the CronJob is suspended, or after an event if it is unreadable."""
        spec = cron_job["spec"]
        zone = spec.get("timeZone", "")
        try:
            load_time_zone(zone)
        except ScheduleError as error:
            text = f'invalid timeZone: "{zone}": {error}'
            self._record(cron_job, "UnknownTimeZone", text, "Warning")
            return None
        if spec.get("suspend"):
            return None
        try:
            return _schedule_of(cron_job)
        except ScheduleError as error:
            text = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            self._record(cron_job, "UnparseableSchedule", text, "Warning")
            return None

    def _may_start(self, cron_job: Tree, due: int) -> bool:
        """False for a start that is too late, was made, or must wait for an active Job."""
        spec, status = cron_job["spec"], cron_job["status"]
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and due + deadline < self.api.now:
            text = f"Missed scheduled time to start a job: {format_rfc1123(due)}"
            self._record(cron_job, "MissSchedule", text, "Warning")
            return False
        name = job_name(cron_job, due)
        if any(each["name"] == name for each in _active(cron_job)):
            return False
        if status.get("lastScheduleTime") == format_time(due):
            return False
        if spec.get("concurrencyPolicy") == "Forbid" and _active(cron_job):
            text = (
                "Not starting job because prior execution is running and concurrency policy is "
                "Forbid"
            )
            self._record(cron_job, "JobAlreadyActive", text)
            return False
        return True

    def _start(self, cron_job: Tree, due: int) -> ApiError | None:
        """Create the Job of one start, after the active ones if it replaces them."""
        if cron_job["spec"].get("concurrencyPolicy") == "Replace":
            for each in list(_active(cron_job)):
                running = self.api.get(JOBS, each["namespace"], each["name"])
                problem = None if running is None else self._delete(cron_job, running)
                if problem is not None:
                    return problem
        wanted = job_from_template(cron_job, due)
        try:
            job = self.api.create(JOBS, wanted)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                text = f"Error creating job: {error.message}"
                self._record(cron_job, "FailedCreate", text, "Warning")
                return error
            found = self.api.get(JOBS, wanted["metadata"]["namespace"], wanted["metadata"]["name"])
            owner = None if found is None else controller_of(found)
            if found is None or owner is None or owner["uid"] != cron_job["metadata"]["uid"]:
                return None
            job = found
        else:
            self._record(cron_job, "SuccessfulCreate", f"Created job {job['metadata']['name']}")
        cron_job["status"].setdefault("active", []).append(_job_reference(job))
        cron_job["status"]["lastScheduleTime"] = format_time(due)
        return None

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(about, COMPONENT, reason, message, type=type_)


def job_name(cron_job: Tree, due: int) -> str:
    """Name of the Job of a start: that of the CronJob and the Unix time in minutes."""
    return f"{cron_job['metadata']['name']}-{due // 60}"


def job_from_template(cron_job: Tree, due: int) -> Tree:
    """The Job to create for a start at `due` (Unix seconds)."""
    template = cron_job["spec"]["jobTemplate"]
    meta = template.get("metadata") or {}
    zone = load_time_zone(cron_job["spec"].get("timeZone", ""))
    annotations = {
        **(meta.get("annotations") or {}),
        SCHEDULED_ANNOTATION: format_in_zone(due, zone),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(cron_job, due),
            "namespace": cron_job["metadata"]["namespace"],
            "labels": dict(meta.get("labels") or {}),
            "annotations": annotations,
            "ownerReferences": [controller_reference(cron_job, "CronJob", "batch/v1")],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


def _schedule_of(cron_job: Tree) -> CronSchedule:
    return parse_schedule(cron_job["spec"]["schedule"], cron_job["spec"].get("timeZone", ""))


def _active(cron_job: Tree) -> list[Tree]:
    found: list[Tree] = cron_job["status"].get("active") or []
    return found


def _remove_active(cron_job: Tree, uid: str) -> None:
    cron_job["status"]["active"] = [each for each in _active(cron_job) if each["uid"] != uid]


def _note_success(status: Tree, job: Tree) -> None:
    """Set `lastSuccessfulTime` to the completion of a Job if that is later."""
    completed = (job.get("status") or {}).get("completionTime")
    if completed and unix_seconds(completed) > unix_seconds(status.get("lastSuccessfulTime")):
        status["lastSuccessfulTime"] = completed


def _start_order(job: Tree) -> tuple[bool, float, str]:
    """By start time and name; Jobs that have not started come last."""
    started = (job.get("status") or {}).get("startTime")
    return not started, unix_seconds(started), job["metadata"]["name"]


def _job_reference(job: Tree) -> Tree:
    meta = job["metadata"]
    return {
        "kind": "Job",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": meta["resourceVersion"],
    }
