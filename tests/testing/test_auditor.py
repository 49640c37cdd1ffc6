"""The auditor: what it lets pass, and what it does not."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing import node, pod
from tests.fault_runs.auditor import Auditor, Violation, misfit_reason

NODE = node("n", cpu="4", pods=3)
A = pod("a", cpu="3")
B = pod("b", cpu="3")


def on(one: Pod, name: str = "n") -> Pod:
    return replace(one, spec=replace(one.spec, node_name=name))


def bind(one: Pod, effect: int = 1, name: str = "n", term: int = 1) -> to_do.Bind:
    return to_do.Bind(effect, term, one.uid, one.namespace, one.name, name)


def evict(victim: Pod, preemptor: Pod) -> to_do.Evict:
    return to_do.Evict(2, 1, victim.uid, victim.namespace, victim.name, preemptor.uid, "")


def nominate(one: Pod, name: str = "n") -> to_do.PatchStatus:
    return to_do.PatchStatus(9, 1, one.uid, one.namespace, one.name, "", "", name)


class Watched:
    """An auditor that has been told of a cluster, and shows all of it to one scheduler."""

    def __init__(self, nodes: Iterable[Node] = (NODE,), pods: Iterable[Pod] = (A, B)) -> None:
        self.auditor = Auditor(lambda one: "slow" in one.labels)
        self.auditor.joined("s", leads=True, term=1)
        self.version = 0
        nodes, pods = list(nodes), list(pods)
        events: list[Event] = [happened.NodeAdded(one) for one in nodes]
        self.happen(*events, *(happened.PodAdded(one) for one in pods))
        self.call(*events, *(happened.PodAdded(one) for one in pods))

    def happen(self, *events: Event) -> None:
        for event in events:
            self.version += 1
            self.auditor.changed(self.version, event)

    def call(self, *given: Event | Effect, seen: int | None = None) -> None:
        events = [one for one in given if type(one).__module__.endswith("events")]
        effects = [one for one in given if type(one).__module__.endswith("effects")]
        latest = self.version if seen is None else seen
        self.auditor.called("s", events, effects, (latest, latest))  # type: ignore[arg-type]

    def refuses(self, *given: Event | Effect, what: str) -> None:
        with pytest.raises(Violation, match=what):
            self.call(*given)


# Bindings.


def test_a_binding_that_fits_passes() -> None:
    Watched().call(bind(A))


def test_two_that_do_not_fit_together() -> None:
    Watched().refuses(bind(A), bind(B, 2), what="binds b to n: cpu: 3000 wanted, 3000 taken of")


def test_room_is_held_until_an_outcome_is_certain() -> None:
    for outcome in (happened.BindDone(1, A.uid), happened.BindFailed(1, A.uid, 504)):
        watched = Watched()
        watched.call(bind(A))
        watched.refuses(outcome, bind(B, 2), what="binds b to n: cpu")
    for outcome in (happened.BindFailed(1, A.uid, 409), happened.PodRead(3, A.uid, A)):
        watched = Watched()
        watched.call(bind(A))
        watched.call(outcome, bind(B, 4))


def test_a_read_that_was_requested_before_reports_nothing() -> None:
    watched = Watched()
    watched.call(bind(A, 5))
    watched.refuses(happened.PodRead(4, A.uid, A), bind(B, 6), what="binds b to n: cpu")


def test_a_pod_is_bound_once() -> None:
    watched = Watched()
    watched.call(bind(A))
    watched.refuses(bind(A, 2), what="binds a twice, to n before")
    watched = Watched()
    watched.refuses(happened.PodUpdated(on(A)), bind(A), what="observed as bound to n")
    watched = Watched()
    watched.refuses(happened.PodDeleted(A), bind(A), what="observed as gone")


def test_no_pod_is_bound_to_a_missing_node() -> None:
    Watched().refuses(happened.NodeDeleted(NODE), bind(A), what="to n: no node")


def test_a_pod_that_may_pause_is_not_checked_by_the_present_node() -> None:
    slow = pod("slow", cpu="9", labels={"slow": "yes"})
    Watched(pods=[slow]).call(bind(slow))


@pytest.mark.parametrize(
    ("asks", "there", "why"),
    [
        (pod("p", node_selector={"disk": "ssd"}), node("n"), "node selector"),
        (pod("p"), node("n", cordoned=True), "cordoned"),
        (pod("p"), node("n", taints=["gpu:NoSchedule"]), "taint gpu"),
        (pod("p", tolerations=["gpu"]), node("n", taints=["gpu:NoSchedule"]), ""),
        (pod("p"), node("n", pods=0), "it has 0 pods"),
        (pod("p", cpu="5"), node("n", cpu="4"), "cpu: 5000 wanted"),
        (pod("p", cpu="4"), node("n", cpu="4"), ""),
    ],
)
def test_what_keeps_a_pod_off_a_node(asks: Pod, there: Node, why: str) -> None:
    found = misfit_reason(asks, there, ())
    assert why in found
    assert bool(found) is bool(why)


# In truth.


def take(watched: Watched, one: Pod, effect: int = 1) -> None:
    """The API takes a binding."""
    watched.happen(happened.PodUpdated(on(one)))
    watched.auditor.taken("s", bind(one, effect), 201)


def test_a_node_that_is_full_without_excuse() -> None:
    watched = Watched(pods=[A])
    watched.happen(happened.PodAdded(on(B)))
    # It has been shown that version, and passed over what it said.
    watched.call(bind(A))
    with pytest.raises(Violation, match="has bound a to n: cpu"):
        take(watched, A)


def test_a_node_that_filled_up_unseen() -> None:
    watched = Watched(pods=[A])
    seen = watched.version
    watched.happen(happened.PodAdded(on(B)))
    watched.call(bind(A), seen=seen)
    take(watched, A)


def test_a_node_that_shrank_unseen() -> None:
    watched = Watched(pods=[A])
    seen = watched.version
    watched.happen(happened.NodeUpdated(node("n", cpu="1")))
    watched.call(bind(A), seen=seen)
    take(watched, A)


def test_what_it_bound_itself_it_knows() -> None:
    watched = Watched()
    watched.call(bind(A))
    take(watched, A)
    small = replace(B, spec=replace(B.spec, node_selector=None))
    watched.auditor.views["s"].open.clear()
    watched.auditor.views["s"].pods[A.key] = A
    watched.call(bind(small, 2), seen=2)
    with pytest.raises(Violation, match="has bound b to n: cpu"):
        take(watched, small, 2)


def test_the_api_takes_no_second_binding() -> None:
    watched = Watched(pods=[A])
    watched.call(bind(A))
    take(watched, A)
    with pytest.raises(Violation, match="took 2 bindings of a"):
        watched.auditor.taken("s", bind(A), 201)


# Evictions.

LOW = pod("low", cpu="3", priority=1, on="n")
HIGH = pod("high", cpu="3", priority=9)


def test_an_announced_eviction_passes() -> None:
    Watched(pods=[LOW, HIGH]).call(evict(LOW, HIGH), nominate(HIGH))
    announced = replace(HIGH, status=replace(HIGH.status, nominated_node_name="n"))
    Watched(pods=[LOW, announced]).call(evict(LOW, announced))


def test_evictions_that_must_not_be() -> None:
    watched = Watched(pods=[LOW, HIGH])
    watched.refuses(evict(LOW, HIGH), what="without a notification that .* is cleared")
    watched.refuses(evict(LOW, HIGH), nominate(HIGH, "m"), what="without a notification that")
    watched.refuses(evict(A, HIGH), nominate(HIGH), what="it has not received such a pod")
    equal = pod("equal", priority=1)
    Watched(pods=[LOW, equal]).refuses(
        evict(LOW, equal), nominate(equal), what="its priority is no lower"
    )
    Watched(pods=[LOW, on(HIGH)]).refuses(
        evict(LOW, HIGH), nominate(HIGH), what="the pod that preempts is not pending"
    )


# Leading.


def test_who_does_not_lead_asks_for_nothing_that_writes() -> None:
    watched = Watched()
    read = to_do.ReadPod(3, 1, A.uid, A.namespace, A.name)
    watched.call(happened.LeaderLost(), read)
    watched.refuses(bind(A), what="s leads not and asks for Bind")
    watched.refuses(happened.LeaderElected(2), bind(A), what="leads in term 2 and asks for Bind")
    watched.call(bind(A, term=2))


def test_nothing_is_sent_after_the_lead_is_lost() -> None:
    watched = Watched()
    watched.auditor.sent("s", bind(A))
    watched.auditor.leads("", 1)
    with pytest.raises(Violation, match="s writes though no scheduler leads in term 1"):
        watched.auditor.sent("s", bind(A))
    watched.auditor.leads("s", 2)
    with pytest.raises(Violation, match="s writes though s leads in term 2"):
        watched.auditor.sent("s", bind(A))


# At rest.


def waiting_violation(pods: list[Pod], held: bool = False) -> str:
    """What is found at rest; "" for nothing."""
    try:
        Watched(pods=pods).auditor.at_rest(lambda one: held)
    except Violation as wrong:
        return str(wrong)
    return ""


def test_no_feasible_pod_waits() -> None:
    assert waiting_violation([A]) == "a fits on n and waits"
    assert waiting_violation([A], held=True) == ""
    assert waiting_violation([A, on(B)]) == ""


def test_no_pod_waits_that_could_preempt() -> None:
    assert waiting_violation([HIGH, LOW]) == "high could make room on n and waits"
    never = replace(HIGH, spec=replace(HIGH.spec, preemption_policy="Never"))
    assert waiting_violation([never, LOW]) == ""


def test_who_is_leaving_or_expected_takes_room() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    leaving = replace(LOW, metadata=replace(LOW.metadata, deletion_timestamp=moment))
    assert waiting_violation([HIGH, leaving]) == ""
    expected = replace(HIGH, status=replace(HIGH.status, nominated_node_name="n"))
    assert waiting_violation([A, expected]) == "high fits on n and waits"


# Stories.


def test_an_event_log_is_of_one_pod() -> None:
    watched = Watched()
    watched.call(bind(A))
    lines = watched.auditor.pod_log(A.uid)
    assert len(lines) == 3
    assert "cluster" in lines[0]
    assert "s <-" in lines[1]
    assert "Bind effect=1 term=1" in lines[2]
    assert all("default/b" not in line for line in lines)
