"""Gates: the PreEnqueue plugins, which keep a pod out of the queue without an attempt.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go runPreEnqueuePlugins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stowplan.framework.runtime import Framework
from stowplan.framework.status import OK, Status
from stowplan.objects.pod import Pod
from stowplan.queue.entry import QueueEntry

Gate = Callable[[Pod], Status]


class Gates:
    """The gates of each profile, in the order in which they are asked."""

    def __init__(self, by_profile: Mapping[str, Sequence[tuple[str, Gate]]]) -> None:
        """by_profile: scheduler name -> (plugin, its `pre_enqueue`)."""
        self._by_profile = {name: tuple(gates) for name, gates in by_profile.items()}

    @classmethod
    def of(cls, frameworks: Mapping[str, Framework]) -> Gates:
        """The PreEnqueue plugins of the profiles."""
        found: dict[str, list[tuple[str, Gate]]] = {name: [] for name in frameworks}
        for name, framework in frameworks.items():
            for member in framework.at("preEnqueue"):
                call = member.calls["pre_enqueue"]
                if call is not None:
                    found[name].append((member.name, call))
        return cls(found)

    def lets_in(self, entry: QueueEntry) -> bool:
        """Ask the gates and write into the entry which one keeps it out, if any.

        The gate that has kept it out so far is asked first. One that refuses joins the plugins
        that refused the pod, and stays among them when it opens.
        """
        pod = entry.pod
        gates = self._by_profile.get(pod.spec.scheduler_name, ())
        if entry.gated_by:
            gates = tuple(sorted(gates, key=lambda gate: gate[0] != entry.gated_by))
        for name, ask in gates:
            status = ask(pod)
            if status is not OK and not status.is_success:
                entry.gated_by = name
                entry.refused_by |= {name}
                return False
        entry.gated_by = ""
        return True
