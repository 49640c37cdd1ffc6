"""ProfileReload: builds the profiles of a changed configuration beside those in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from stowplan import config
from stowplan.assembly.build import filled_options, frameworks_for
from stowplan.assembly.plugin_kinds import kinds_read_by
from stowplan.cycle import CycleDecider
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import ConfigError, FeatureGates, Framework, Problem, Registry
from stowplan.framework.metrics import Metrics
from stowplan.objects.meta import Object
from stowplan.scheduler import SchedulerOptions
from stowplan.scheduler.lanes.profile_swap import PodLaneProfiles


class ProfileReload(msgspec.Struct, frozen=True):
    """How the profiles of a scheduler are read again; see `RereadProfiles`.

    parse: (text of a file, its name) -> the configuration with it. first: that of the start, whose
    extenders stay. others: frameworks of pods that profiles do not decide. gates, options, engine,
    metrics: as for `scheduler_for`.
    """

    parse: Callable[[str, str], config.Configuration]
    first: config.Configuration
    registry: Registry
    others: Callable[[], Mapping[str, Framework]]
    gates: FeatureGates | None = None
    options: SchedulerOptions | None = None
    engine: str = EngineMode.AUTO.value
    metrics: Metrics | None = None

    def __call__(self, text: str, source: str, in_use: Mapping[str, Framework]) -> PodLaneProfiles:
        """Raises ConfigError and ContractError, also if a plugin reads what is not watched."""
        read = self.parse(text, source)
        read = msgspec.structs.replace(read, extenders=self.first.extenders)
        if not read.profiles and in_use:
            problem = Problem("profiles", "none", "at least one, before a restart")
            raise ConfigError(source, [problem])
        frameworks = frameworks_for(read, self.registry, self.gates, self.metrics, in_use)
        self._check_kinds(source, frameworks)
        options = filled_options(self.options or SchedulerOptions(), read)
        return PodLaneProfiles(frameworks, CycleDecider(EngineMode(self.engine)), options.queue)

    def _check_kinds(self, source: str, frameworks: Mapping[str, Framework]) -> None:
        """Raise ConfigError if a plugin reads a kind that was not read at the start."""
        watched: set[type[Object]] = set(kinds_read_by(self.others().values()))
        if self.first.profiles:
            watched.update(
                kinds_read_by(frameworks_for(self.first, self.registry, self.gates).values())
            )
        for name, framework in frameworks.items():
            missing = [kind for kind in kinds_read_by([framework]) if kind not in watched]
            if missing:
                kinds = ", ".join(kind.__name__ for kind in missing)
                got = f"plugins that read {kinds}, which is not watched"
                problem = Problem(f"profile {name!r}", got, "a restart, to watch it")
                raise ConfigError(source, [problem])
