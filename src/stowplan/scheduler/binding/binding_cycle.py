"""BindingCycle: a pod between the choice of its node and the confirmed binding.

Stages, and the events that end them:

    waiting         at Permit                            all allow; one rejects; timeout
    prebind         plugin I/O or object changes         PrepareDone, PrepareFailed, WriteDone,
                                                         WriteFailed; the watch; timeout
    binding         bind sent                            BindDone, BindFailed, PrepareDone;
                                                         the watch
    bind unknown    outcome unknown, or bind of a gang   PodRead; the watch
                    member refused
    bound           accepted by the API server           the watch

The pod is assumed on the node from the choice on. Every failure ends the same way: Unreserve in
reverse order, the assumed pod forgotten, other pods notified of the released resources, the pod
requeued.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from stowplan.framework import CycleState, Framework
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry


class BindingStage(Enum):
    """Stage of a pod between the choice of its node and the confirmed binding."""

    WAITING = "waiting"
    PREBIND = "prebind"
    BINDING = "binding"
    BIND_UNKNOWN = "bind unknown"
    BOUND = "bound"


class BindingCycle(msgspec.Struct, gc=False):
    """State of one pod's binding cycle.

    awaits: effect numbers whose outcomes are pending; in BIND_UNKNOWN, the number of the first
    read. waits: plugins that wait for objects they changed (see `prebind`). announced: the node is,
    or is about to be, in the pod's nominatedNodeName. step: number of PreBind plugins started so
    far. binder: plugin that handles the pod's Bind. unknown_reason: the failure to report if the
    binding turns out not to have happened. score: of the node, see `Decision`.
    """

    entry: QueueEntry
    node: str
    framework: Framework
    state: CycleState
    stage: BindingStage = BindingStage.PREBIND
    awaits: tuple[int, ...] = ()
    waits: tuple[str, ...] = ()
    announced: bool = False
    step: int = 0
    binder: str = ""
    unknown_reason: str = ""
    score: int | None = None

    @property
    def pod(self) -> Pod:
        """The pod as it was when its node was chosen."""
        return self.entry.pod

    @property
    def is_busy(self) -> bool:
        """True while an outcome or a PreBind wait is pending; Permit and the final confirmation do
        not count."""
        return bool(self.awaits or self.waits)

    @property
    def placed(self) -> Pod:
        """The pod with its node name set, for events about the resources it releases."""
        pod = self.entry.pod
        spec = msgspec.structs.replace(pod.spec, node_name=self.node)
        return msgspec.structs.replace(pod, spec=spec)
