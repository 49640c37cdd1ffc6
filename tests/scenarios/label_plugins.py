"""Test plugins controlled by pod labels, for scripts, random walks and fault runs."""

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


class PermitByLabel:
    """Permit: `permit=300` waits for up to 300 seconds, `permit=no` refuses."""

    name = "PermitByLabel"
    REFUSED = unschedulable("permit refused")

    def permit(self, pod: Pod) -> Status | PermitWait:
        value = pod.labels.get("permit", "")
        if not value:
            return OK
        return self.REFUSED if value == "no" else PermitWait(float(value))

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(NODE, Action.ADD), on(POD, Action.DELETE))


class SecondPermit:
    """Permit: `second-permit=20` waits for up to 20 seconds, beside PermitByLabel."""

    name = "SecondPermit"

    def permit(self, pod: Pod) -> Status | PermitWait:
        value = pod.labels.get("second-permit", "")
        return PermitWait(float(value)) if value else OK


class PermitForOthers:
    """Permit: `allows=web` settles the wait of pod web at PermitByLabel, `rejects=web` rejects
    that pod. The plugin allows every pod itself."""

    name = "PermitForOthers"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def permit(self, pod: Pod) -> Status:
        for waiting in self.shared.waiting:
            if waiting.pod.name == pod.labels.get("allows"):
                waiting.allow("PermitByLabel")
            if waiting.pod.name == pod.labels.get("rejects"):
                waiting.reject("PermitForOthers", f"{pod.name} goes first")
        return OK


class PreBindIO:
    """PreBind: does I/O for pods labelled `prebind-io`, for at most a minute; `prebind-io=fails`
    fails before the I/O."""

    name = "PreBindIO"
    label = "prebind-io"
    perform_timeout_s = 60
    perform_in_parallel = True

    def pre_bind_pre_flight(self, pod: Pod) -> Status:
        return OK if self.label in pod.labels else SKIP

    def pre_bind(self, pod: Pod) -> Status:
        return error("prebind failed") if pod.labels[self.label] == "fails" else OK

    async def perform(self, ctx: Any) -> None:
        """Never called: the test decides the outcome."""


class SecondPreBindIO(PreBindIO):
    """PreBind: does I/O for pods labelled `second-prebind-io`, in parallel with PreBindIO."""

    name = "SecondPreBindIO"
    label = "second-prebind-io"


class PreBindUntilReady:
    """PreBind: `prebind-wait=30` waits for up to 30 seconds for the namespace `prebind-ready`, in
    parallel with I/O. The namespace `prebind-broken` makes it break its contract."""

    name = "PreBindUntilReady"
    perform_in_parallel = True

    def pre_bind(self, pod: Pod) -> Status | PreBindWait:
        value = pod.labels.get("prebind-wait", "")
        return PreBindWait(timeout_s=float(value), late="not ready in time") if value else OK

    def pre_bind_progress(self, snapshot: Snapshot) -> Status:
        if snapshot.object_store.observed(Namespace, "prebind-broken") is not None:
            raise ValueError("boom")
        is_ready = snapshot.object_store.observed(Namespace, "prebind-ready") is not None
        return OK if is_ready else Status(Code.WAIT)


class PreBindWrite:
    """PreBind: adds every pod's name as a label to the namespace `shared`, if it exists."""

    name = "PreBindWrite"

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared

    def pre_bind(self, pod: Pod) -> Status | PreBindWait:
        namespace = self.shared.object_store.observed(Namespace, "shared")
        if namespace is None:
            return OK
        labels = namespace.labels | {pod.name: "here"}
        value = replace(namespace, metadata=replace(namespace.metadata, labels=labels))
        change = ObjectChange(value, {"metadata": {"labels": {pod.name: "here"}}})
        return PreBindWait((change,))


class PreBindRefusal:
    """PreBind: `prebind=no` refuses."""

    name = "PreBindRefusal"

    def pre_bind(self, pod: Pod) -> Status:
        return unschedulable("prebind refused") if pod.labels.get("prebind") == "no" else OK


class ReserveByLabel:
    """Reserve: `reserve=no` refuses. reserved: uids of the pods that hold a reservation."""

    name = "ReserveByLabel"
    REFUSED = unschedulable("reserve refused")

    def __init__(self) -> None:
        self.reserved: set[str] = set()

    def reserve(self, pod: Pod) -> Status:
        if pod.labels.get("reserve") == "no":
            return self.REFUSED
        self.reserved.add(pod.uid)
        return OK

    def unreserve(self, pod: Pod) -> None:
        self.reserved.discard(pod.uid)


class BindIO:
    """Bind: binds pods labelled `bind-io` by I/O of its own."""

    name = "BindIO"
    perform_timeout_s = 20

    def bind(self, pod: Pod) -> Status:
        return OK if "bind-io" in pod.labels else SKIP

    async def perform(self, ctx: Any) -> None:
        """Never called: the test decides the outcome."""


class ActivateOthers:
    """Reserve and PostBind: `activates=web` activates pod web if PreEnqueue has seen it. PostBind
    also does I/O."""

    name = "ActivateOthers"
    perform_timeout_s = 30

    def __init__(self, handle: Handle) -> None:
        self.shared = handle.shared
        self.enqueued: dict[str, Pod] = {}

    def pre_enqueue(self, pod: Pod) -> Status:
        self.enqueued[pod.name] = pod
        return OK

    def reserve(self, pod: Pod, state: CycleState) -> Status:
        other = self.enqueued.get(pod.labels.get("activates", ""))
        if other is not None:
            state.to_activate[other.uid] = other
        return OK

    def post_bind(self, pod: Pod) -> None:
        other = self.enqueued.get(pod.labels.get("activates", ""))
        if other is not None:
            self.shared.to_activate[other.uid] = other

    async def perform(self, ctx: Any) -> None:
        """Never called: the test decides the outcome."""


class ContractBreaker:
    """Breaks its contract at the extension point that the label `breaks` names."""

    name = "ContractBreaker"

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
        if pod.labels.get("breaks") == point:
            raise ValueError("boom")
        return OK


LABEL_PLUGINS = {
    one.name: one
    for one in (
        PermitByLabel,
        SecondPermit,
        PermitForOthers,
        PreBindIO,
        SecondPreBindIO,
        PreBindUntilReady,
        PreBindWrite,
        PreBindRefusal,
        ReserveByLabel,
        BindIO,
        ActivateOthers,
        ContractBreaker,
    )
}
