"""Which option has pods and queues decided that the configuration leaves alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.config.queue_models.queue_model_choice import (
    KAI,
    KAI_SCHEDULER,
    KUBE_BATCH,
    KUEUE,
    SCHEDULER,
    VOLCANO,
)
from stowplan.config.session_configuration import VOLCANO_1_15

OPTIONS: Mapping[str, str] = {
    KAI: f"--compat {KAI}, or --config FILE with `{SCHEDULER}: {KAI}`",
    VOLCANO: f"--compat {VOLCANO_1_15}, or --config FILE with `{SCHEDULER}: {VOLCANO}`",
    KUEUE: f"--compat {KUEUE}, or --config FILE with `{SCHEDULER}: {KUEUE}`",
    KUBE_BATCH: "--config FILE with actions and tiers",
}
"""Value of `scheduler` -> the options with which it decides."""
SESSION_SCHEDULERS: Mapping[str, str] = {
    KAI_SCHEDULER: KAI,
    VOLCANO: VOLCANO,
    KUBE_BATCH: KUBE_BATCH,
}
"""Scheduler name of pods that sessions decide by default -> key of OPTIONS."""


def no_profile(scheduler_name: str) -> str:
    """Why a pod is not scheduled that names a scheduler which is not configured."""
    text = f"no profile has schedulerName {scheduler_name!r}"
    model = SESSION_SCHEDULERS.get(scheduler_name)
    return text if model is None else f"{text} (add {OPTIONS[model]})"


def no_sessions(scheduler_names: Iterable[str] = ()) -> str:
    """Why gangs are not scheduled as such. scheduler_names: of their pods; others than those of
    queue models count as kube-batch's."""
    models = {SESSION_SCHEDULERS.get(name, KUBE_BATCH) for name in scheduler_names}
    model = models.pop() if len(models) == 1 else KUBE_BATCH
    return f"no sessions are configured (add {OPTIONS[model]})"
