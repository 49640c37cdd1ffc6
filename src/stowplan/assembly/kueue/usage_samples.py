"""Samples of what LocalQueues use, at the interval of the configuration.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/localqueue_controller.go.
"""

from __future__ import annotations

from stowplan.assembly.kueue.kueue_admission_controller import KueueAdmissionController
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controllers.kueue.kueue_kinds import LOCAL_QUEUES
from stowplan.objects.store import WatchEvent


class UsageSamples:
    """Lets an admission controller take them. The controller takes those that are due with every
    cycle too, so that none is late where cycles are."""

    name = "kueue-usage"
    observed = (LOCAL_QUEUES,)
    n_failing = 0

    def __init__(self, controller: KueueAdmissionController) -> None:
        self._controller = controller

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Nothing: the controller follows LocalQueues."""

    def work_once(self) -> bool:
        """Take the samples that are due; False if none is."""
        at = self.next_at()
        if at is None or at > self._controller.api.now:
            return False
        self._controller.sample_usage()
        return True

    def next_at(self) -> float | None:
        """When the next one is due, in seconds; None before the first cycle."""
        admission = self._controller.admission
        return None if admission is None or admission.usage is None else admission.usage.next_at()
