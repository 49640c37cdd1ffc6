"""Deciders: profiles and sessions, built from configuration files and custom plugins.

What only sessions need is imported in the functions that build them: a start with profiles alone
would wait for a third as many modules again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from stowplan import config
from stowplan.assembly.build import decoded, registered, scheduler_for
from stowplan.assembly.in_tree import default_plugins
from stowplan.assembly.plugin_files import batch_parts
from stowplan.assembly.profile_reload import ProfileReload
from stowplan.config.queue_models.queue_model_choice import (
    KAI,
    KUEUE,
    KUEUE_KIND,
    SCHEDULER,
    VOLCANO,
)
from stowplan.config.queue_models.scheduler_config_map import configuration_of_config_map
from stowplan.config.session_configuration import (
    KUBE_BATCH_0_5,
    VOLCANO_1_15,
    BatchConfiguration,
    SupportedSettings,
)
from stowplan.framework import (
    ConfigError,
    ContractError,
    FeatureGates,
    Framework,
    Problem,
    Registry,
    Snapshot,
)
from stowplan.framework.deciders.session_decider import SessionDecider
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.plugin_calls import duplicate_name
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36

if TYPE_CHECKING:
    from stowplan.batch import SessionOptions
    from stowplan.batch.decider import BatchDecider, BatchPlan
    from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
    from stowplan.batch.queue_models.model_decider import ModelDecider, ModelPlan
    from stowplan.batch.session import SessionAction, SessionPlugin
    from stowplan.kube_batch_v05.decider import KubeBatchDecider, KubeBatchPlan
    from stowplan.plugins.gpu_share.gpu_share import GpuShareArgs


MODEL_OF_COMPAT: Mapping[str, str] = {VOLCANO_1_15: VOLCANO, KAI: KAI}
"""Value of `--compat` -> the queue model that it chooses."""


class ConfigText(NamedTuple):
    """Text of a configuration file. source: its name in errors."""

    text: str | bytes
    source: str


class Deciders(msgspec.Struct, frozen=True):
    """A configuration and its custom parts.

    registry: of the scheduling plugins. actions, session_plugins: custom session actions and
    session plugins, by name. files: what each file configures, without the others. compat: "" for
    the sessions of today, KUBE_BATCH_0_5 for the original. group_compat: the same for pod groups of
    Kubernetes: KUBE_SCHEDULER_1_36, see `SchedulerOptions.compat`. gates: of all profiles.
    model_compat: a key of MODEL_OF_COMPAT, which chooses its queue model with the original's
    defects; "" leaves the choice to the file. kueue: of the admission in front of the profiles;
    None where nothing is admitted.
    """

    configuration: config.Configuration
    registry: Registry
    actions: dict[str, type[SessionAction]]
    session_plugins: dict[str, type[SessionPlugin]]
    files: tuple[config.Configuration, ...] = ()
    compat: str = ""
    group_compat: str = ""
    gates: FeatureGates = FeatureGates()
    model_compat: str = ""
    kueue: KueueOptions | None = None

    @property
    def batch(self) -> BatchConfiguration | None:
        """Configuration of sessions; None if there are none."""
        return self.configuration.batch

    def framework(self, shared: HandleState | None = None) -> Framework:
        """Framework of the session rules: the current ones plus custom plugins."""
        from stowplan.assembly.sessions.profile_rules import session_framework

        own = tuple(entry.plugin for entry in self.registry.third_party())
        # The original counts no cards.
        cards = None if self.compat else self._card_arguments()
        return session_framework(own=own, shared=shared, cards=cards)

    def _card_arguments(self) -> GpuShareArgs:
        """The arguments of GpuShare in the first profile that has it, else the default ones."""
        from stowplan.plugins.gpu_share.gpu_share import GpuShareArgs

        profiles = self.configuration.profiles.values()
        args = (one for profile in profiles for one in profile.args.values())
        return next((one for one in args if isinstance(one, GpuShareArgs)), GpuShareArgs())

    def session_options(
        self, snapshot: Callable[[], Snapshot] | None = None, framework: Framework | None = None
    ) -> SessionOptions:
        """Options of every session; `batch` must not be None.

        snapshot: returns nodes and pods when a session opens; None: the session's node table
        without other objects.
        """
        from stowplan.assembly.sessions.session_config import rules_for, session_options

        assert self.batch is not None, "no sessions are configured"
        rules = rules_for(framework or self.framework(), snapshot)
        return session_options(self.batch, rules, self.actions, self.session_plugins)

    def session_decider(
        self,
        shared: HandleState | None = None,
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> BatchDecider | KubeBatchDecider | ModelDecider:
        """Build the session decider; `batch` must not be None.

        shared: handle state shared with the profiles. rng: breaks ties; None takes the first node.
        """
        from stowplan.batch.decider import BatchDecider

        framework = self.framework(shared)
        if self.compat == KUBE_BATCH_0_5:
            return self._kube_batch_decider(framework, rng, metrics)
        if self.batch is not None and self.batch.queue_model is not None:
            return self._model_decider(framework, metrics)
        made: list[BatchDecider] = []

        def snapshot() -> Snapshot:
            return made[0].snapshot()

        def reread(text: str, source: str) -> BatchPlan:
            return self.reread(text, source)._plan(snapshot, framework)

        made.append(BatchDecider(self._plan(snapshot, framework), framework, reread, rng, metrics))
        return made[0]

    def _kube_batch_decider(
        self, framework: Framework, rng: np.random.Generator | None, metrics: Metrics | None
    ) -> KubeBatchDecider:
        from stowplan.assembly.sessions.kube_batch_v05 import kube_batch_plan
        from stowplan.kube_batch_v05.decider import KubeBatchDecider

        assert self.batch is not None, "no sessions are configured"

        def reread(text: str, source: str) -> KubeBatchPlan:
            batch = self.reread(text, source).batch
            assert batch is not None, "a text without sessions is refused"
            return kube_batch_plan(batch)

        return KubeBatchDecider(kube_batch_plan(self.batch), framework, reread, rng, metrics)

    def _model_decider(self, framework: Framework, metrics: Metrics | None) -> ModelDecider:
        from stowplan.assembly.sessions.queue_models import QUEUE_MODELS, model_plan
        from stowplan.batch.queue_models.model_decider import ModelDecider

        batch, compat = self.batch, self.model_compat
        assert batch is not None, "no sessions are configured"

        def reread(text: str, source: str) -> ModelPlan:
            read = self.reread(text, source).batch
            if read is None or read.queue_model is None:
                wanted = f"the queue model {plan.model}, as until now"
                raise ConfigError(source, [Problem(SCHEDULER, "another one", wanted)])
            return model_plan(read, compat)

        plan = model_plan(batch, compat)
        model = QUEUE_MODELS[plan.model].make(plan.settings, batch)
        return ModelDecider(plan, model, framework, reread, metrics)

    @property
    def _known_names(self) -> SupportedSettings:
        from stowplan.assembly.sessions.session_config import known_names

        return known_names(
            self.actions,
            self.session_plugins,
            lenient=bool(self.compat),
            model=MODEL_OF_COMPAT.get(self.model_compat, ""),
        )

    def reread(self, text: str, source: str) -> Deciders:
        """The same parts with another text; raises ConfigError, also if it configures no
        sessions."""
        text, source = configuration_of_config_map(text, source)
        read = config.parse(
            text, source, self.registry, default_plugins(self.gates), self._known_names
        )
        if read.batch is None:
            problem = Problem("actions", "no sessions", "actions and tiers, or a block `batch`")
            raise ConfigError(source, [problem])
        return msgspec.structs.replace(self, configuration=read)

    def with_file(self, text: str, source: str) -> Deciders:
        """The same with another text of one of the files; raises ConfigError."""
        read = config.parse(
            text, source, self.registry, default_plugins(self.gates), self._known_names
        )
        files = tuple(read if one.source == source else one for one in self.files)
        if read not in files:
            files = (*files, read)
        return msgspec.structs.replace(self, configuration=config.merged(files), files=files)

    def _plan(self, snapshot: Callable[[], Snapshot], framework: Framework) -> BatchPlan:
        from stowplan.batch.bind_failure_policy import BindFailurePolicy
        from stowplan.batch.decider import BatchPlan

        batch = self.batch
        assert batch is not None, "no sessions are configured"
        return BatchPlan(
            batch.scheduler_names,
            batch.default_queue,
            batch.period_s,
            batch.uses_priority_classes,
            self.session_options(snapshot, framework),
            BindFailurePolicy(batch.bind_failures_max, batch.bind_failure_policy),
        )

    def scheduler(
        self,
        rng: np.random.Generator | None = None,
        options: SchedulerOptions | None = None,
        engine: str = "auto",
        metrics: Metrics | None = None,
    ) -> Scheduler:
        """Build a scheduler with profiles, sessions or both; see `scheduler_for`."""
        gates = self.gates
        options = options or SchedulerOptions()
        if self.group_compat:
            options = msgspec.structs.replace(options, compat=self.group_compat)

        def sessions(shared: HandleState) -> SessionDecider:
            # A separate generator, so that sessions do not influence the tie-breaks of profiles.
            own = None if rng is None else rng.spawn(1)[0]
            return self.session_decider(shared, own, metrics)

        def others() -> dict[str, Framework]:
            batch = self.batch
            return {} if batch is None else dict.fromkeys(batch.scheduler_names, self.framework())

        reread = ProfileReload(
            lambda text, source: self.with_file(text, source).configuration,
            self.configuration,
            self.registry,
            others,
            gates,
            options,
            engine,
            metrics,
        )
        return scheduler_for(
            self.configuration,
            self.registry,
            gates,
            rng,
            options,
            engine,
            None if self.batch is None else sessions,
            metrics,
            reread,
        )


def deciders_of(
    files: Sequence[ConfigText],
    plugins: Iterable[Callable[..., Any]] = (),
    compat: str | Iterable[str] = (),
    gates: FeatureGates | None = None,
    *,
    admits: bool = False,
) -> Deciders:
    """Read configuration files; without any, the default configuration.

    One file may hold profiles (KubeSchedulerConfiguration or Policy) and one sessions (actions and
    tiers). compat: values of `--compat`; those of schedulers that do not decide here change
    nothing. A ConfigMap of Volcano stands for the file in it. gates: None for the defaults.
    admits: whether the caller lets Kueue admit jobs, if a
    file or compat chooses it; else that is an error. Raises ConfigError and ContractError.
    """
    files = _without_config_maps(files)
    names = compat_names(compat)
    session_compat = KUBE_BATCH_0_5 if KUBE_BATCH_0_5 in names else ""
    group_compat = KUBE_SCHEDULER_1_36 if KUBE_SCHEDULER_1_36 in names else ""
    gates = gates or FeatureGates()
    texts = " ".join(decoded(file.text) for file in files)
    given = tuple(plugins)
    actions, session_plugins = batch_parts(given, texts)
    if actions or session_plugins:
        _check_session_parts(actions, session_plugins, session_compat)
    full, defaults = registered(given, texts, gates)
    model_compat = next((name for name in MODEL_OF_COMPAT if name in names), "")
    model = MODEL_OF_COMPAT.get(model_compat, "")
    for_kueue = [file for file in files if _is_for_kueue(file)]
    others = [file for file in files if file not in for_kueue]
    read: list[config.Configuration] = []
    if others or model:
        from stowplan.assembly.sessions.session_config import known_names

        known = known_names(actions, session_plugins, lenient=bool(session_compat), model=model)
        read += [config.parse(file.text, file.source, full, defaults, known) for file in others]
        if model and not any(one.batch is not None for one in read):
            if not read:
                read.append(config.default(full, defaults))
            text = f"{SCHEDULER}: {model}"
            read.append(config.parse(text, "default configuration", full, defaults, known))
    return Deciders(
        config.merged(read) if read else config.default(full, defaults),
        full,
        actions,
        session_plugins,
        tuple(read),
        session_compat,
        group_compat,
        gates,
        model_compat,
        _kueue_options(for_kueue, names, admits=admits),
    )


def _is_for_kueue(file: ConfigText) -> bool:
    """Whether a file chooses Kueue; most do not name it and need not be read twice."""
    text = decoded(file.text)
    if KUEUE not in text and f"kind: {KUEUE_KIND}" not in text:
        return False
    from stowplan.assembly.sessions.kueue_settings import is_for_kueue

    return is_for_kueue(file.text)


def _check_session_parts(
    actions: Mapping[str, type[SessionAction]],
    session_plugins: Mapping[str, type[SessionPlugin]],
    compat: str,
) -> None:
    """Raise ContractError for custom session plugins and actions that cannot run."""
    from stowplan.assembly.sessions.session_config import ACTIONS, SESSION_PLUGINS
    from stowplan.batch.plugin_checks import check_part

    for name in (
        *(actions.keys() & ACTIONS.keys()),
        *(session_plugins.keys() & SESSION_PLUGINS.keys()),
    ):
        own = actions.get(name) or session_plugins[name]
        in_tree = ACTIONS[name] if name in actions else SESSION_PLUGINS[name]
        raise ContractError(duplicate_name(in_tree, own, "class"))
    parts: list[type[SessionPlugin] | type[SessionAction]] = [
        *actions.values(),
        *session_plugins.values(),
    ]
    for part in parts:
        where = f"class {part.__module__}.{part.__qualname__}"
        if compat:
            raise ContractError(
                f"{where}: custom session plugins and actions do not run in {compat}: "
                "expected no --compat"
            )
        check_part(part, where)


def _kueue_options(
    files: Sequence[ConfigText], compats: Sequence[str], *, admits: bool
) -> KueueOptions | None:
    """Options of Kueue's admission: of its file, else by `--compat`."""
    is_fixed = KUEUE not in compats
    if (files or not is_fixed) and not admits:
        source = files[0].source if files else "--compat"
        commands = "simulate, up, queues, explain, what-if, capacity, eta or run --act"
        wanted = f"{commands}: nothing is admitted elsewhere"
        raise ConfigError(source, [Problem(SCHEDULER, KUEUE, wanted)])
    if not files and is_fixed:
        return None
    from stowplan.assembly.sessions.kueue_settings import read_kueue_options
    from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions

    found = [read_kueue_options(one.text, one.source, is_fixed=is_fixed) for one in files]
    if len(found) > 1:
        problem = Problem(SCHEDULER, "a second file for Kueue", "one file for Kueue")
        raise ConfigError(files[1].source, [problem])
    return found[0] if found else KueueOptions()


def compat_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names of schedulers whose defects are reproduced, from one name, "" for none, or several."""
    return ((given,) if given else ()) if isinstance(given, str) else tuple(given)


def _without_config_maps(files: Sequence[ConfigText]) -> list[ConfigText]:
    return [
        ConfigText(*configuration_of_config_map(decoded(one.text), one.source)) for one in files
    ]
