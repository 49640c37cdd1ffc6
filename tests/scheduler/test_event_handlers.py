"""Event handlers: watch events, and which pods they retry."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.framework.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    ClusterEvent,
)
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.objects.workload import Namespace
from stowplan.queue import SubQueue
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.event_handlers import is_same_pod, is_same_version
from stowplan.testing import node, pod
from tests.scheduler.scheduler_driver import SchedulerDriver, bound, leaving


class Listening(SchedulerDriver):
    """A scheduler that records its queue's moves: the event's label and the pods considered."""

    def __init__(self, **settings: str) -> None:
        self.heard: list[str] = []
        super().__init__(**settings)
        move = self.scheduler.queue.move

        def listen(event: ClusterEvent, old, new, now, only=None) -> None:  # type: ignore[no-untyped-def]
            self.heard.append(event.label)
            self.only = only
            move(event, old, new, now, only)

        self.scheduler.queue.move = listen  # type: ignore[method-assign]


def version(one: Pod, number: int) -> Pod:
    return replace(one, metadata=replace(one.metadata, resource_version=str(number)))


# Pods.


def test_events_of_bound_pods_are_handled() -> None:
    driver = Listening()
    web = pod("web", on="n1")
    driver.handle(happened.PodAdded(web))
    labelled = replace(web, metadata=replace(web.metadata, labels={"app": "web"}))
    driver.handle(happened.PodUpdated(labelled))
    driver.handle(happened.PodDeleted(labelled))
    assert driver.heard == [
        ASSIGNED_POD_ADD.label,
        "AssignedPodUpdatePodLabel",
        ASSIGNED_POD_DELETE.label,
    ]


def test_objects_sent_again_are_no_event() -> None:
    driver = Listening()
    web, api = version(pod("web", on="n1"), 7), version(pod("api", cpu="100"), 8)
    driver.handle(happened.PodAdded(web), happened.PodAdded(api))
    entry = driver.scheduler.queue.get("default/api")
    assert entry is not None
    driver.heard.clear()
    again = version(pod("web", on="n1"), 7), version(pod("api", cpu="100"), 8)
    driver.handle(*map(happened.PodAdded, again))
    assert (driver.heard, entry.attempts) == ([], 1)


def test_a_version_is_that_of_one_pod() -> None:
    web = version(pod("web", uid="1"), 7)
    assert is_same_version(web, version(pod("web", uid="1"), 7))
    assert not is_same_version(web, version(pod("web", uid="2"), 7))
    assert not is_same_version(web, version(pod("web", uid="1"), 8))
    assert not is_same_version(pod("web"), pod("web"))


def test_a_pod_does_not_leave_its_node() -> None:
    assert is_same_pod(pod("web"), pod("web", on="n1"))
    assert not is_same_pod(pod("web", on="n1"), pod("web"))
    assert not is_same_pod(pod("web", on="n1"), pod("web", on="n2"))
    assert not is_same_pod(pod("web", uid="1"), pod("web", uid="2"))


def test_a_pod_that_left_its_node_counts_as_deleted_and_added() -> None:
    driver = SchedulerDriver(cpu="1")
    driver.handle(happened.PodAdded(pod("web", cpu="1", on="n1")))
    driver.handle(happened.PodUpdated(pod("web", cpu="1")))
    assert driver.stage("web") is PodState.BINDING


def test_a_pod_of_another_scheduler_counts_only_when_bound() -> None:
    driver = SchedulerDriver()
    foreign = pod("web", scheduler="other")
    driver.handle(happened.PodAdded(foreign))
    assert len(driver.scheduler.queue) == 0
    driver.handle(happened.PodUpdated(bound(foreign)))
    assert driver.scheduler.cache.nodes.knows_pod(foreign.uid)
    driver.handle(happened.PodDeleted(bound(foreign)))
    assert not driver.scheduler.cache.nodes.knows_pod(foreign.uid)


def test_the_end_of_an_unknown_pod_is_no_event() -> None:
    driver = Listening()
    driver.handle(happened.PodDeleted(pod("web", on="n1")))
    assert driver.heard == []


def test_deleting_a_nominated_pod_retries_pods_of_its_priority_and_below() -> None:
    driver = Listening()
    driver.add("vip", cpu="100", priority=5, nominated="n1")
    driver.heard.clear()
    driver.handle(happened.PodDeleted(pod("vip", cpu="100", priority=5, nominated="n1")))
    assert driver.heard == [ASSIGNED_POD_DELETE.label]
    assert driver.only is not None
    assert [driver.only(pod("x", priority=each)) for each in (4, 5, 6)] == [True, True, False]


def test_changing_a_nomination_retries_pods_too() -> None:
    driver = Listening()
    driver.add("vip", cpu="100", priority=5, nominated="n1")
    driver.heard.clear()
    driver.handle(happened.PodUpdated(pod("vip", cpu="100", priority=5, nominated="n2")))
    assert driver.heard == [ASSIGNED_POD_DELETE.label]
    driver.handle(happened.PodUpdated(pod("vip", cpu="100", priority=5, nominated="n2")))
    assert driver.heard == [ASSIGNED_POD_DELETE.label]


@pytest.mark.parametrize("by", ["the scheduler", "another client"])
def test_a_nominated_pod_on_another_node_retries_pods_that_counted_it(by: str) -> None:
    """Differs: in the original they wait for the unschedulable flush."""
    driver = SchedulerDriver(cpu="1")
    driver.handle(happened.NodeAdded(node("n2", cpu="6", memory="4Gi")))
    low = pod("low", cpu="4", priority=1, on="n2")
    driver.handle(happened.PodAdded(low))
    vip = driver.add("vip", cpu="3", memory="4Gi", priority=100)
    evict = driver.last(to_do.Evict, "low")
    driver.handle(happened.EvictDone(evict.effect, evict.uid), happened.PodUpdated(leaving(low)))
    # The nominated pod backs off; the other one is refused, since it counts as placed on n2.
    driver.handle(happened.PodDeleted(low), happened.PodAdded(pod("web", cpu="4")), heads_max=1)
    assert (driver.last(to_do.RecordEvent).name, driver.stage("web")) == ("web", None)
    driver.handle(happened.PodAdded(pod("other", memory="1Gi", on="n2")), heads_max=0)
    if by == "the scheduler":
        # Too small for the pod that waits.
        driver.handle(happened.NodeAdded(node("n3", cpu="3", memory="4Gi")))
        assert driver.last(to_do.Bind, "vip").node == "n3"
    else:
        driver.handle(happened.PodUpdated(bound(vip, "n9")))
    driver.after(2)
    assert driver.last(to_do.Bind, "web").node == "n2"


def test_a_nomination_that_ends_before_the_watch_shows_it_retries_pods() -> None:
    driver = SchedulerDriver(cpu="2")
    low = pod("low", cpu="2", priority=1, on="n1")
    driver.handle(happened.PodAdded(low))
    vip = driver.add("vip", cpu="2", priority=100)
    evict = driver.last(to_do.Evict, "low")
    driver.handle(happened.EvictDone(evict.effect, evict.uid), happened.PodUpdated(leaving(low)))
    driver.handle(happened.PodDeleted(low), happened.PodAdded(pod("web", cpu="1")), heads_max=1)
    nominator = driver.scheduler.queue.nominator
    assert (driver.stage("web"), nominator.node_of(vip.uid)) == (None, "n1")
    # Another client takes half of the node: too little is left for the nominated pod.
    driver.handle(happened.PodAdded(pod("boss", cpu="1", priority=1000, on="n1")))
    assert nominator.node_of(vip.uid) == ""
    driver.after(2)
    assert driver.last(to_do.Bind, "web").node == "n1"


def test_a_nominated_pod_on_its_node_retries_no_pod() -> None:
    driver = Listening()
    driver.add("vip", cpu="6", priority=5, nominated="n1")
    driver.heard.clear()
    driver.handle(happened.PodUpdated(pod("vip", cpu="6", priority=5, nominated="n1", on="n1")))
    assert driver.heard == [ASSIGNED_POD_ADD.label]


def test_deleting_a_pod_without_nomination_retries_no_pod() -> None:
    driver = Listening()
    big = driver.add("big", cpu="100")
    driver.handle(happened.PodDeleted(big))
    assert driver.heard == []


def test_changes_of_a_pod_that_waits_at_permit_are_kept_for_its_next_attempt() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel")
    web = driver.add("web", labels={"permit": "60"})
    changed = replace(web, metadata=replace(web.metadata, labels={"app": "web"}))
    assert driver.handle(happened.PodUpdated(changed)) == []
    driver.handle(happened.Rejected(web.uid, "PermitByLabel"))
    entry = driver.scheduler.queue.get(web.key)
    assert entry is not None
    assert entry.pod.labels == {"app": "web"}


def test_without_hints_a_bound_pod_retries_only_pods_refused_by_cross_node_plugins() -> None:
    """A new pod does not retry pods that lack resources; released resources do."""
    driver = SchedulerDriver(hints="no", cpu="1")
    driver.add("web", cpu="2")
    neighbour = pod("api", cpu="2", on="n1")
    driver.handle(happened.PodAdded(neighbour))
    labelled = replace(neighbour, metadata=replace(neighbour.metadata, labels={"app": "api"}))
    driver.handle(happened.PodUpdated(labelled))
    assert driver.scheduler.queue.place_of("default/web") is SubQueue.UNSCHEDULABLE
    smaller = pod("api", cpu="1", on="n1", labels={"app": "api"})
    driver.handle(happened.PodUpdated(smaller))
    assert driver.scheduler.queue.place_of("default/web") is SubQueue.BACKOFF


# Nodes.


def test_node_updates_are_events_by_what_has_changed() -> None:
    driver = Listening()
    driver.handle(happened.NodeAdded(node("n2", cpu="1")))
    driver.handle(happened.NodeUpdated(node("n2", cpu="2", taints=["gpu:NoSchedule"])))
    driver.handle(happened.NodeUpdated(node("n2", cpu="2", taints=["gpu:NoSchedule"])))
    driver.handle(happened.NodeDeleted(node("n2")))
    assert driver.heard == [
        "NodeAdd",
        "NodeUpdateNodeAllocatable",
        "NodeUpdateNodeTaint",
        "NodeDelete",
    ]


# Others.


@pytest.mark.parametrize("is_heard", [True, False])
def test_other_objects_are_stored_and_some_are_events(is_heard: bool) -> None:
    driver = Listening()
    kind = PersistentVolumeClaim if is_heard else Namespace
    value = kind(metadata=ObjectMeta(name="data"))
    key = "default/data" if is_heard else "data"
    driver.handle(happened.ObjectAdded(value))
    assert driver.scheduler.cache.object_store.find(kind, key) is value
    changed = replace(value, metadata=replace(value.metadata, labels={"app": "web"}))
    driver.handle(happened.ObjectUpdated(changed))
    assert driver.scheduler.cache.object_store.find(kind, key) is changed
    driver.handle(happened.ObjectDeleted(value))
    driver.handle(happened.ObjectDeleted(value))
    assert driver.scheduler.cache.object_store.find(kind, key) is None
    whole = "PersistentVolumeClaim"
    assert driver.heard == ([f"{whole}Add", f"{whole}Update", f"{whole}Delete"] * is_heard)


def test_an_object_sent_again_by_the_watch_keeps_the_assumed_version() -> None:
    driver = Listening()
    volume = PersistentVolume(metadata=ObjectMeta(name="p", uid="p", resource_version="7"))
    driver.handle(happened.ObjectAdded(volume))
    taken = replace(volume, metadata=replace(volume.metadata, labels={"taken": "yes"}))
    object_store = driver.scheduler.cache.object_store
    object_store.assume(taken)
    again = replace(volume, metadata=replace(volume.metadata))
    driver.handle(happened.ObjectAdded(again))
    assert object_store.find(PersistentVolume, "p") is taken
    newer = replace(volume, metadata=replace(volume.metadata, resource_version="8"))
    driver.handle(happened.ObjectUpdated(newer))
    assert object_store.find(PersistentVolume, "p") is newer
    assert driver.heard == ["PersistentVolumeAdd", "PersistentVolumeUpdate"]


def test_a_new_claim_retries_its_pod() -> None:
    driver = SchedulerDriver()
    driver.add("web", claims=["data"])
    assert driver.stage("web") is None
    meta = ObjectMeta(name="data", namespace="default")
    driver.handle(happened.ObjectAdded(PersistentVolumeClaim(metadata=meta)))
    entry = driver.scheduler.queue.get("default/web")
    assert entry is not None
    assert entry.attempts == 2
    assert isinstance(driver.effects[-1], to_do.PatchStatus)
