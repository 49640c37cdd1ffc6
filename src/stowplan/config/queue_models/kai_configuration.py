"""KAI-Scheduler's configuration file: actions, tiers of plugins with arguments.

Unknown names and values of the wrong kind are mistakes, each with its path. As in KAI, actions or
tiers that a file leaves out are the default ones.

Differs: KAI ignores unknown fields and plugins.

Source: KAI-Scheduler, pkg/scheduler/conf/scheduler_conf.go, conf_util/scheduler_conf_util.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stowplan.apis.batch.cron_schedule import parse_schedule
from stowplan.config.queue_models.kai_flags import read_flags
from stowplan.config.strict_decoder import (
    Problems,
    child_path,
    format_alternatives,
    format_value,
    mapping_of,
)
from stowplan.framework.problems import did_you_mean
from stowplan.objects.encoding import duration

ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
"""Actions, in the default order."""

NUMBER, DURATION, PLACEMENT, METHOD, PERIOD, HALF_LIFE, WINDOW, CRON, MOMENT, SWITCH, NAMES = (
    "a number",
    "a duration such as 10m",
    "binpack or spread",
    "lca or queue",
    "a duration above 0 such as 10m, 2d or 1w",
    "a duration such as 10m, 2d or 1w, or 0s for none",
    "sliding, tumbling or cron",
    "a cron expression of five fields such as 0 0 * * 1",
    "a time such as 2026-01-05T00:00:00Z",
    "true or false",
    "names of resources with commas between them",
)
NUMA, IGNORE_LIST, RECONSTRUCT = "numa", "ignoreList", "reconstructAvailable"
"""The plugin for NUMA zones, and its arguments."""

PLUGINS: Mapping[str, Mapping[str, str]] = {
    "predicates": {},
    "proportion": {"kValue": NUMBER, "relcaimerSaturationMultiplier": NUMBER},
    "priority": {},
    "elastic": {},
    "kubeflow": {},
    "ray": {},
    "nodeavailability": {},
    "gpusharingorder": {},
    "gpupack": {},
    "gpuspread": {},
    "resourcetype": {},
    "subgrouporder": {},
    "taskorder": {},
    "nominatednode": {},
    "dynamicresources": {},
    "nodeplacement": {"cpu": PLACEMENT, "gpu": PLACEMENT},
    "minruntime": {
        "defaultReclaimMinRuntime": DURATION,
        "defaultPreemptMinRuntime": DURATION,
        "reclaimResolveMethod": METHOD,
    },
    "topology": {},
    "sg-nodelocalgreedy": {},
    "sg-multinodegang": {},
    NUMA: {IGNORE_LIST: NAMES, RECONSTRUCT: SWITCH},
}
"""Plugin -> argument -> kind."""

WITHOUT_EFFECT: Mapping[str, str] = {
    "snapshot": "serve its snapshot",
    "reflectjoborder": "serve the order of jobs",
    "podaffinity": "score nodes by affinity to pods",
}
"""Plugin that is read and has no effect here -> what it would do in KAI."""

_ALWAYS_ON = frozenset(
    {
        "proportion", "priority", "elastic", "kubeflow", "ray", "subgrouporder", "taskorder",
        "minruntime", "sg-nodelocalgreedy", "sg-multinodegang",
    }
)  # fmt: skip
"""Plugins whose rules apply here whether a file names them or not."""

_DEFAULT_PLUGINS: Mapping[str, Mapping[str, str]] = {
    name: {"cpu": "binpack", "gpu": "binpack"} if name == "nodeplacement" else {}
    for name in PLUGINS
    if name not in ("gpuspread", NUMA)
}
DEPTHS, BUDGETS, FLAGS = "queueDepthPerAction", "scenarioSearchBudgets", "args"
"""Fields: jobs of a queue that an action tries; times of searches; KAI's flags."""
_BUDGETS_BY_NAME = ("maxActionSearchDuration", "maxGeneratorSearchDuration")
_GENERATORS = ("default", "NodeLocalGreedy", "MultiNodeGang")
_BUDGETS = ("maxJobSearchDuration", "minJobSearchDuration")
SHARING = "gpuSharing"
"""Field that says whether pods that ask for a part of a card are decided."""
_USAGE_STORE = ("clientType", "connectionString", "connectionStringEnvVar")
_USAGE_CHECKS = {
    "halfLifePeriod": HALF_LIFE,
    "windowSize": PERIOD,
    "windowType": WINDOW,
    "cronString": CRON,
    "tumblingWindowStartTime": MOMENT,
    "fetchInterval": PERIOD,
}
_USAGE_IDLE = ("stalenessPeriod", "waitTimeout", "extraParams")
_SWITCHES = (
    "disableJobOrder", "disableTaskOrder", "disablePreemptable", "disableReclaimable",
    "disableQueueOrder", "disablePredicate", "disableNodeOrder",
)  # fmt: skip


class KaiConfiguration(msgspec.Struct, frozen=True):
    """A file. plugins: name -> arguments. warnings: settings without effect here. usage: how usage
    over time counts, None where it does not. shares_cards: `gpuSharing` of KAI's chart. depths:
    action -> jobs of a queue that it tries. flags: see `kai_flags`."""

    actions: tuple[str, ...]
    plugins: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()
    usage: Mapping[str, Any] | None = None
    shares_cards: bool = True
    depths: Mapping[str, int] = {}
    flags: Mapping[str, Any] = {}


def read_kai(tree: Any, problems: Problems) -> KaiConfiguration:
    """Read the tree of a file, an empty one as KAI's default; adds every mistake."""
    return _KaiReader(problems).configuration(tree)


def complete_kai(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A valid file with the actions and tiers that are in force, where it has none."""
    plugins = [
        {"name": name, **({"arguments": dict(arguments)} if arguments else {})}
        for name, arguments in _DEFAULT_PLUGINS.items()
    ]
    given = {key: value for key, value in tree.items() if value or key not in ("actions", "tiers")}
    return {"actions": ", ".join(ACTIONS), "tiers": [{"plugins": plugins}], **given}


class _KaiReader:
    """Reads trees; collects mistakes and warnings."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._warnings: list[str] = []
        self._named: set[str] = set()
        """Plugins named so far."""

    def configuration(self, tree: Any) -> KaiConfiguration:
        """The whole file."""
        fields = self._fields(
            tree, "", ("actions", "tiers", "usageDBConfig", SHARING, DEPTHS, BUDGETS, FLAGS)
        )
        depths = self._depths(fields.get(DEPTHS) or {})
        if fields.get(BUDGETS):
            self._check_budgets(fields[BUDGETS])
        flags: Mapping[str, Any] = {}
        if fields.get(FLAGS):
            flags = read_flags(fields[FLAGS], FLAGS, self._problems, self._warn)
        actions = self._actions(fields["actions"]) if fields.get("actions") else ACTIONS
        plugins = self._tiers(fields["tiers"]) if fields.get("tiers") else _DEFAULT_PLUGINS
        if fields.get("tiers"):
            for name in sorted(_ALWAYS_ON - plugins.keys()):
                self._warnings.append(f"tiers: plugin {name!r} is not named; its rules apply here")
        usage = self._usage(fields["usageDBConfig"]) if fields.get("usageDBConfig") else None
        shares = fields.get(SHARING, True)
        if not isinstance(shares, bool):
            self._problems.add(SHARING, format_value(shares), "true or false")
        warnings = tuple(self._warnings)
        return KaiConfiguration(
            actions, plugins, warnings, usage, shares is not False, depths, flags
        )

    def _depths(self, tree: Any) -> Mapping[str, int]:
        found = self._fields(tree, DEPTHS, ACTIONS)
        for name, given in found.items():
            if isinstance(given, bool) or not isinstance(given, int) or given < -1:
                place = child_path(DEPTHS, name)
                self._problems.add(place, format_value(given), "a whole number, -1 for no limit")
        return found

    def _check_budgets(self, tree: Any) -> None:
        fields = self._fields(tree, BUDGETS, (*_BUDGETS_BY_NAME, *_BUDGETS))
        times = {child_path(BUDGETS, name): fields[name] for name in _BUDGETS if name in fields}
        for name in _BUDGETS_BY_NAME:
            known = (*ACTIONS, "default") if "Action" in name else _GENERATORS
            place = child_path(BUDGETS, name)
            found = self._fields(fields.get(name), place, known)
            times |= {child_path(place, key): given for key, given in found.items()}
        for place, given in times.items():
            if not _is_duration(given):
                self._problems.add(place, format_value(given), DURATION)
        self._warn(BUDGETS, "it", "limit searches by time, which are limited by a count here")

    def _usage(self, tree: Any) -> Mapping[str, Any]:
        path = "usageDBConfig"
        fields = self._fields(tree, path, (*_USAGE_STORE, "usageParams"))
        for name in _USAGE_STORE:
            if name in fields:
                self._warn(f"{path}.{name}", "it", "say where usage is recorded")
        path += ".usageParams"
        known = (*_USAGE_CHECKS, *_USAGE_IDLE)
        found = self._fields(fields.get("usageParams") or {}, path, known)
        for name, given in found.items():
            if name in _USAGE_IDLE:
                self._warn(f"{path}.{name}", "it", "be about reading usage from a store")
            elif name in _USAGE_CHECKS and not _CHECKS[_USAGE_CHECKS[name]](given):
                self._problems.add(f"{path}.{name}", format_value(given), _USAGE_CHECKS[name])
        if found.get("windowType") == "cron" and "cronString" not in found:
            self._problems.add(f"{path}.cronString", "nothing", CRON)
        return found

    def _warn(self, path: str, what: str, would: str) -> None:
        self._warnings.append(f"{path}: {what} has no effect; in KAI-Scheduler it would {would}")

    def _fields(self, tree: Any, path: str, known: Collection[str]) -> dict[str, Any]:
        return mapping_of(tree, path, known, self._problems)

    def _actions(self, tree: Any) -> tuple[str, ...]:
        if not isinstance(tree, str):
            self._problems.add("actions", format_value(tree), "a text")
            return ()
        names = tuple(part.strip() for part in tree.split(","))
        for name in names:
            if name not in ACTIONS:
                hint = did_you_mean(name, ACTIONS)
                self._problems.add("actions", repr(name), format_alternatives(ACTIONS), hint)
        return names

    def _tiers(self, tree: Any) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for path, tier in self._items(tree, "tiers"):
            fields = self._fields(tier, path, ("plugins",))
            for place, entry in self._items(fields.get("plugins"), f"{path}.plugins"):
                self._plugin(entry, place, found)
        return found

    def _items(self, tree: Any, path: str) -> list[tuple[str, Any]]:
        if tree is None:
            return []
        if not isinstance(tree, list):
            self._problems.add(path, format_value(tree), "a list")
            return []
        return [(f"{path}[{i}]", item) for i, item in enumerate(tree)]

    def _plugin(self, tree: Any, path: str, found: dict[str, Mapping[str, Any]]) -> None:
        fields = self._fields(tree, path, ("name", "arguments", *_SWITCHES))
        if not isinstance(tree, dict):
            return
        for switch in _SWITCHES:
            if fields.get(switch):
                self._warn(f"{path}.{switch}", "it", "leave a part of the plugin out")
        name = str(fields.get("name") or "")
        if name in self._named:
            # KAI opens it twice in a session: what it scores counts double.
            self._problems.add(f"{path}.name", repr(name), "each plugin once")
        if name:
            self._named.add(name)
        if name in WITHOUT_EFFECT:
            self._warn(f"{path}.name", f"plugin {name!r}", WITHOUT_EFFECT[name])
        elif name in PLUGINS:
            place = f"{path}.arguments"
            found[name] = self._arguments(fields.get("arguments"), place, PLUGINS[name])
        else:
            hint = did_you_mean(name, (*PLUGINS, *WITHOUT_EFFECT))
            got = format_value(name) if name else ""
            self._problems.add(f"{path}.name", got, format_alternatives(sorted(PLUGINS)), hint)

    def _arguments(self, tree: Any, path: str, known: Mapping[str, str]) -> Mapping[str, Any]:
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            self._problems.add(path, format_value(tree), "a mapping")
            return {}
        for key, given in tree.items():
            name = str(key)
            place = child_path(path, name)
            if name not in known:
                wanted = format_alternatives(known) if known else "no arguments"
                hint = did_you_mean(name, known)
                self._problems.add(place, "an unknown argument", wanted, hint)
            elif not _CHECKS[known[name]](given):
                self._problems.add(place, format_value(given), known[name])
        return {str(key): value for key, value in tree.items()}


def _is_number(given: Any) -> bool:
    try:
        return not isinstance(given, bool) and math.isfinite(float(given))
    except (TypeError, ValueError):
        return False


def _is_duration(given: Any) -> bool:
    try:
        return isinstance(given, str) and duration.parse(given) is not None
    except ValueError:
        return False


def days_or_duration(text: str) -> float:
    """Seconds of a duration, which may be in days or weeks. Raises ValueError for other texts."""
    match = re.fullmatch(r"(\d+)([dw])", text)
    if match:
        return int(match[1]) * 86_400.0 * (7 if match[2] == "w" else 1)
    return duration.parse(text) / timedelta(seconds=1)


_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def is_true(given: Any) -> bool:
    """Whether an argument of the kind SWITCH is on: KAI has texts there."""
    return str(given) in _TRUE


def _is_period(given: Any, least: float = 1e-9) -> bool:
    try:
        return isinstance(given, str) and days_or_duration(given) >= least
    except ValueError:
        return False


def moment_of(given: Any) -> float:
    """Unix seconds of a time in a file. Raises ValueError for anything else."""
    if isinstance(given, str):
        given = datetime.fromisoformat(given)
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise ValueError(f"got {format_value(given)}, expected {MOMENT}")
    return given.timestamp()


def _reads(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    """A check: whether something can be read. read: raises ValueError if not."""

    def check(given: Any) -> bool:
        try:
            read(given)
        except ValueError:
            return False
        return True

    return check


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    NUMBER: _is_number,
    DURATION: _is_duration,
    PLACEMENT: lambda given: given in ("binpack", "spread"),
    METHOD: lambda given: given in ("lca", "queue"),
    PERIOD: _is_period,
    HALF_LIFE: lambda given: _is_period(given, 0.0),
    WINDOW: lambda given: given in ("sliding", "tumbling", "cron"),
    CRON: _reads(lambda given: parse_schedule(str(given))),
    MOMENT: _reads(moment_of),
    SWITCH: lambda given: str(given) in (*_TRUE, *_FALSE),
    NAMES: lambda given: isinstance(given, str),
}
