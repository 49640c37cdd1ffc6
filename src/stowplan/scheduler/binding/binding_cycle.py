"""Journey: a pod between the choice of its node and the watch's word that it is there.

It is in one of these stages, each with what ends it:

    waiting      at Permit, for plugins to allow it    all allow; one rejects; a wait is over
    preparing    plugins work outside before Bind,     PrepareDone, PrepareFailed; time is up
                 or have objects changed               WriteDone, WriteFailed; the watch; time is up
    binding      somebody has been asked to bind it    BindDone, BindFailed, PrepareDone; the watch
    doubtful     nobody knows what became of it, or    PodRead; the watch
                 it was refused and is one of a gang
    bound        the API said yes                      the watch

The room on the node is held from the choice on. Whatever fails ends the same way: Unreserve in
reverse order, the room given back, the pods that it kept out tried again, the pod back to the
queue.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from stowplan.framework import CycleState, Framework
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry


class BindingStage(Enum):
    """Where a pod with a node is."""

    WAITING = "waiting"
    PREBIND = "preparing"
    BINDING = "binding"
    BIND_UNKNOWN = "doubtful"
    BOUND = "bound"


class BindingCycle(msgspec.Struct, gc=False):
    """A pod on its way to a node.

    awaits: the numbers of the effects whose outcomes it waits for; when doubtful, of the first
    read. waits: those plugins that wait for what they have had changed (see `preparing`).
    announced: the node is in the pod's nomination, or soon will be. step: how many PreBind plugins
    have been asked. binder: the plugin that took the pod. doubt: what went wrong with the binding,
    should it turn out not to have taken place. score: of the node, see `Decision`.
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
        """True while it waits for anything but Permit and the watch's last word."""
        return bool(self.awaits or self.waits)

    @property
    def placed(self) -> Pod:
        """The pod as if it were bound: what gives back room when it leaves."""
        pod = self.entry.pod
        spec = msgspec.structs.replace(pod.spec, node_name=self.node)
        return msgspec.structs.replace(pod, spec=spec)
