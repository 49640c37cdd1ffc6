"""SchedulingGates: keep pods out of the queue while they have scheduling gates.

Source: kube-scheduler v1.36, plugins/schedulinggates.
"""

from __future__ import annotations

from stowplan.framework import OK, Status, unresolvable
from stowplan.framework.clusterevents import POD, Action, RegisteredEvents, on
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_hints import after_own_update


class SchedulingGates:
    """PreEnqueue on `spec.schedulingGates`."""

    name = "SchedulingGates"
    declaration = Plugin(name=name, reads=(), repeatable=True, gates_by_outline=True)

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without gates."""
        return bool(pod.spec.scheduling_gates)

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success for pods without gates; the refusal lists the gates."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return OK
        names = " ".join(gate.name for gate in gates)
        return unresolvable(f"waiting for scheduling gates: [{names}]")

    def events_to_register(self) -> RegisteredEvents:
        """The last gate of the pod was removed."""
        return (on(POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, after_own_update),)
