"""BatchDecider: configuration, nominations, faults of custom plugins, metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.batch import Session, SessionAction, SessionPlugin
from stowplan.batch.decider import custom_modules, place_outside
from stowplan.batch.session_plugins.gang import GangPlugin
from stowplan.batch.state.session_state import TaskEventHandlers
from stowplan.columns.invariants import InvariantBroken
from stowplan.framework import ContractError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import NodeCondition
from stowplan.objects.pod import PodStatus
from stowplan.testing import node, pod
from tests.batch.session_driver import SessionDriver, binds, gated, member, reports
from tests.scenarios import group_commands

# Nominations.


def test_resources_freed_for_a_gang_are_kept_for_it() -> None:
    """Resources are freed for a pod of high priority; a job that would otherwise get them arrives
    too."""
    driver = SessionDriver("2")
    running = [happened.PodAdded(member(f"old-{i}", "old", on="n1")) for i in range(2)]
    driver.handle(happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"})), *running)
    driver.handle(happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})))
    asked = driver.handle(*driver.gang("vip", 1, priority="high"))
    (evicted,) = [one for one in asked if isinstance(one, to_do.Evict)]
    higher = happened.ObjectAdded(group_commands.priority("higher", "1", {"value": "99"}))
    gone = happened.PodDeleted(member(evicted.name, "old", on="n1"))
    late = driver.handle(gone, higher, *driver.gang("late", 1, priority="higher"))
    assert binds(late) == {"vip-0": "n1"}


def test_released_resources_go_to_the_pod_they_were_released_for() -> None:
    """Of two pods that wait for resources on two nodes, those of the less important one come
    first."""
    driver = SessionDriver("1")
    names = [f"n{number}" for number in range(1, 5)]
    old = [happened.PodAdded(member(f"old-{n}", "old", on=n)) for n in names]
    group = happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"}))
    nodes = (happened.NodeAdded(node(name, cpu="1")) for name in names[1:])
    driver.handle(*nodes, group, *old)
    for name, value in (("high", "9"), ("higher", "99")):
        driver.handle(happened.ObjectAdded(group_commands.priority(name, "1", {"value": value})))
    driver.handle(*driver.gang("first", 1, priority="higher"))
    driver.handle(*driver.gang("second", 1, priority="high"))
    nominations = {
        uid.partition("/")[2]: n for uid, n in driver.scheduler.lanes.batch[0].nominations.items()
    }
    assert sorted(nominations) == ["first-0", "second-0"]
    free = nominations["second-0"]
    gone = happened.PodDeleted(member(f"old-{free}", "old", on=free))
    assert binds(driver.handle(gone)) == {"second-0": free}
    assert len(driver.scheduler.lanes.batch[0].nominations) == 1
    driver.scheduler.validate()


def waits_beside_idle_room() -> SessionDriver:
    """Of a gang of two, one is allocated and the other waits for a victim; another gang arrives."""
    driver = SessionDriver("1")
    old = happened.PodAdded(member("old-0", "old", on="n1"))
    group = happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"}))
    driver.handle(happened.NodeAdded(node("n2", cpu="1")), group, old)
    driver.handle(happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})))
    asked = driver.handle(*driver.gang("vip", 2, priority="high"))
    assert [one.name for one in asked if isinstance(one, to_do.Evict)] == ["old-0"]
    return driver


def test_allocated_resources_of_a_waiting_gang_are_kept() -> None:
    gone = happened.PodDeleted(member("old-0", "old", on="n1"))
    higher = happened.ObjectAdded(group_commands.priority("higher", "1", {"value": "99"}))
    driver = waits_beside_idle_room()
    assert binds(driver.handle(higher, *driver.gang("late", 1, priority="higher"))) == {}
    driver.scheduler.validate()
    assert binds(driver.handle(gone)) == {"vip-0": "n2", "vip-1": "n1"}


def test_a_single_pod_that_takes_nominated_resources_is_corrected_in_the_next_session() -> None:
    profile = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    texts = [
        ConfigText(group_commands.configured(()), "batch.yaml"),
        ConfigText(profile, "profiles.yaml"),
    ]
    scheduler, now = deciders_of(texts).scheduler(), 0

    def send(*events: Event, after: int = SECOND) -> list[Effect]:
        nonlocal now
        now += after
        effects = scheduler.handle(events, now)
        scheduler.validate()
        return effects

    old = member("old-0", "old", on="n1")
    send(
        happened.NodeAdded(node("n1", cpu="2")),
        happened.ObjectAdded(group_commands.queue("default", "1", {})),
        happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"})),
        happened.PodAdded(old),
        happened.PodAdded(pod("other", cpu="1", on="n1")),
        happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})),
        happened.Synced(),
    )
    vip = happened.ObjectAdded(group_commands.group("vip", "1", {"min": "1", "priority": "high"}))
    asked = send(vip, happened.PodAdded(member("vip-0", "vip")))
    assert [one.name for one in asked if isinstance(one, to_do.Evict)] == ["old-0"]
    assert set(scheduler.lanes.batch[0].nominations) == {"default/vip-0"}
    # Before the next session is due.
    asked = send(happened.PodAdded(pod("taker", cpu="2", priority=100)), after=SECOND // 2)
    assert [one.preemptor for one in asked if isinstance(one, to_do.Evict)] == ["default/taker"]
    send(happened.PodDeleted(old))
    assert not scheduler.lanes.batch[0].nominations


def test_a_gang_with_enough_members_also_goes_first_after_a_failed_bind() -> None:
    driver = SessionDriver("2")
    first = driver.handle(
        happened.ObjectAdded(group_commands.group("g", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"g-{i}", "g")) for i in range(2)),
    )
    asked = {one.name: one for one in first if isinstance(one, to_do.Bind)}
    driver.handle(
        happened.BindDone(asked["g-0"].effect, asked["g-0"].uid),
        happened.BindFailed(asked["g-1"].effect, asked["g-1"].uid, 409, "no"),
    )
    (read,) = [one for one in driver.handle() if isinstance(one, to_do.ReadPod)]
    rival = driver.gang("rival", 1)
    rival += [happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"}))]
    driver.now -= SECOND
    back = driver.handle(happened.PodRead(read.effect, read.uid, member("g-1", "g")), *rival)
    assert binds([*back, *driver.handle()]) == {"g-1": "n1"}


# Gates.


def with_a_gate() -> tuple[SessionDriver, list[Effect]]:
    """A gang that would need evictions, with a pod that has a scheduling gate."""
    driver = SessionDriver("2")
    driver.handle(
        happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})),
        happened.ObjectAdded(group_commands.group("old", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"old-{i}", "old", on="n1")) for i in range(2)),
    )
    vip = happened.ObjectAdded(group_commands.group("vip", "1", {"min": "2", "priority": "high"}))
    pods = (gated("vip-0", "vip", "quota"), member("vip-1", "vip"))
    return driver, driver.handle(vip, *map(happened.PodAdded, pods))


def test_no_pod_is_evicted_for_a_gated_gang() -> None:
    driver, message = with_a_gate()
    assert not [one for one in message if isinstance(one, to_do.Evict)]
    (reported,) = [one for one in message if isinstance(one, to_do.PatchStatus)]
    assert reported.name == "vip-1"
    assert reported.message.endswith("valid: 1, min: 2, waiting for their scheduling gates: 1")
    driver.scheduler.validate()
    opened = driver.handle(happened.PodUpdated(member("vip-0", "vip")))
    assert len([one for one in opened if isinstance(one, to_do.Evict)]) == 2


def test_a_pod_is_not_bound_before_its_gates_are_removed() -> None:
    driver = SessionDriver("2")
    group = happened.ObjectAdded(group_commands.group("g", "1", {"min": "1"}))
    pods = (gated("g-0", "g", "quota"), member("g-1", "g"))
    assert binds(driver.handle(group, *map(happened.PodAdded, pods))) == {"g-1": "n1"}
    assert binds(driver.handle()) == {}
    assert binds(driver.handle(happened.PodUpdated(member("g-0", "g")))) == {"g-0": "n1"}


# Configuration.


def test_a_configuration_for_another_scheduler_is_refused() -> None:
    driver = SessionDriver()
    text = group_commands.configured(["schedulerName=other"])
    (refused,) = reports(driver.handle(happened.ConfigurationChanged(text, "new.yaml")))
    assert refused.is_fault
    assert (
        "Invalid value: 'other': cannot change before a restart: expected 'kube-batch, volcano'"
        in refused.text
    )
    assert driver.decider.scheduler_name == "kube-batch"


def test_groups_without_a_queue_move_to_a_new_default_queue() -> None:
    driver = SessionDriver()
    assert binds(driver.handle(*driver.gang("a", 1))) == {"a-0": "n1"}
    text = group_commands.configured(["defaultQueue=other"])
    driver.handle(happened.ConfigurationChanged(text, "new.yaml"))
    assert binds(driver.handle(*driver.gang("b", 1))) == {}
    there = happened.ObjectAdded(group_commands.queue("other", "1", {}))
    assert binds(driver.handle(there)) == {"b-0": "n1"}
    driver.scheduler.validate()


# Nodes.


def test_a_session_runs_when_a_node_becomes_ready() -> None:
    driver = SessionDriver("2")
    there = node("n1", cpu="2")
    down, up = (
        replace(there, status=replace(there.status, conditions=(NodeCondition("Ready", message),)))
        for message in ("False", "True")
    )
    driver.handle(happened.NodeUpdated(down))
    assert binds(driver.handle(*driver.gang("a", 2))) == {}
    assert binds(driver.handle()) == {}
    assert binds(driver.handle(happened.NodeUpdated(up))) == {"a-0": "n1", "a-1": "n1"}


def test_a_deleted_node_is_not_counted_though_its_pods_remain() -> None:
    driver = SessionDriver("2")
    there = replace(pod("there", cpu="1"), status=PodStatus(phase="Running"))
    there = replace(there, spec=replace(there.spec, node_name="n2"))
    driver.handle(happened.NodeAdded(node("n2", cpu="2")), happened.PodAdded(there))
    driver.handle(happened.NodeDeleted(node("n2", cpu="2")))
    group, lone = driver.gang("a", 1)
    assert isinstance(lone, happened.PodAdded)
    spec = replace(lone.pod.spec, node_selector={"zone": "z1"})
    done = driver.handle(group, happened.PodAdded(replace(lone.pod, spec=spec)))
    (message,) = [e.message for e in done if isinstance(e, to_do.PatchStatus)]
    assert (
        message == "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )


def test_actions_know_cordoned_nodes() -> None:
    driver = SessionDriver("2")
    driver.handle()
    held = driver.scheduler.lanes.n_sessions
    there = node("n1", cpu="2", cordoned=True)
    driver.handle(happened.NodeUpdated(there))
    (seen,) = driver.decider.inventory.open().nodes.nodes
    assert seen.spec.unschedulable
    # It makes no pod schedulable, so it triggers no session.
    assert driver.scheduler.lanes.n_sessions == held


# Custom plugins with faults.


class RaisingPlugin(SessionPlugin):
    """Raises when it sees a job named `bad`."""

    name = "grumbler"

    def on_start(self, session: Session) -> None:
        for job in session.jobs.values():
            if job.uid.endswith("/bad"):
                raise KeyError(job.uid)


class RaisingAction(SessionAction):
    """Places a task in a statement, and raises."""

    name = "half"

    def run(self, session: Session) -> None:
        for job in session.jobs.values():
            statement = session.statement()
            for task in list(job.tasks.values()):
                statement.allocate(task, 0)
            raise ValueError("half way")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ('actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: grumbler}]', "bad", "Key"),
        ('actions: "half"\ntiers:\n- plugins: [{name: gang}]', "any", "ValueError: half way"),
    ],
)
def test_a_fault_of_a_custom_plugin_ends_only_the_session(
    text: str, name: str, message: str
) -> None:
    driver = SessionDriver(text=text, plugins=(RaisingPlugin, RaisingAction))
    (reported,) = reports(driver.handle(*driver.gang(name, 1)))
    assert reported.is_fault
    assert "test_decider.py" in reported.text
    assert message in reported.text
    driver.scheduler.validate()
    if name == "bad":
        gone = happened.PodDeleted(member("bad-0", "bad"))
        lost = happened.ObjectDeleted(group_commands.group("bad", "1", {}))
        assert binds(driver.handle(gone, lost, *driver.gang("good", 1))) == {"good-0": "n1"}


def test_a_fault_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: GangPlugin, session: Session) -> None:
        raise AssertionError("our own")

    monkeypatch.setattr(GangPlugin, "on_close", fails)
    driver = SessionDriver.__new__(SessionDriver)
    with pytest.raises(AssertionError, match="our own"):
        SessionDriver.__init__(driver)


def answering(kind: Any, message: Any, **more: Any) -> type[SessionPlugin]:
    """A session plugin that returns this from all functions of a kind."""

    class Answers(SessionPlugin):
        name = "answers"

        def on_open(self, session: Session) -> None:
            session.hooks.register(kind, self.name, lambda *asked: message, **more)

    return Answers


EVERYTHING = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: answers}, {name: gang}, {name: predicates}, {name: proportion}]
"""


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            answering("preemptable", None),
            "preemptable: invalid answer: None: expected some of the candidates",
        ),
        (
            answering("reclaimable", ["x"]),
            "reclaimable: invalid answer: ['x']: expected some of the candidates",
        ),
        (answering("job_valid", True), "job_valid: invalid answer: True: expected None or a Val"),
        (answering("job_order", None), "job_order: invalid answer: None: expected a number"),
        (answering("queue_order", True), "queue_order: invalid answer: True: expected a number"),
        (
            answering("predicate", True),
            "predicate: invalid answer: True: expected an array of bool",
        ),
        (
            answering("predicate", np.ones(9)),
            "answer: an array of float64 (9,): expected an array of",
        ),
        (answering("node_order", [1.0]), "node_order: invalid answer: [1.0]: expected an array of"),
        (
            answering("node_order", np.array([np.nan])),
            "node_order: invalid answer: an array of float64 (1,): e",
        ),
        (answering("overused", None), "overused: invalid answer: None: expected True or False"),
        (answering("job_ready", 1), "job_ready: invalid answer: 1: expected True or False"),
        (
            answering("predicate", np.ones(1) > 0, row_kind=lambda t: []),
            "row_kind: invalid answer: []",
        ),
        (
            answering("task_order", 0, key=lambda t: None),
            "key: invalid answer: None: expected something that can",
        ),
        (
            answering("job_ordr", 0),
            "unknown hook 'job_ordr': expected one of job_order, queue_order",
        ),
        (answering("job_order", 0, spares=3), "spares: invalid value: 3: expected a function"),
    ],
)
def test_an_invalid_answer_is_reported_in_one_line(
    policy: type[SessionPlugin], message: str
) -> None:
    driver = SessionDriver("2", text=EVERYTHING, plugins=(policy,))
    events = [
        happened.ObjectAdded(group_commands.queue("other", "1", {})),
        happened.ObjectAdded(group_commands.priority("high", "1", {"value": "9"})),
        happened.ObjectAdded(group_commands.group("runs", "1", {"min": "1"})),
        *(happened.PodAdded(member(f"runs-{i}", "runs", on="n1")) for i in range(2)),
        *driver.gang("waits", 1, priority="high"),
        *driver.gang("elsewhere", 1, queue="other"),
    ]
    reported = reports(driver.handle(*events)) + reports(driver.handle())
    assert reported
    assert reported[0].is_fault
    assert message in reported[0].text
    assert "plugin 'answers'" in reported[0].text
    assert "test_decider.py:" in reported[0].text
    assert "\n" not in reported[0].text


class Elsewhere(SessionPlugin):
    """Registers under a name that is in no tier."""

    name = "answers"

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", "answer", lambda first, second: 0)


class Short(SessionPlugin):
    """Registers a function that cannot be called."""

    name = "answers"

    def on_open(self, session: Session) -> None:
        session.hooks.register("job_order", self.name, lambda job: 0)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            Elsewhere,
            "hook job_order: invalid plugin name: 'answer': expected one of answers, gang",
        ),
        (Short, "plugin 'answers', job_order: cannot be called with (first, second)"),
    ],
)
def test_functions_that_would_never_be_called_are_refused(
    policy: type[SessionPlugin], message: str
) -> None:
    driver = SessionDriver.__new__(SessionDriver)
    driver.__init__("2", text=EVERYTHING, plugins=(policy,))  # type: ignore[misc]
    assert message in reports(driver.handle(*driver.gang("a", 1)))[0].text


@pytest.mark.parametrize("wrong", [None, 3, lambda: None])
def test_handlers_that_cannot_be_called_are_refused(wrong: Any) -> None:
    with pytest.raises(
        ContractError, match=r"Handlers\.deallocated: invalid value: .*: expected a f"
    ):
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
    ("part", "message"),
    [
        (NoRun, "NoRun: method run is missing: expected `def run(self, session)`"),
        (Needy, "Needy: cannot be created: expected a class that takes its arguments"),
        (Deaf, "Deaf: on_open() cannot be called with (session)"),
    ],
)
def test_uncallable_parts_are_refused_at_start(part: Any, message: str) -> None:
    with pytest.raises(ContractError) as refused:
        deciders_of([ConfigText(group_commands.configured(()), "batch.yaml")], plugins=(part,))
    assert message in str(refused.value)


def test_a_fault_in_a_library_is_attributed_to_its_caller() -> None:
    """Wrong: all code that is neither ours nor NumPy's counts as custom, libraries that we call
    included."""

    def fails() -> None:
        json.loads("{")

    driver = SessionDriver(
        text='actions: "half"\ntiers:\n- plugins: [{name: gang}]', plugins=(RaisingAction,)
    )
    modules = custom_modules(driver.decider.plan.options)
    assert modules == {"tests"} or "test_decider" in next(iter(modules))
    with pytest.raises(ValueError, match="Expecting") as raised:
        fails()
    assert place_outside(raised.value, {"nobody"}) == ""
    assert place_outside(raised.value, {__name__.partition(".")[0]}).endswith("fails()")


# Metrics.


def test_metrics_have_the_names_of_the_original() -> None:
    driver = SessionDriver("2")
    driver.handle(*driver.gang("fits", 2), *driver.gang("waits", 2))
    found = driver.metrics
    names = {
        name for series in (found.counters, found.gauges, found.histograms) for name, _ in series
    }
    # The scheduler around it uses the metrics of its own original.
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
    # A job that is ready is no longer counted.
    driver.handle(*(happened.PodDeleted(member(f"fits-{i}", "fits")) for i in range(2)))
    assert found.gauges["volcano_unschedule_job_count", ()] == 0
    assert not any(name == "volcano_job_retry_counts" for name, _ in found.counters)


# Inventory.


def test_a_wrong_count_is_noticed() -> None:
    driver = SessionDriver()
    driver.handle(*driver.gang("a", 1))
    driver.scheduler.validate()
    job = next(iter(driver.decider.inventory.jobs.values()))
    job.allocated.cpu += 1
    with pytest.raises(InvariantBroken, match="sessions: job default/a"):
        driver.scheduler.validate()


def test_a_pod_that_the_node_table_has_elsewhere_is_noticed() -> None:
    driver = SessionDriver()
    driver.handle(*driver.gang("a", 1))
    task = next(t for j in driver.decider.inventory.jobs.values() for t in j.tasks.values())
    driver.scheduler.cache.nodes.remove_pod(task.uid)
    with pytest.raises(InvariantBroken, match="pod default/a-0: on 'n1', in the node table on row"):
        driver.decider.validate()


def test_finished_pods_are_forgotten_when_unused() -> None:
    driver = SessionDriver()
    alone = pod("alone", cpu="1", scheduler="kube-batch")
    assert binds(driver.handle(happened.PodAdded(alone))) == {"alone": "n1"}
    done = replace(
        alone,
        spec=replace(alone.spec, node_name="n1"),
        status=replace(alone.status, phase="Succeeded"),
    )
    driver.handle(happened.PodUpdated(done))
    driver.handle(*driver.gang("next", 1))
    assert [job.uid for job in driver.decider.inventory.jobs.values()] == ["default/next"]
    driver.scheduler.validate()


def test_reloading_a_text_without_sessions_is_refused() -> None:
    driver = SessionDriver()
    profiles = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (refused,) = reports(driver.handle(happened.ConfigurationChanged(profiles, "k.yaml")))
    assert "no sessions" in refused.text
    assert isinstance(deciders_of([ConfigText(group_commands.configured(()), "b.yaml")]), Deciders)


def test_pods_of_kube_batch_and_of_volcano_are_decided_together() -> None:
    driver = SessionDriver("2")
    mine, other = member("a", "g"), member("b", "g")
    other = replace(other, spec=replace(other.spec, scheduler_name="volcano"))
    group = happened.ObjectAdded(group_commands.group("g", "1", {"min": "2"}))
    effects = driver.handle(group, happened.PodAdded(mine), happened.PodAdded(other))
    assert set(binds(effects)) == {"a", "b"}
    one = SessionDriver("2", group_commands.configured(["schedulerName=kube-batch"]))
    assert binds(one.handle(group, happened.PodAdded(mine), happened.PodAdded(other))) == {}
