"""Plugins for scripts and worlds: they do what the labels of a pod tell them to."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stowplan.framework import (
    OK,
    SKIP,
    Code,
    CycleState,
    Handle,
    ObjectChange,
    PermitWait,
    PreBindWait,
    Snapshot,
    Status,
    error,
    unschedulable,
)
from stowplan.framework.clusterevents import NODE, POD, Action, ClusterEventWithHint, on
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace


class Captain:
    """Permit: `captain=300` waits for so many seconds, `captain=no` refuses."""

    name = "Captain"
    REFUSED = unschedulable("the captain said no")

    def permit(self, pod: Pod) -> Status | PermitWait:
        order = pod.labels.get("captain", "")
        if not order:
            return OK
        return self.REFUSED if order == "no" else PermitWait(float(order))

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(NODE, Action.ADD), on(POD, Action.DELETE))


class Mate:
    """Permit: a second one that may wait: `mate=20`."""

    name = "Mate"

    def permit(self, pod: Pod) -> Status | PermitWait:
        order = pod.labels.get("mate", "")
        return PermitWait(float(order)) if order else OK


class Bosun:
    """Permit: has a say about other pods: `allows=web` lets that one go as far as the captain is
    concerned, `rejects=web` sends it back. It lets everybody through."""

    name = "Bosun"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def permit(self, pod: Pod) -> Status:
        for waiting in self.shared.waiting:
            if waiting.pod.name == pod.labels.get("allows"):
                waiting.allow("Captain")
            if waiting.pod.name == pod.labels.get("rejects"):
                waiting.reject("Bosun", f"{pod.name} goes first")
        return OK


class Crane:
    """PreBind: works outside for pods labelled `crane`, for at most a minute."""

    name = "Crane"
    label = "crane"
    perform_timeout_s = 60
    perform_in_parallel = True

    def pre_bind_pre_flight(self, pod: Pod) -> Status:
        return OK if self.label in pod.labels else SKIP

    def pre_bind(self, pod: Pod) -> Status:
        return error("the crane is broken") if pod.labels[self.label] == "broken" else OK

    async def perform(self, ctx: Any) -> None:
        """The driver of a test answers in its place."""


class Winch(Crane):
    """A second crane, which may work beside the first."""

    name = "Winch"
    label = "winch"


class Lock:
    """PreBind: `lock=30` waits for so many seconds at most, until there is a namespace of that
    name: `lock-ready`. It may wait beside the cranes. `lock-broken` breaks the contract."""

    name = "Lock"
    perform_in_parallel = True

    def pre_bind(self, pod: Pod) -> Status | PreBindWait:
        order = pod.labels.get("lock", "")
        return PreBindWait(timeout_s=float(order), late="the gate is shut") if order else OK

    def pre_bind_progress(self, snapshot: Snapshot) -> Status:
        if snapshot.object_store.observed(Namespace, "lock-broken") is not None:
            raise ValueError("boom")
        is_ready = snapshot.object_store.observed(Namespace, "lock-ready") is not None
        return OK if is_ready else Status(Code.WAIT)


class Painter:
    """PreBind: has every pod's name painted on the namespace `ship`, and looks no further."""

    name = "Painter"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def pre_bind(self, pod: Pod) -> Status | PreBindWait:
        ship = self.shared.object_store.observed(Namespace, "ship")
        if ship is None:
            return OK
        painted = ship.labels | {pod.name: "here"}
        value = replace(ship, metadata=replace(ship.metadata, labels=painted))
        change = ObjectChange(value, {"metadata": {"labels": {pod.name: "here"}}})
        return PreBindWait((change,))


class Loadmaster:
    """PreBind: `loadmaster=no` refuses at once."""

    name = "Loadmaster"

    def pre_bind(self, pod: Pod) -> Status:
        return unschedulable("too heavy") if pod.labels.get("loadmaster") == "no" else OK


class Purser:
    """Reserve: `purser=no` refuses. What is reserved is counted, to see that it is given back."""

    name = "Purser"
    REFUSED = unschedulable("no cabin")

    def __init__(self) -> None:
        self.reserved: set[str] = set()

    def reserve(self, pod: Pod) -> Status:
        if pod.labels.get("purser") == "no":
            return self.REFUSED
        self.reserved.add(pod.uid)
        return OK

    def unreserve(self, pod: Pod) -> None:
        self.reserved.discard(pod.uid)


class Pilot:
    """Bind: takes pods labelled `pilot` and binds them itself, outside."""

    name = "Pilot"
    perform_timeout_s = 20

    def bind(self, pod: Pod) -> Status:
        return OK if "pilot" in pod.labels else SKIP

    async def perform(self, ctx: Any) -> None:
        """The driver of a test answers in its place."""


class Signaller:
    """Reserve and PostBind: has the pod tried at once that the label `wakes` names, if it has been
    met. It works outside whenever a pod has been bound."""

    name = "Signaller"
    perform_timeout_s = 30

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared
        self.met: dict[str, Pod] = {}

    def pre_enqueue(self, pod: Pod) -> Status:
        self.met[pod.name] = pod
        return OK

    def reserve(self, pod: Pod, state: CycleState) -> Status:
        wanted = self.met.get(pod.labels.get("wakes", ""))
        if wanted is not None:
            state.to_activate[wanted.uid] = wanted
        return OK

    def post_bind(self, pod: Pod) -> None:
        wanted = self.met.get(pod.labels.get("wakes", ""))
        if wanted is not None:
            self.shared.to_activate[wanted.uid] = wanted

    async def perform(self, ctx: Any) -> None:
        """The driver of a test answers in its place."""


class Saboteur:
    """Breaks its contract at the point that the label `saboteur` names."""

    name = "Saboteur"

    def filter(self, pod: Pod) -> Status:
        return self._at("filter", pod)

    def reserve(self, pod: Pod) -> Status:
        return self._at("reserve", pod)

    def unreserve(self, pod: Pod) -> None:
        self._at("unreserve", pod)

    def permit(self, pod: Pod) -> Status:
        return self._at("permit", pod)

    def pre_bind_pre_flight(self, pod: Pod) -> Status:
        return self._at("flight", pod)

    def pre_bind(self, pod: Pod) -> Status:
        return self._at("prebind", pod)

    def bind(self, pod: Pod) -> Status:
        self._at("bind", pod)
        return SKIP

    def post_bind(self, pod: Pod) -> None:
        self._at("postbind", pod)

    def _at(self, point: str, pod: Pod) -> Status:
        if pod.labels.get("saboteur") == point:
            raise ValueError("boom")
        return OK


CREW = {
    one.name: one
    for one in (
        Captain,
        Mate,
        Bosun,
        Crane,
        Winch,
        Lock,
        Painter,
        Loadmaster,
        Purser,
        Pilot,
        Signaller,
        Saboteur,
    )
}
