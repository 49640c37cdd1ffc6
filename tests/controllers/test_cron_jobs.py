"""CronJobs: due times, concurrency, deadlines, missed starts, history, status and events.

Expected values: kubernetes.io/docs/concepts/workloads/controllers/cron-jobs, and
kube-controller-manager v1.36, pkg/controller/cronjob. The tests begin at 2001-09-09T01:46:40Z.
"""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import ApiError
from tests.apiserver.small_cluster import JOBS, START, SmallCluster, Tree, job

CRON_JOBS = "batch/cronjobs"
FIRST = 16_666_667
"""The minute 01:47:00Z, 20 s after the start."""


def cron_job(run_s: str = "1", schedule: str = "* * * * *", **spec: object) -> Tree:
    notes = {"stowplan.dev/run-seconds": run_s}
    template = {
        "metadata": {"labels": {"of": "c"}, "annotations": {"note": "n"}},
        "spec": job("x", notes, backoffLimit=0)["spec"],
    }
    return {
        "metadata": {"name": "c"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


def jobs(cluster: SmallCluster) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cluster.list(JOBS))


def status(cluster: SmallCluster) -> Tree:
    found: Tree = cluster.the(CRON_JOBS, "c")["status"]
    return found


def active(cluster: SmallCluster) -> list[str]:
    return [each["name"] for each in status(cluster).get("active", ())]


def events(cluster: SmallCluster) -> list[tuple[str, str, str]]:
    found = [each for each in cluster.list("events") if each["involvedObject"]["kind"] == "CronJob"]
    return [(each["type"], each["reason"], each["message"]) for each in found]


def test_a_job_is_created_at_each_due_time() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job())
    cluster.run(19)
    assert jobs(cluster) == []
    cluster.run(2)
    assert jobs(cluster) == [f"c-{FIRST}"]
    made = cluster.the(JOBS, f"c-{FIRST}")
    assert made["metadata"]["labels"] == {"of": "c"}
    assert made["metadata"]["annotations"] == {
        "note": "n",
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2001-09-09T01:47:00Z",
    }
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CronJob", "c", True)
    assert active(cluster) == [f"c-{FIRST}"]
    assert status(cluster)["lastScheduleTime"] == "2001-09-09T01:47:00Z"
    cluster.run(60)
    assert jobs(cluster) == [f"c-{FIRST}", f"c-{FIRST + 1}"]
    completed = cluster.the(JOBS, f"c-{FIRST}")["status"]["completionTime"]
    assert status(cluster)["lastSuccessfulTime"] == completed
    assert ("Normal", "SuccessfulCreate", f"Created job c-{FIRST}") in events(cluster)
    text = f"Saw completed job: c-{FIRST}, condition: Complete"
    assert ("Normal", "SawCompletedJob", text) in events(cluster)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Allow", [f"c-{FIRST + n}" for n in range(3)]),
        ("Forbid", [f"c-{FIRST}"]),
        ("Replace", [f"c-{FIRST + 2}"]),
    ],
)
def test_concurrency_policy(policy: str, expected: list[str]) -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job("forever", concurrencyPolicy=policy))
    cluster.run(150)
    assert jobs(cluster) == active(cluster) == expected
    reasons = {reason for _, reason, _ in events(cluster)}
    assert ("JobAlreadyActive" in reasons) == (policy == "Forbid")
    assert ("SuccessfulDelete" in reasons) == (policy == "Replace")


def test_a_forbidden_start_is_made_up_for_when_the_job_has_ended() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job("70", concurrencyPolicy="Forbid"))
    cluster.run(20 + 60 + 5)
    assert jobs(cluster) == [f"c-{FIRST}"]
    cluster.run(20)
    assert jobs(cluster) == [f"c-{FIRST}", f"c-{FIRST + 1}"]


def test_a_forbidden_start_is_given_up_after_its_deadline() -> None:
    cluster = SmallCluster(2)
    spec = {"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 5}
    cluster.create(CRON_JOBS, cron_job("70", **spec))
    cluster.run(20 + 60 + 25)
    assert jobs(cluster) == [f"c-{FIRST}"]
    cluster.run(40)
    assert jobs(cluster) == [f"c-{FIRST}", f"c-{FIRST + 2}"]


def test_suspend_and_resume_starts_the_last_missed_job_only() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job(suspend=True))
    cluster.run(300)
    assert jobs(cluster) == []
    cluster.change(CRON_JOBS, "c", suspend=False)
    cluster.settle()
    assert jobs(cluster) == [f"c-{FIRST + 4}"]
    assert "TooManyMissedTimes" not in {reason for _, reason, _ in events(cluster)}


def test_more_than_a_hundred_missed_starts_are_reported() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job(suspend=True))
    cluster.run(20 + 100 * 60)
    cluster.change(CRON_JOBS, "c", suspend=False)
    cluster.settle()
    text = (
        "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check "
        "clock skew"
    )
    assert ("Warning", "TooManyMissedTimes", text) in events(cluster)
    assert jobs(cluster) == [f"c-{FIRST + 100}"]


def test_a_deadline_limits_the_missed_starts() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job(suspend=True, startingDeadlineSeconds=200))
    cluster.run(20 + 100 * 60 + 1)
    cluster.change(CRON_JOBS, "c", suspend=False)
    cluster.settle()
    assert "TooManyMissedTimes" not in {reason for _, reason, _ in events(cluster)}
    assert jobs(cluster) == [f"c-{FIRST + 100}"]


def test_history_limits() -> None:
    cluster = SmallCluster(2)
    limits = {"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1}
    cluster.create(CRON_JOBS, cron_job(**limits))
    cluster.run(20 + 5 * 60 - 10)
    assert jobs(cluster) == [f"c-{FIRST + 3}", f"c-{FIRST + 4}"]
    assert ("Normal", "SuccessfulDelete", f"Deleted job c-{FIRST}") in events(cluster)
    cluster = SmallCluster(2)
    failing = cron_job(**limits)
    template = failing["spec"]["jobTemplate"]["spec"]["template"]
    template["metadata"]["annotations"]["stowplan.dev/exit-code"] = "1"
    cluster.create(CRON_JOBS, failing)
    cluster.run(20 + 3 * 60 - 10)
    assert jobs(cluster) == [f"c-{FIRST + 2}"]
    assert "lastSuccessfulTime" not in status(cluster)


def test_a_time_zone() -> None:
    cluster = SmallCluster(0)
    # 01:47 UTC is 03:47 in Zurich in summer.
    cluster.create(CRON_JOBS, cron_job(schedule="47 3 * * *", timeZone="Europe/Zurich"))
    cluster.run(30)
    made = cluster.the(JOBS, f"c-{FIRST}")
    noted = made["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert noted == "2001-09-09T03:47:00+02:00"
    cluster.run(24 * 3600)
    assert jobs(cluster) == [f"c-{FIRST}", f"c-{FIRST + 1440}"]


def test_a_changed_schedule_does_not_make_up_for_times_before() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job(schedule="0 0 1 1 *"))
    cluster.run(600)
    cluster.change(CRON_JOBS, "c", schedule="*/5 * * * *")
    cluster.run(1)
    assert jobs(cluster) == []
    # 01:56:41 now; the next is due at 02:00.
    cluster.run(200)
    assert jobs(cluster) == [f"c-{FIRST + 13}"]


def test_a_schedule_that_is_never_due_is_reported() -> None:
    cluster = SmallCluster(1)
    cluster.create(CRON_JOBS, cron_job(schedule="59 23 31 2 *"))
    cluster.run(60)
    text = (
        "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 "
        "second"
    )
    assert ("Warning", "InvalidSchedule", text) in events(cluster)


def test_a_job_that_is_deleted_leaves_the_list() -> None:
    cluster = SmallCluster(2)
    cluster.create(CRON_JOBS, cron_job("forever", schedule="47 1 * * *"))
    cluster.run(30)
    cluster.delete(JOBS, f"c-{FIRST}", propagation="Background")
    cluster.run(5)
    assert active(cluster) == []
    text = f"Active job went missing: c-{FIRST}"
    assert ("Normal", "MissingJob", text) in events(cluster)


def test_validation() -> None:
    cluster = SmallCluster(1)
    bad = [
        (cron_job(schedule="60 * * * *"), "end of range (60) above maximum (59): 60"),
        (cron_job(timeZone="Mars/One"), "unknown time zone Mars/One"),
        (cron_job(timeZone="../etc"), "unknown time zone ../etc"),
        (cron_job(timeZone=""), "timeZone must be nil or non-empty string"),
        (cron_job(timeZone="local"), "timeZone must be an explicit time zone as defined in"),
    ]
    for tree, text in bad:
        with pytest.raises(ApiError) as refused:
            cluster.create(CRON_JOBS, tree)
        assert text in refused.value.message
    assert START == 1_000_000_000.0
