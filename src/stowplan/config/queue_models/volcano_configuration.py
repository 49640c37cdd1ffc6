"""Volcano's configuration file: actions, tiers of plugins with switches and arguments.

Files that run Volcano are read as they are. Unknown names and values of the wrong kind are
mistakes, each with its path.

Differs: Volcano ignores unknown fields, plugins and arguments, and arguments of the wrong kind.

Source: volcano master of 2026-08-20, pkg/scheduler/util.go, conf/scheduler_conf.go,
plugins/defaults.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import yaml

from stowplan.config import volcano_settings
from stowplan.config.strict_decoder import (
    Problems,
    child_path,
    format_alternatives,
    format_value,
    mapping_of,
)
from stowplan.framework.problems import ConfigError, did_you_mean

SWITCHES = (
    "enableJobOrder", "enableHierarchy", "enableJobReady", "enableJobPipelined", "enableTaskOrder",
    "enablePreemptable", "enableReclaimable", "enablePreemptive", "enableQueueOrder",
    "enabledClusterOrder", "enablePredicate", "enableBestNode", "enableNodeOrder",
    "enableTargetJob", "enableReservedNodes", "enableJobEnqueued", "enabledVictim",
    "enableJobStarving", "enabledOverused", "enabledAllocatable", "enabledHyperNodeOrder",
    "enabledSubJobReady", "enabledSubJobPipelined", "enabledSubJobOrder",
    "enabledHyperNodeGradient",
)  # fmt: skip
"""Switches of a plugin."""

OFF_BY_DEFAULT = frozenset({"enableHierarchy", "enabledClusterOrder"})
"""Switches that are off where the file does not name them; the others are on."""

DEFAULT_TEXT = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

INTEGER, NUMBER, BOOLEAN, TEXT, MAPPING, LIST = (
    "an integer",
    "a number",
    "true or false",
    "a text",
    "a mapping",
    "a list",
)

_KINDS: Mapping[str, tuple[type, ...]] = {
    INTEGER: (int,), NUMBER: (int, float), BOOLEAN: (bool,), TEXT: (str,), MAPPING: (dict,),
    LIST: (list,),
}  # fmt: skip

_CACHE = {"predicateErrorCacheEnable": BOOLEAN}
_WHOLE = {"maxDomains": INTEGER, "allowWholeBundle": BOOLEAN}

ACTIONS: Mapping[str, Mapping[str, str]] = {
    "enqueue": {},
    "allocate": _CACHE,
    "backfill": _CACHE,
    "preempt": _CACHE
    | {
        "enableTopologyAwarePreemption": BOOLEAN,
        "topologyAwarePreemptWorkerNum": INTEGER,
        "minCandidateNodesPercentage": INTEGER,
        "minCandidateNodesAbsolute": INTEGER,
        "maxCandidateNodesAbsolute": INTEGER,
    },
    "reclaim": _CACHE,
    "gangpreempt": _WHOLE,
    "gangreclaim": _WHOLE,
    "shuffle": {},
}
"""Action -> argument -> kind."""

_FILTERS = (
    "NodeAffinity", "NodePorts", "TaintToleration", "PodAffinity", "NodeVolumeLimits",
    "VolumeZone", "PodTopologySpread", "VolumeBinding", "DynamicResourceAllocation", "Cache",
)  # fmt: skip
_WEIGHTS = (
    "nodeaffinity", "podaffinity", "leastrequested", "balancedresource", "mostrequested",
    "tainttoleration", "imagelocality", "podtopologyspread",
)  # fmt: skip


def _binpack(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}.cpu": INTEGER,
        f"{prefix}.memory": INTEGER,
        f"{prefix}.resources": TEXT,
        f"{prefix}.resources.*": INTEGER,
    }


PLUGINS: Mapping[str, Mapping[str, str]] = {
    "gang": {},
    "priority": {},
    "conformance": {},
    "drf": {},
    "proportion": {},
    "pdb": {},
    "capacity": {
        "ancestorReclaimLevel": INTEGER,
        "capacity.DynamicResourceAllocationEnable": BOOLEAN,
        "capacity.DRAConsumableCapacityEnable": BOOLEAN,
    },
    "overcommit": {"overcommit-factor": NUMBER},
    "sla": {"sla-waiting-time": TEXT},
    "tdm": {"tdm.revocable-zone.*": TEXT, "tdm.evict.period": TEXT},
    "nodegroup": {"strict": BOOLEAN, "enablePreferredOrder": BOOLEAN},
    "binpack": {"binpack.weight": INTEGER} | _binpack("binpack"),
    "nodeorder": {f"{name}.weight": INTEGER for name in _WEIGHTS},
    "predicates": {f"predicate.{name}Enable": BOOLEAN for name in _FILTERS}
    | {
        "volumebinding.weight": INTEGER,
        "volumebinding.bindTimeoutSeconds": INTEGER,
        "dynamicresources.filterTimeoutSeconds": INTEGER,
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": INTEGER,
        "resources": MAPPING,
        "sra": MAPPING,
        "proportional": MAPPING,
    },
    "usage": {
        "usage.weight": INTEGER,
        "cpu.weight": INTEGER,
        "memory.weight": INTEGER,
        "thresholds": MAPPING,
        "estimator": MAPPING,
    },
    "rescheduling": {"interval": TEXT, "metricsPeriod": TEXT, "strategies": LIST},
    "network-topology-aware": {
        "weight": INTEGER,
        "hypernode.binpack.normal-pod.enable": BOOLEAN,
        "hypernode.binpack.normal-pod.fading": NUMBER,
        "hypernode.gradient.evict.max-hypernodes": INTEGER,
    }
    | _binpack("hypernode.binpack"),
    "deviceshare": {
        "deviceshare.VGPUEnable": BOOLEAN,
        "deviceshare.SchedulePolicy": TEXT,
        "deviceshare.ScheduleWeight": INTEGER,
        "deviceshare.NodeLockEnable": BOOLEAN,
        "deviceshare.KnownGeometriesCMName": TEXT,
        "deviceshare.KnownGeometriesCMNamespace": TEXT,
    },
}
"""Plugin -> argument, or its beginning followed by `*`, -> kind."""

WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "predicates": ("predicate.GPUSharingEnable", "predicate.GPUNumberEnable"),
    "deviceshare": (
        "deviceshare.GPUSharingEnable",
        "deviceshare.GPUNumberEnable",
        "deviceshare.AscendHAMiVNPUEnable",
        "deviceshare.AscendMindClusterVNPUEnable",
    ),
}
"""Plugin -> arguments of Volcano that turn on devices which the model does not have."""

ON_NODES = "here it is read from annotations of nodes"

_FIELDS = ("actions", "tiers", "configurations", "metrics")


class VolcanoPluginEntry(msgspec.Struct, frozen=True):
    """A plugin of a tier. enabled: switches that are on."""

    name: str
    enabled: frozenset[str]
    arguments: Mapping[str, Any] = {}


class VolcanoConfiguration(msgspec.Struct, frozen=True):
    """A file. arguments: action -> its arguments. warnings: settings without effect here."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[VolcanoPluginEntry, ...], ...]
    arguments: Mapping[str, Mapping[str, Any]] = {}
    warnings: tuple[str, ...] = ()


def parse_volcano(text: str, source: str) -> VolcanoConfiguration:
    """Read a file; an empty one is Volcano's default. Raises ConfigError with every mistake."""
    problems = Problems()
    found = read_volcano(_tree(text, problems), problems)
    if problems.found:
        raise ConfigError(source, problems.found)
    return found


def read_volcano(tree: Any, problems: Problems) -> VolcanoConfiguration:
    """Read the tree of a file, an empty one as Volcano's default; adds every mistake."""
    if not problems.found and (tree is None or tree == {}):
        tree = _tree(DEFAULT_TEXT, problems)
    return _VolcanoReader(problems).configuration(tree)


def complete_volcano(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A valid file with the actions and tiers that are in force: an empty one has the default."""
    return dict(tree) or dict(_tree(DEFAULT_TEXT, Problems()))


def _tree(text: str, problems: Problems) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"
        problems.add(where, error.problem or "invalid YAML", "YAML")
    except (yaml.YAMLError, RecursionError) as error:
        problems.add("document", str(error).splitlines()[0], "YAML")
    return {}


class _VolcanoReader:
    """Reads trees; collects mistakes and warnings."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._warnings: list[str] = []

    def configuration(self, tree: Any) -> VolcanoConfiguration:
        """The whole file."""
        fields = self._fields(tree, "", _FIELDS)
        if "metrics" in fields:
            self._warn("metrics", "it", f"{volcano_settings.FIELDS['metrics']}; {ON_NODES}")
        return VolcanoConfiguration(
            self._actions(fields.get("actions")),
            tuple(self._tier(one, path) for path, one in self._items(fields.get("tiers"), "tiers")),
            self._arguments_of_actions(fields.get("configurations")),
            tuple(self._warnings),
        )

    def _warn(self, path: str, what: str, would: str) -> None:
        self._warnings.append(f"{path}: {what} has no effect; in Volcano it would {would}")

    def _fields(self, tree: Any, path: str, known: Collection[str]) -> dict[str, Any]:
        return mapping_of(tree, path, known, self._problems)

    def _items(self, tree: Any, path: str) -> list[tuple[str, Any]]:
        if tree is None:
            return []
        if not isinstance(tree, list):
            self._problems.add(path, format_value(tree), "a list")
            return []
        return [(f"{path}[{i}]", item) for i, item in enumerate(tree)]

    def _actions(self, tree: Any) -> tuple[str, ...]:
        if not isinstance(tree, str):
            self._problems.add("actions", "" if tree is None else format_value(tree), "a text")
            return ()
        found = []
        for name in (part.strip() for part in tree.split(",")):
            if name in ACTIONS:
                found.append(name)
            elif name in volcano_settings.ACTIONS:
                self._warn("actions", f"action {name!r}", volcano_settings.ACTIONS[name])
            else:
                hint = did_you_mean(name, ACTIONS)
                self._problems.add("actions", repr(name), format_alternatives(ACTIONS), hint)
        return tuple(found)

    def _tier(self, tree: Any, path: str) -> tuple[VolcanoPluginEntry, ...]:
        fields = self._fields(tree, path, ("plugins",))
        items = self._items(fields.get("plugins"), f"{path}.plugins")
        entries = tuple(self._plugin(item, place) for place, item in items)
        has_tree = any(e.name == "drf" and "enableHierarchy" in e.enabled for e in entries)
        if has_tree and any(entry.name == "proportion" for entry in entries):
            wanted = "proportion, or drf with enableHierarchy, as they conflict"
            self._problems.add(f"{path}.plugins", "both", wanted)
        return entries

    def _plugin(self, tree: Any, path: str) -> VolcanoPluginEntry:
        fields = self._fields(tree, path, ("name", "arguments", *SWITCHES))
        name = str(fields.get("name") or "")
        if not isinstance(tree, dict):
            return VolcanoPluginEntry(name, frozenset())
        enabled = frozenset(switch for switch in SWITCHES if self._is_on(fields, switch, path))
        arguments = fields.get("arguments")
        place = f"{path}.arguments"
        if name in PLUGINS:
            return VolcanoPluginEntry(
                name, enabled, self._arguments(arguments, place, PLUGINS[name], name)
            )
        if name in volcano_settings.PLUGINS:
            self._warn(f"{path}.name", f"plugin {name!r}", volcano_settings.PLUGINS[name])
        else:
            hint = did_you_mean(name, (*PLUGINS, *volcano_settings.PLUGINS))
            got = format_value(name) if name else ""
            self._problems.add(f"{path}.name", got, format_alternatives(sorted(PLUGINS)), hint)
        return VolcanoPluginEntry(name, enabled)

    def _is_on(self, fields: Mapping[str, Any], switch: str, path: str) -> bool:
        given = fields.get(switch)
        if given is None:
            return switch not in OFF_BY_DEFAULT
        if not isinstance(given, bool):
            self._problems.add(f"{path}.{switch}", format_value(given), BOOLEAN)
        return given is True

    def _arguments(
        self, tree: Any, path: str, known: Mapping[str, str], plugin: str = ""
    ) -> Mapping[str, Any]:
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            self._problems.add(path, format_value(tree), "a mapping")
            return {}
        found: dict[str, Any] = {}
        for key, given in tree.items():
            name = str(key)
            kind = _kind_of(name, known)
            if name in WITHOUT_EFFECT.get(plugin, ()):
                self._warn(child_path(path, name), "it", "share other devices than vGPUs")
            elif kind is None:
                wanted = format_alternatives(known) if known else "no arguments"
                hint = did_you_mean(name, known)
                self._problems.add(child_path(path, name), "an unknown argument", wanted, hint)
            elif not _is_of(given, kind):
                self._problems.add(child_path(path, name), format_value(given), kind)
            else:
                found[name] = given
        return found

    def _arguments_of_actions(self, tree: Any) -> Mapping[str, Mapping[str, Any]]:
        found = {}
        for path, item in self._items(tree, "configurations"):
            fields = self._fields(item, path, ("name", "arguments"))
            name = str(fields.get("name") or "")
            if name not in ACTIONS:
                hint = did_you_mean(name, ACTIONS)
                got = format_value(name) if name else ""
                self._problems.add(f"{path}.name", got, format_alternatives(ACTIONS), hint)
                continue
            given = fields.get("arguments")
            found[name] = self._arguments(given, f"{path}.arguments", ACTIONS[name])
        return found


def _kind_of(name: str, known: Mapping[str, str]) -> str | None:
    """Kind of an argument; None for an unknown one."""
    if name in known:
        return known[name]
    starts = (key for key in known if key.endswith("*") and name.startswith(key[:-1]))
    return next((known[key] for key in starts), None)


def _is_of(given: Any, kind: str) -> bool:
    if kind == BOOLEAN and isinstance(given, str):
        return given.lower() in ("true", "false", "t", "f", "1", "0")
    if isinstance(given, bool):
        return kind == BOOLEAN
    return isinstance(given, _KINDS[kind])
