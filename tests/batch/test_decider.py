"""What holds sessions in a machine: configuration, promises, faults of others, what it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.batch import Compat, Session, SessionAction, SessionPlugin
from stowplan.batch.decider import BatchDecider, custom_modules, place_outside
from stowplan.batch.session_plugins.gang import GangPlugin
from stowplan.batch.state.session_state import TaskEventHandlers
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import ContractError
from stowplan.framework.metrics import Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import NodeCondition
from stowplan.objects.pod import Pod, PodSchedulingGate
from stowplan.scheduler import Scheduler
from stowplan.testing import node, pod
from tests.scenarios import gangs


class Yard:
    """A machine of sessions alone, with a node, a queue and a clock."""

    def __init__(self, cpu: str = "2", text: str = "", **more: Any) -> None:
        found = deciders_of([ConfigText(text or gangs.configured(()), "batch.yaml")], **more)
        self.metrics = Metrics(self._stopwatch)
        self.scheduler: Scheduler = found.scheduler(metrics=self.metrics)
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
        assert self.scheduler.sessions is not None
        decider = self.scheduler.sessions.decider
        assert isinstance(decider, BatchDecider)
        return decider

    def told(self, *events: Event) -> list[Effect]:
        """What the machine does a second later."""
        self.now += SECOND
        return self.scheduler.handle(events, self.now)

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
    assert yard.scheduler.sessions is not None
    promised = {uid.partition("/")[2]: n for uid, n in yard.scheduler.sessions.promised.items()}
    assert sorted(promised) == ["first-0", "second-0"]
    free = promised["second-0"]
    gone = happened.PodDeleted(member(f"old-{free}", "old", on=free))
    assert binds(yard.told(gone)) == {"second-0": free}
    assert len(yard.scheduler.sessions.promised) == 1
    yard.scheduler.validate()


def waits_beside_idle_room(compat: Compat) -> Yard:
    """Of a gang of two, one has idle room and the other waits for a victim to go; another comes."""
    yard = Yard("1", compat=compat)
    old = happened.PodAdded(member("old-0", "old", on="n1"))
    group = happened.ObjectAdded(gangs.group("old", "1", {"min": "1"}))
    yard.told(happened.NodeAdded(node("n2", cpu="1")), group, old)
    yard.told(happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"})))
    asked = yard.told(*yard.gang("vip", 2, priority="high"))
    assert [one.name for one in asked if isinstance(one, to_do.Evict)] == ["old-0"]
    return yard


def test_room_that_a_gang_has_found_is_kept_while_it_waits_for_more() -> None:
    gone = happened.PodDeleted(member("old-0", "old", on="n1"))
    higher = happened.ObjectAdded(gangs.priority("higher", "1", {"value": "99"}))
    yard = waits_beside_idle_room(Compat())
    assert binds(yard.told(higher, *yard.gang("late", 1, priority="higher"))) == {}
    yard.scheduler.validate()
    assert binds(yard.told(gone)) == {"vip-0": "n2", "vip-1": "n1"}
    yard = waits_beside_idle_room(Compat(forgets_promises=True))
    late = yard.told(higher, *yard.gang("late", 1, priority="higher"))
    assert binds(late) == {"late-0": "n2"}


def test_a_single_pod_that_takes_promised_room_is_made_out_in_the_next_session() -> None:
    profile = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    texts = [ConfigText(gangs.configured(()), "batch.yaml"), ConfigText(profile, "profiles.yaml")]
    scheduler, now = deciders_of(texts).scheduler(), 0

    def told(*events: Event, after: int = SECOND) -> list[Effect]:
        nonlocal now
        now += after
        effects = scheduler.handle(events, now)
        scheduler.validate()
        return effects

    old = member("old-0", "old", on="n1")
    told(
        happened.NodeAdded(node("n1", cpu="2")),
        happened.ObjectAdded(gangs.queue("default", "1", {})),
        happened.ObjectAdded(gangs.group("old", "1", {"min": "1"})),
        happened.PodAdded(old),
        happened.PodAdded(pod("other", cpu="1", on="n1")),
        happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"})),
        happened.Synced(),
    )
    vip = happened.ObjectAdded(gangs.group("vip", "1", {"min": "1", "priority": "high"}))
    asked = told(vip, happened.PodAdded(member("vip-0", "vip")))
    assert [one.name for one in asked if isinstance(one, to_do.Evict)] == ["old-0"]
    assert scheduler.sessions is not None
    assert set(scheduler.sessions.promised) == {"default/vip-0"}
    # Before the next session is due.
    asked = told(happened.PodAdded(pod("taker", cpu="2", priority=100)), after=SECOND // 2)
    assert [one.preemptor for one in asked if isinstance(one, to_do.Evict)] == ["default/taker"]
    told(happened.PodDeleted(old))
    assert not scheduler.sessions.promised


def test_a_gang_that_can_run_without_it_goes_first_too_when_a_member_is_refused() -> None:
    yard = Yard("2")
    first = yard.told(
        happened.ObjectAdded(gangs.group("g", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"g-{i}", "g")) for i in range(2)),
    )
    asked = {one.name: one for one in first if isinstance(one, to_do.Bind)}
    yard.told(
        happened.BindDone(asked["g-0"].effect, asked["g-0"].uid),
        happened.BindFailed(asked["g-1"].effect, asked["g-1"].uid, 409, "no"),
    )
    (read,) = [one for one in yard.told() if isinstance(one, to_do.ReadPod)]
    rival = yard.gang("rival", 1)
    rival += [happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"}))]
    yard.now -= SECOND
    back = yard.told(happened.PodRead(read.effect, read.uid, member("g-1", "g")), *rival)
    assert binds([*back, *yard.told()]) == {"g-1": "n1"}


# Gates.


def gated(name: str, group: str, *gates: str) -> Pod:
    made = member(name, group)
    names = tuple(PodSchedulingGate(gate) for gate in gates)
    return replace(made, spec=replace(made.spec, scheduling_gates=names))


def with_a_gate(compat: Compat) -> tuple[Yard, list[Effect]]:
    """A gang comes for which others would have to go, and one of its pods has a gate."""
    yard = Yard("2", compat=compat)
    yard.told(
        happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"})),
        happened.ObjectAdded(gangs.group("old", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"old-{i}", "old", on="n1")) for i in range(2)),
    )
    vip = happened.ObjectAdded(gangs.group("vip", "1", {"min": "2", "priority": "high"}))
    pods = (gated("vip-0", "vip", "quota"), member("vip-1", "vip"))
    return yard, yard.told(vip, *map(happened.PodAdded, pods))


def test_nobody_goes_for_a_gang_before_its_gates_are_open() -> None:
    yard, said = with_a_gate(Compat())
    assert not [one for one in said if isinstance(one, to_do.Evict)]
    (told,) = [one for one in said if isinstance(one, to_do.PatchStatus)]
    assert told.name == "vip-1"
    assert told.message.endswith("valid: 1, min: 2, waiting for their scheduling gates: 1")
    yard.scheduler.validate()
    opened = yard.told(happened.PodUpdated(member("vip-0", "vip")))
    assert len([one for one in opened if isinstance(one, to_do.Evict)]) == 2
    _, said = with_a_gate(Compat(rules_of_1_13=True))
    assert len([one for one in said if isinstance(one, to_do.Evict)]) == 2


def test_a_pod_is_not_bound_before_its_gates_are_open() -> None:
    yard = Yard("2")
    group = happened.ObjectAdded(gangs.group("g", "1", {"min": "1"}))
    pods = (gated("g-0", "g", "quota"), member("g-1", "g"))
    assert binds(yard.told(group, *map(happened.PodAdded, pods))) == {"g-1": "n1"}
    assert binds(yard.told()) == {}
    assert binds(yard.told(happened.PodUpdated(member("g-0", "g")))) == {"g-0": "n1"}


# Configuration.


def test_a_configuration_for_another_scheduler_is_refused() -> None:
    yard = Yard()
    text = gangs.configured(["schedulerName=other"])
    (refused,) = reports(yard.told(happened.ConfigurationChanged(text, "new.yaml")))
    assert refused.is_fault
    assert "got 'other', wanted 'kube-batch, volcano' until a restart" in refused.text
    assert yard.decider.scheduler_name == "kube-batch"


def test_a_new_default_queue_is_where_groups_without_a_queue_are() -> None:
    yard = Yard()
    assert binds(yard.told(*yard.gang("a", 1))) == {"a-0": "n1"}
    text = gangs.configured(["defaultQueue=other"])
    yard.told(happened.ConfigurationChanged(text, "new.yaml"))
    assert binds(yard.told(*yard.gang("b", 1))) == {}
    there = happened.ObjectAdded(gangs.queue("other", "1", {}))
    assert binds(yard.told(there)) == {"b-0": "n1"}
    yard.scheduler.validate()


# Nodes.


def test_a_session_is_held_when_a_node_turns_ready() -> None:
    yard = Yard("2")
    there = node("n1", cpu="2")
    down, up = (
        replace(there, status=replace(there.status, conditions=(NodeCondition("Ready", said),)))
        for said in ("False", "True")
    )
    yard.told(happened.NodeUpdated(down))
    assert binds(yard.told(*yard.gang("a", 2))) == {}
    assert binds(yard.told()) == {}
    assert binds(yard.told(happened.NodeUpdated(up))) == {"a-0": "n1", "a-1": "n1"}


def test_that_a_node_is_cordoned_is_known_to_actions() -> None:
    yard = Yard("2")
    yard.told()
    held = yard.scheduler.sessions.number if yard.scheduler.sessions is not None else 0
    there = node("n1", cpu="2", cordoned=True)
    yard.told(happened.NodeUpdated(there))
    (seen,) = yard.decider.inventory.nodes.nodes
    assert seen is not None
    assert seen.spec.unschedulable
    # It helps nobody, so it is no reason for a session.
    assert yard.scheduler.sessions is not None
    assert yard.scheduler.sessions.number == held


# Faults of others.


class Grumbler(SessionPlugin):
    """Breaks off when it sees a job named `bad`."""

    name = "grumbler"

    def on_start(self, session: Session) -> None:
        for job in session.jobs.values():
            if job.uid.endswith("/bad"):
                raise KeyError(job.uid)


class Half(SessionAction):
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
    yard.scheduler.validate()
    if name == "bad":
        gone = happened.PodDeleted(member("bad-0", "bad"))
        lost = happened.ObjectDeleted(gangs.group("bad", "1", {}))
        assert binds(yard.told(gone, lost, *yard.gang("good", 1))) == {"good-0": "n1"}


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: GangPlugin, session: Session) -> None:
        raise AssertionError("our own")

    monkeypatch.setattr(GangPlugin, "on_close", fails)
    yard = Yard.__new__(Yard)
    with pytest.raises(AssertionError, match="our own"):
        Yard.__init__(yard)


def answering(kind: Any, said: Any, **more: Any) -> type[SessionPlugin]:
    """A policy that answers this to all questions of a kind."""

    class Answers(SessionPlugin):
        name = "answers"

        def on_open(self, session: Session) -> None:
            session.hooks.register(kind, self.name, lambda *asked: said, **more)

    return Answers


EVERYTHING = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: answers}, {name: gang}, {name: predicates}, {name: proportion}]
"""


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (answering("preemptable", None), "preemptable: got None, wanted some of the candidates"),
        (answering("reclaimable", ["x"]), "reclaimable: got ['x'], wanted some of the candidates"),
        (answering("job_valid", True), "job_valid: got True, wanted None or Invalid"),
        (answering("job_order", None), "job_order: got None, wanted a number below"),
        (answering("queue_order", True), "queue_order: got True, wanted a number"),
        (answering("predicate", True), "predicate: got True, wanted an array of bool"),
        (answering("predicate", np.ones(9)), "got an array of float64 (9,), wanted an array of"),
        (answering("node_order", [1.0]), "node_order: got [1.0], wanted an array of finite"),
        (
            answering("node_order", np.array([np.nan])),
            "node_order: got an array of float64 (1,), w",
        ),
        (answering("overused", None), "overused: got None, wanted True or False"),
        (answering("job_ready", 1), "job_ready: got 1, wanted True or False"),
        (answering("predicate", np.ones(1) > 0, row_kind=lambda t: []), "row_kind: got [], wanted"),
        (
            answering("task_order", 0, key=lambda t: None),
            "key: got None, wanted something that can",
        ),
        (
            answering("job_ordr", 0),
            "registers for 'job_ordr'; wanted one of job_order, queue_order",
        ),
        (answering("job_order", 0, spares=3), "spares: got 3, wanted a function"),
    ],
)
def test_a_wrong_answer_is_told_of_in_one_line(policy: type[SessionPlugin], said: str) -> None:
    yard = Yard("2", text=EVERYTHING, plugins=(policy,))
    events = [
        happened.ObjectAdded(gangs.queue("other", "1", {})),
        happened.ObjectAdded(gangs.priority("high", "1", {"value": "9"})),
        happened.ObjectAdded(gangs.group("runs", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"runs-{i}", "runs", on="n1")) for i in range(2)),
        *yard.gang("waits", 1, priority="high"),
        *yard.gang("elsewhere", 1, queue="other"),
    ]
    told = reports(yard.told(*events)) + reports(yard.told())
    assert told
    assert told[0].is_fault
    assert said in told[0].text
    assert "policy 'answers'" in told[0].text
    assert "test_decider.py:" in told[0].text
    assert "\n" not in told[0].text


class Elsewhere(SessionPlugin):
    """Registers under a name that no tier has."""

    name = "answers"

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", "answer", lambda first, second: 0)


class Short(SessionPlugin):
    """Registers what cannot be asked."""

    name = "answers"

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", self.name, lambda job: 0)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            Elsewhere,
            "registers job_order under 'answer', wanted its own name, one of answers, gang",
        ),
        (Short, "policy 'answers', job_order: cannot be called with (first, second)"),
    ],
)
def test_what_would_never_be_asked_is_refused(policy: type[SessionPlugin], said: str) -> None:
    yard = Yard.__new__(Yard)
    yard.__init__("2", text=EVERYTHING, plugins=(policy,))  # type: ignore[misc]
    assert said in reports(yard.told(*yard.gang("a", 1)))[0].text


@pytest.mark.parametrize("wrong", [None, 3, lambda: None])
def test_handlers_that_cannot_be_called_are_refused(wrong: Any) -> None:
    with pytest.raises(ContractError, match=r"Handlers\.deallocated: got .*, wanted a function of"):
        TaskEventHandlers(lambda task: None, wrong)


class NoRun(SessionAction):
    name = "no-run"


class Needy(SessionPlugin):
    name = "needy"

    def __init__(self) -> None:
        super().__init__({})


class Deaf(SessionPlugin):
    name = "deaf"

    def on_open(self) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (NoRun, "NoRun: defines no run; wanted `def run(self, session)`"),
        (Needy, "Needy: cannot be made; wanted a class that is given its arguments"),
        (Deaf, "Deaf: on_open() cannot be called with (session)"),
    ],
)
def test_what_cannot_be_called_is_refused_at_start(part: Any, said: str) -> None:
    with pytest.raises(ContractError) as refused:
        deciders_of([ConfigText(gangs.configured(()), "batch.yaml")], plugins=(part,))
    assert said in str(refused.value)


def test_a_fault_below_a_library_is_whose_code_called_it() -> None:
    """Wrong: whatever is not ours or NumPy's is somebody's own, libraries that we call included."""

    def fails() -> None:
        json.loads("{")

    yard = Yard(text='actions: "half"\ntiers:\n- plugins: [{name: gang}]', plugins=(Half,))
    modules = custom_modules(yard.decider.plan.options)
    assert modules == {"tests"} or "test_decider" in next(iter(modules))
    with pytest.raises(ValueError, match="Expecting") as raised:
        fails()
    assert place_outside(raised.value, {"nobody"}) == ""
    assert place_outside(raised.value, {__name__.partition(".")[0]}).endswith("fails()")


# What it counts.


def test_metrics_have_the_names_of_the_original() -> None:
    yard = Yard("2")
    yard.told(*yard.gang("fits", 2), *yard.gang("waits", 2))
    found = yard.metrics
    names = {
        name for series in (found.counters, found.gauges, found.histograms) for name, _ in series
    }
    # The machine around it counts by the names of its own original.
    names = {name for name in names if not name.startswith("scheduler_")}
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
    assert found.gauges["volcano_unschedule_job_count", ()] == 1
    job: Mapping[Any, float] = found.gauges
    assert job["volcano_unschedule_task_count", (("job_id", "waits"),)] == 2
    tasks = found.histograms["volcano_task_scheduling_latency_microseconds", ()]
    assert tasks.count == 2
    action = (("action", "allocate"),)
    timed = found.histograms["volcano_action_scheduling_latency_microseconds", action]
    assert timed.total == pytest.approx(1000 * timed.count)
    # A job that is ready is not counted any more.
    yard.told(*(happened.PodDeleted(member(f"fits-{i}", "fits")) for i in range(2)))
    assert found.gauges["volcano_unschedule_job_count", ()] == 0
    assert not any(name == "volcano_job_retry_counts" for name, _ in found.counters)


# What it keeps.


def test_what_is_counted_wrongly_is_noticed() -> None:
    yard = Yard()
    yard.told(*yard.gang("a", 1))
    yard.scheduler.validate()
    job = next(iter(yard.decider.inventory.jobs.values()))
    yard.decider.inventory.nodes.remove(0, next(iter(job.tasks.values())).key)
    with pytest.raises(InvariantBroken, match="sessions: node n1"):
        yard.scheduler.validate()


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
    yard.scheduler.validate()


def test_without_sessions_a_text_with_profiles_alone_is_refused() -> None:
    yard = Yard()
    profiles = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (refused,) = reports(yard.told(happened.ConfigurationChanged(profiles, "k.yaml")))
    assert "no sessions" in refused.text
    assert isinstance(deciders_of([ConfigText(gangs.configured(()), "b.yaml")]), Deciders)


def test_pods_of_kube_batch_and_of_volcano_are_decided_together() -> None:
    yard = Yard("2")
    mine, other = member("a", "g"), member("b", "g")
    other = replace(other, spec=replace(other.spec, scheduler_name="volcano"))
    group = happened.ObjectAdded(gangs.group("g", "1", {"min": "2"}))
    effects = yard.told(group, happened.PodAdded(mine), happened.PodAdded(other))
    assert set(binds(effects)) == {"a", "b"}
    one = Yard("2", gangs.configured(["schedulerName=kube-batch"]))
    assert binds(one.told(group, happened.PodAdded(mine), happened.PodAdded(other))) == {}
