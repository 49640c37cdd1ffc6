"""Queue models by name: how each is made from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stowplan.assembly.sessions.kai_devices import device_allocation
from stowplan.assembly.sessions.kai_rules import fits_node_rules, fits_rules, pods_refusal
from stowplan.assembly.sessions.kai_settings import live_kai_options
from stowplan.assembly.sessions.kai_volumes import VolumeBindings
from stowplan.assembly.sessions.volcano_rules import FrameworkPodRules
from stowplan.assembly.sessions.volcano_sessions import (
    VOLCANO_ACTIONS,
    VOLCANO_PLUGINS,
    volcano_options,
)
from stowplan.batch.queue_models.kai.kai_session import KaiRules
from stowplan.batch.queue_models.kai.model.kai_model import KaiModel, KaiParts, kinds_of_kai
from stowplan.batch.queue_models.model_decider import ModelPlan
from stowplan.batch.queue_models.queue_model import QueueModel
from stowplan.batch.queue_models.volcano.model.volcano_model import VolcanoModel, VolcanoParts
from stowplan.batch.queue_models.volcano.volcano_defects import ALL_DEFECTS
from stowplan.config.queue_models.kai_configuration import read_kai
from stowplan.config.queue_models.queue_model_choice import KAI, VOLCANO
from stowplan.config.queue_models.volcano_configuration import read_volcano
from stowplan.config.session_configuration import VOLCANO_1_15, BatchConfiguration
from stowplan.config.strict_decoder import Problems
from stowplan.objects.meta import Object


class QueueModelKind:
    """How a queue model is made.

    settings: (configuration, compat) -> what `QueueModel.configure` takes; compat is "" or a value
    of `--compat`. make: (settings, configuration) -> model. reads: settings -> see `QueueModel`.
    """

    def __init__(
        self,
        settings: Callable[[BatchConfiguration, str], Any],
        make: Callable[[Any, BatchConfiguration], QueueModel],
        reads: Callable[[Any], tuple[type[Object], ...]],
    ) -> None:
        self.settings, self.make, self.reads = settings, make, reads


def _volcano_settings(configuration: BatchConfiguration, compat: str) -> Any:
    model = configuration.queue_model
    assert model is not None, "no queue model is configured"
    problems = Problems()
    read = read_volcano(model.tree, problems)
    assert not problems.found, "the configuration was checked when it was read"
    return volcano_options(read, frozenset() if compat == VOLCANO_1_15 else ALL_DEFECTS)


def _volcano(settings: Any, configuration: BatchConfiguration) -> QueueModel:
    parts = VolcanoParts(FrameworkPodRules, VOLCANO_ACTIONS, VOLCANO_PLUGINS)
    names, queue = configuration.scheduler_names, configuration.default_queue
    return VolcanoModel(settings, parts, names, queue)


def _kai_settings(configuration: BatchConfiguration, compat: str) -> Any:
    model = configuration.queue_model
    assert model is not None, "no queue model is configured"
    problems = Problems()
    read = read_kai(model.tree, problems)
    assert not problems.found, "the configuration was checked when it was read"
    return live_kai_options(read, is_exact=compat == KAI)


def _kai(settings: Any, configuration: BatchConfiguration) -> QueueModel:
    rules = KaiRules(fits_rules, fits_node_rules, pods_refusal, VolumeBindings)
    return KaiModel(settings, KaiParts(rules, device_allocation), configuration.scheduler_names)


QUEUE_MODELS: Mapping[str, QueueModelKind] = {
    VOLCANO: QueueModelKind(_volcano_settings, _volcano, lambda _: VolcanoModel.reads),
    KAI: QueueModelKind(_kai_settings, _kai, kinds_of_kai),
}
"""Queue model -> how it is made."""


def model_plan(configuration: BatchConfiguration, compat: str) -> ModelPlan:
    """Settings of a decider."""
    model = configuration.queue_model
    assert model is not None, "no queue model is configured"
    settings = QUEUE_MODELS[model.model].settings(configuration, compat)
    return ModelPlan(
        model.model,
        configuration.scheduler_names,
        configuration.default_queue,
        configuration.period_s,
        configuration.uses_priority_classes,
        settings,
        QUEUE_MODELS[model.model].reads(settings),
    )


def counts_usage(configuration: BatchConfiguration | None, compat: str) -> bool:
    """Whether fair shares depend on usage over time, of which the scheduler's process has the
    record."""
    model = None if configuration is None else configuration.queue_model
    if configuration is None or model is None or model.model != KAI:
        return False
    return _kai_settings(configuration, compat).usage is not None
