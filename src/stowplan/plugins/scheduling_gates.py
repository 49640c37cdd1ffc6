"""SchedulingGates: keep pods out of the queue while they have scheduling gates.

Source: kube-scheduler v1.36, plugins/schedulinggates.
"""

from __future__ import annotations

from stowplan.framework import OK, Status, unresolvable
from stowplan.framework.clusterevents import ClusterEventWithHint
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins import pod_hints


class SchedulingGates:
    """PreEnqueue on `spec.schedulingGates`."""

    name = "SchedulingGates"
    declaration = Plugin(name=name, reads=(), repeatable=True)

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

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        """The last gate of the pod was removed."""
        return pod_hints.scheduling_gates_events()
