"""What holds sessions in a machine: configuration, promises, faults of others, what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders, Text, deciders_of
from stowplan.batch import Action, Compat, Policy, Session
from stowplan.batch.decider import BatchDecider
from stowplan.batch.policies.gang import Gang
from stowplan.batch.upkeep import RELEASE, Upkeep
from stowplan.columns.audit import InvariantBroken
from stowplan.framework.metrics import Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.scheduler import Machine
from stowplan.sim.agenda import SECOND
from stowplan.testing import node, pod
from tests.scenarios import gangs


class Yard:
    """A machine of sessions alone, with a node, a queue and a clock."""

    def __init__(self, cpu: str = "2", text: str = "", **more: Any) -> None:
        found = deciders_of([Text(text or gangs.configured(()), "batch.yaml")], **more)
        self.metrics = Metrics(self._stopwatch)
        self.machine: Machine = found.machine(metrics=self.metrics)
        self.now = 0
        self.ticks = 0.0
        self.told(
            happened.NodeAdded(node("n1", cpu=cpu)),
            happened.ObjectAdded(gangs.queue("default", "1", {})),
            happened.Synced(),
        )

    def _stopwatch(self) -> float:
        self.ticks += 0.001
        return self.ticks

    @property
    def decider(self) -> BatchDecider:
        assert self.machine.sessions is not None
        decider = self.machine.sessions.decider
        assert isinstance(decider, BatchDecider)
        return decider

    def told(self, *events: Event) -> list[Effect]:
        """What the machine does a second later."""
        self.now += SECOND
        return self.machine.handle(events, self.now)

    def gang(self, name: str, size: int, cpu: str = "1", **settings: str) -> list[Event]:
        """A gang of pods that all are needed."""
        group = gangs.group(name, "1", {"min": str(size)} | settings)
        return [
            happened.ObjectAdded(group),
            *(happened.PodAdded(member(f"{name}-{i}", name, cpu)) for i in range(size)),
        ]


def member(name: str, group: str, cpu: str = "1", on: str = "") -> Pod:
    made = pod(name, cpu=cpu, on=on, scheduler="kube-batch")
    return replace(made, metadata=replace(made.metadata, annotations=gangs.annotations(group)))


def binds(effects: list[Effect]) -> dict[str, str]:
    return {one.name: one.node for one in effects if isinstance(one, to_do.Bind)}


def reports(effects: list[Effect]) -> list[to_do.Report]:
    return [one for one in effects if isinstance(one, to_do.Report)]


# Promises.


def after_a_victim_has_gone(compat: Compat) -> dict[str, str]:
    """Room is made for a pod of high priority; a job that would get it otherwise comes as well."""
    yard = Yard("2", compat=compat)
    running = [happened.PodAdded(member(f"old-{i}", "old", on="n1")) for i in range(2)]
    yard.told(happened.ObjectAdded(gangs.group("old", "1", {"min": "1"})), *running)
    yard.told(happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"})))
    asked = yard.told(*yard.gang("vip", 1, priority="high"))
    (evicted,) = [one for one in asked if isinstance(one, to_do.Evict)]
    higher = happened.ObjectAdded(gangs.priority("higher", "1", {"value": "99"}))
    gone = happened.PodDeleted(member(evicted.name, "old", on="n1"))
    return binds(yard.told(gone, higher, *yard.gang("late", 1, priority="higher")))


def test_room_that_was_made_for_a_gang_is_kept_for_it() -> None:
    assert after_a_victim_has_gone(Compat()) == {"vip-0": "n1"}
    assert after_a_victim_has_gone(Compat(forgets_promises=True)) == {"late-0": "n1"}


def test_room_that_has_come_free_is_for_whom_it_was_made() -> None:
    """Of two pods that wait for room on two nodes the less important one's comes free first."""
    yard = Yard("1")
    names = [f"n{number}" for number in range(1, 5)]
    old = [happened.PodAdded(member(f"old-{n}", "old", on=n)) for n in names]
    group = happened.ObjectAdded(gangs.group("old", "1", {"min": "1"}))
    nodes = (happened.NodeAdded(node(name, cpu="1")) for name in names[1:])
    yard.told(*nodes, group, *old)
    for name, value in (("high", "9"), ("higher", "99")):
        yard.told(happened.ObjectAdded(gangs.priority(name, "1", {"value": value})))
    yard.told(*yard.gang("first", 1, priority="higher"))
    yard.told(*yard.gang("second", 1, priority="high"))
    assert yard.machine.sessions is not None
    promised = {uid.partition("/")[2]: n for uid, n in yard.machine.sessions.promised.items()}
    assert sorted(promised) == ["first-0", "second-0"]
    free = promised["second-0"]
    gone = happened.PodDeleted(member(f"old-{free}", "old", on=free))
    assert binds(yard.told(gone)) == {"second-0": free}
    assert len(yard.machine.sessions.promised) == 1
    yard.machine.validate()


# Configuration.


def test_a_configuration_for_another_scheduler_is_refused() -> None:
    yard = Yard()
    text = gangs.configured(["schedulerName=other"])
    (refused,) = reports(yard.told(happened.ConfigurationChanged(text, "new.yaml")))
    assert refused.is_fault
    assert "got 'other', wanted 'kube-batch' until a restart" in refused.text
    assert yard.decider.scheduler_name == "kube-batch"


def test_a_new_default_queue_is_where_groups_without_a_queue_are() -> None:
    yard = Yard()
    assert binds(yard.told(*yard.gang("a", 1))) == {"a-0": "n1"}
    text = gangs.configured(["defaultQueue=other"])
    yard.told(happened.ConfigurationChanged(text, "new.yaml"))
    assert binds(yard.told(*yard.gang("b", 1))) == {}
    there = happened.ObjectAdded(gangs.queue("other", "1", {}))
    assert binds(yard.told(there)) == {"b-0": "n1"}
    yard.machine.validate()


def test_a_period_is_what_the_configuration_says() -> None:
    text = gangs.configured(["schedulePeriod=10s", "bindFailures=2", "bindFailurePolicy=Release"])
    yard = Yard(text=text)
    assert yard.decider.plan.upkeep == Upkeep(2, RELEASE)
    assert binds(yard.told(*yard.gang("a", 1))) == {}
    yard.now += 9 * SECOND
    assert binds(yard.told()) == {"a-0": "n1"}


# Faults of others.


class Grumbler(Policy):
    """Breaks off when it sees a job named `bad`."""

    name = "grumbler"

    def on_start(self, session: Session) -> None:
        for job in session.jobs.values():
            if job.uid.endswith("/bad"):
                raise KeyError(job.uid)


class Half(Action):
    """Takes room in a statement, and breaks off."""

    name = "half"

    def run(self, session: Session) -> None:
        for job in session.jobs.values():
            statement = session.statement()
            for task in list(job.tasks.values()):
                statement.allocate(task, 0)
            raise ValueError("half way")


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ('actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: grumbler}]', "bad", "Key"),
        ('actions: "half"\ntiers:\n- plugins: [{name: gang}]', "any", "ValueError: half way"),
    ],
)
def test_a_fault_of_somebody_elses_ends_the_session_and_no_more(
    text: str, name: str, said: str
) -> None:
    yard = Yard(text=text, plugins=(Grumbler, Half))
    (told,) = reports(yard.told(*yard.gang(name, 1)))
    assert told.is_fault
    assert "test_decider.py" in told.text
    assert said in told.text
    yard.machine.validate()
    if name == "bad":
        gone = happened.PodDeleted(member("bad-0", "bad"))
        lost = happened.ObjectDeleted(gangs.group("bad", "1", {}))
        assert binds(yard.told(gone, lost, *yard.gang("good", 1))) == {"good-0": "n1"}


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Gang, session: Session) -> None:
        raise AssertionError("our own")

    monkeypatch.setattr("stowplan.batch.decider.place_outside", lambda fault: "")
    monkeypatch.setattr(Gang, "on_close", fails)
    yard = Yard.__new__(Yard)
    with pytest.raises(AssertionError, match="our own"):
        Yard.__init__(yard)


# What it counts.


def test_metrics_have_the_names_of_the_original() -> None:
    yard = Yard("2")
    yard.told(*yard.gang("fits", 2), *yard.gang("waits", 2))
    found = yard.metrics
    names = {
        name for series in (found.counters, found.levels, found.distributions) for name, _ in series
    }
    assert names == {
        "volcano_e2e_scheduling_latency_milliseconds",
        "volcano_plugin_scheduling_latency_microseconds",
        "volcano_action_scheduling_latency_microseconds",
        "volcano_task_scheduling_latency_microseconds",
        "volcano_schedule_attempts_total",
        "volcano_pod_preemption_victims",
        "volcano_total_preemption_attempts",
        "volcano_unschedule_task_count",
        "volcano_unschedule_job_count",
        "volcano_job_retry_counts",
    }
    assert found.levels["volcano_unschedule_job_count", ()] == 1
    job: Mapping[Any, float] = found.levels
    assert job["volcano_unschedule_task_count", (("job_id", "waits"),)] == 2
    tasks = found.distributions["volcano_task_scheduling_latency_microseconds", ()]
    assert tasks.count == 2
    action = (("action", "allocate"),)
    timed = found.distributions["volcano_action_scheduling_latency_microseconds", action]
    assert timed.total == pytest.approx(1000 * timed.count)
    # A job that is ready is not counted any more.
    yard.told(*(happened.PodDeleted(member(f"fits-{i}", "fits")) for i in range(2)))
    assert found.levels["volcano_unschedule_job_count", ()] == 0
    assert not any(name == "volcano_job_retry_counts" for name, _ in found.counters)


# What it keeps.


def test_what_is_counted_wrongly_is_noticed() -> None:
    yard = Yard()
    yard.told(*yard.gang("a", 1))
    yard.machine.validate()
    job = next(iter(yard.decider.inventory.jobs.values()))
    yard.decider.inventory.nodes.remove(0, next(iter(job.tasks.values())).key)
    with pytest.raises(InvariantBroken, match="sessions: node n1"):
        yard.machine.validate()


def test_pods_that_have_ended_leave_when_nobody_asks_for_them() -> None:
    yard = Yard()
    alone = pod("alone", cpu="1", scheduler="kube-batch")
    assert binds(yard.told(happened.PodAdded(alone))) == {"alone": "n1"}
    done = replace(
        alone,
        spec=replace(alone.spec, node_name="n1"),
        status=replace(alone.status, phase="Succeeded"),
    )
    yard.told(happened.PodUpdated(done))
    yard.told(*yard.gang("next", 1))
    assert [job.uid for job in yard.decider.inventory.jobs.values()] == ["default/next"]
    yard.machine.validate()


def test_without_sessions_a_text_with_profiles_alone_is_refused() -> None:
    yard = Yard()
    profiles = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (refused,) = reports(yard.told(happened.ConfigurationChanged(profiles, "k.yaml")))
    assert "no sessions" in refused.text
    assert isinstance(deciders_of([Text(gangs.configured(()), "b.yaml")]), Deciders)
