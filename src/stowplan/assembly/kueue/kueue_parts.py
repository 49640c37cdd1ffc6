"""The controllers of Kueue, as the controller manager runs them."""

from __future__ import annotations

from stowplan.assembly.kueue.kueue_admission_controller import KueueAdmissionController
from stowplan.assembly.kueue.usage_samples import UsageSamples
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex
from stowplan.controllers.kueue.check_answers import CheckAnswers
from stowplan.controllers.kueue.pods_ready_controller import PodsReadyController
from stowplan.controllers.kueue.queued_job_controller import QueuedJobController
from stowplan.controllers.kueue.queued_job_kinds import JOB_KINDS
from stowplan.controllers.kueue.queued_pod_controller import QueuedPodController
from stowplan.controllers.kueue.topology_ungater import TopologyUngater
from stowplan.objects.store import Store


def kueue_controllers(
    api: Store, index: ObjectIndex, recorder: EventRecorder, options: KueueOptions
) -> list[Controller | KueueAdmissionController | UsageSamples]:
    """All of them."""
    kinds = (QueuedPodController, TopologyUngater, CheckAnswers)
    pods_ready = PodsReadyController(api, index, recorder)
    rules = options.pods_ready
    if rules is not None:
        pods_ready.timeout_s, pods_ready.recovery_s = rules.timeout_s, rules.recovery_s
        pods_ready.backoff_s, pods_ready.backoff_max_s = rules.backoff_s, rules.backoff_max_s
        pods_ready.requeues_max = rules.requeues_max
    admission = KueueAdmissionController(api, recorder, options)
    samples = [] if options.usage is None else [UsageSamples(admission)]
    return [
        *(kind(api, index, recorder) for kind in kinds),
        *(QueuedJobController(api, index, recorder, kind) for kind in JOB_KINDS),
        pods_ready,
        admission,
        *samples,
    ]
