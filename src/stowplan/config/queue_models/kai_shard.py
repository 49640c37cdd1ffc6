"""KAI-Scheduler's configuration as clusters have it: the SchedulingShard, or the ConfigMap that its
operator makes of one.

Source: KAI-Scheduler, pkg/apis/kai/v1/schedulingshard_types.go and
pkg/operator/operands/scheduler/resources_for_shard.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from stowplan.config.queue_models.queue_model_choice import KAI, SCHEDULER
from stowplan.config.strict_decoder import (
    Problems,
    child_path,
    format_alternatives,
    format_value,
    mapping_of,
)
from stowplan.framework.problems import did_you_mean

SHARD, CONFIG_MAP = "SchedulingShard", "ConfigMap"
FILE = "config.yaml"
"""Key of the ConfigMap with the file."""
_API_VERSION = "kai.scheduler/v1"
_OBJECT = ("apiVersion", "kind", "metadata", "status")
_PLUGINS = {
    "predicates": 1900, "proportion": 1800, "priority": 1700, "nodeavailability": 1600,
    "resourcetype": 1500, "podaffinity": 1400, "elastic": 1300, "kubeflow": 1200, "ray": 1100,
    "subgrouporder": 1000, "taskorder": 900, "nominatednode": 800, "dynamicresources": 700,
    "minruntime": 600, "topology": 500, "snapshot": 400, "sg-nodelocalgreedy": 360,
    "sg-multinodegang": 350, "gpupack": 300, "gpuspread": 300, "nodeplacement": 200,
    "gpusharingorder": 100,
}  # fmt: skip
_KNOWN = (*_PLUGINS, "numa", "reflectjoborder")
"""Plugins that a shard may name."""
_ACTIONS = {
    "allocate": 500, "consolidation": 400, "reclaim": 300, "preempt": 200,
    "stalegangeviction": 100,
}  # fmt: skip
_PASSED_ON = ("queueDepthPerAction", "usageDBConfig", "scenarioSearchBudgets", "args")
_IDLE = ("goMemLimitRatio", "goMemLimit")
_SPEC = (
    "placementStrategy", "partitionLabelValue", "minRuntime", "kValue", "plugins", "actions",
    *_PASSED_ON, *_IDLE,
)  # fmt: skip
_ENTRY = re.compile(r"tiers\[0\]\.plugins\[(?P<n>\d+)\](?P<rest>.*)")
_NOT_NAMED = re.compile(r"plugin '(?P<name>.+)' is not named; (?P<rest>.*)")
_FIELD_OF_ARGUMENT = {
    ("proportion", "kValue"): "kValue",
    ("minruntime", "defaultPreemptMinRuntime"): "minRuntime.preemptMinRuntime",
    ("minruntime", "defaultReclaimMinRuntime"): "minRuntime.reclaimMinRuntime",
    ("nodeplacement", "gpu"): "placementStrategy.gpu",
    ("nodeplacement", "cpu"): "placementStrategy.cpu",
}
"""Plugin and argument -> field of a shard that sets it."""


def is_kai_object(tree: Any) -> bool:
    """Whether a document is a SchedulingShard or a ConfigMap with KAI's file."""
    if not isinstance(tree, dict):
        return False
    if tree.get("kind") == SHARD:
        return True
    data = tree.get("data")
    return tree.get("kind") == CONFIG_MAP and isinstance(data, dict) and FILE in data


def kai_file_of(tree: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """KAI's file, of an object that has it."""
    if tree.get("kind") == CONFIG_MAP:
        try:
            inner = yaml.safe_load(str(tree["data"][FILE]))
        except yaml.YAMLError as error:
            problems.add(f"data.{FILE}", str(error).splitlines()[0], "YAML")
            inner = {}
        if not isinstance(inner, dict | None):
            problems.add(f"data.{FILE}", format_value(inner), "a mapping")
            inner = {}
        return {SCHEDULER: KAI, **(inner or {})}
    fields = mapping_of(tree, "", (*_OBJECT, "spec"), problems)
    version = tree.get("apiVersion")
    if version != _API_VERSION:
        problems.add("apiVersion", "" if version is None else format_value(version), _API_VERSION)
    spec = mapping_of(fields.get("spec") or {}, "spec", _SPEC, problems)
    return _file_of_shard(spec, problems)


def path_in_object(tree: Mapping[str, Any], file: Mapping[str, Any], path: str) -> str:
    """Where an object says what is at a path of the file made of it; "" where it does not."""
    if tree["kind"] == CONFIG_MAP:
        return f"data.{FILE}: {path}"
    given = tree.get("spec")
    spec = given if isinstance(given, dict) else {}
    found = _ENTRY.fullmatch(path)
    if found is not None:
        entry = file["tiers"][0]["plugins"][int(found["n"])]
        return _path_of_plugin(spec, entry["name"], found["rest"])
    field = re.split(r"[.\[]", path, maxsplit=1)[0]
    if field == "args" and "partition-label-value" in path and spec.get("partitionLabelValue"):
        return "spec.partitionLabelValue"
    return f"spec.{path}" if field in spec else ""


def warnings_of_object(
    tree: Mapping[str, Any], file: Mapping[str, Any], warnings: Iterable[str]
) -> tuple[str, ...]:
    """Warnings about the file made of an object, as warnings about what the object says."""
    found = []
    for text in warnings:
        path, _, what = text.partition(": ")
        off = _NOT_NAMED.fullmatch(what) if tree["kind"] == SHARD else None
        if off is not None:
            # A shard has all plugins but those that it turns off.
            place = f"spec.plugins.{off['name']}.enabled"
            found.append(f"{place}: it has no effect; {off['rest']}")
            continue
        place = path_in_object(tree, file, path)
        if place:
            found.append(f"{place}: {what}")
    if tree["kind"] == SHARD:
        found += _overridden(tree["spec"] if isinstance(tree.get("spec"), dict) else {})
    return tuple(found)


def _overridden(spec: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about fields in whose place a plugin's arguments stand: KAI's operator replaces all
    arguments of the plugin by them."""
    plugins = spec.get("plugins")
    for (plugin, _), field in _FIELD_OF_ARGUMENT.items():
        if field.startswith("placementStrategy."):
            continue  # It also chooses plugins and actions.
        given = plugins.get(plugin) if isinstance(plugins, dict) else None
        arguments = given.get("arguments") if isinstance(given, dict) else None
        value: Any = spec
        for key in field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if arguments is not None and value is not None:
            place = f"spec.plugins.{plugin}.arguments"
            yield f"spec.{field}: it has no effect; {place} is used in its place"


def _path_of_plugin(spec: Mapping[str, Any], name: str, rest: str) -> str:
    """Path of a plugin, or of a part of it. rest: path below its entry in the file."""
    plugins = spec.get("plugins")
    given = plugins.get(name) if isinstance(plugins, dict) else None
    argument = rest.removeprefix(".arguments.")
    arguments = given.get("arguments") if isinstance(given, dict) else None
    if not isinstance(arguments, dict | None) or argument in (arguments or {}):
        return f"spec.plugins.{name}{rest}"
    field = _FIELD_OF_ARGUMENT.get((name, argument), "")
    if field:
        return f"spec.{field}"
    is_named = isinstance(plugins, dict) and name in plugins
    return f"spec.plugins.{name}{rest.removesuffix('.name')}" if is_named else ""


def _file_of_shard(spec: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    strategy = mapping_of(
        spec.get("placementStrategy") or {}, "spec.placementStrategy", ("gpu", "cpu"), problems
    )
    gpu, cpu = strategy.get("gpu") or "binpack", strategy.get("cpu") or "binpack"
    plugins = _plugins(spec, gpu, cpu, problems)
    actions = {name: {"priority": priority} for name, priority in _ACTIONS.items()}
    actions["consolidation"]["enabled"] = "spread" not in (gpu, cpu)
    _override(actions, spec.get("actions"), "spec.actions", ("enabled", "priority"), problems)
    found: dict[str, Any] = {
        SCHEDULER: KAI,
        "actions": ", ".join(name for name, _ in _in_order(actions)),
        "tiers": [
            {
                "plugins": [
                    {"name": name}
                    | ({"arguments": one["arguments"]} if one.get("arguments") else {})
                    for name, one in _in_order(plugins)
                ]
            }
        ],
    }
    found |= {key: spec[key] for key in _PASSED_ON if spec.get(key)}
    if spec.get("partitionLabelValue"):
        flags = {"partition-label-value": spec["partitionLabelValue"]}
        found["args"] = flags | (found.get("args") or {})
    return found


def _plugins(
    spec: Mapping[str, Any], gpu: str, cpu: str, problems: Problems
) -> dict[str, dict[str, Any]]:
    plugins: dict[str, dict[str, Any]] = {
        name: {"priority": priority, "arguments": {}} for name, priority in _PLUGINS.items()
    }
    packs = gpu == "binpack"
    for name, is_on in (("gpusharingorder", packs), ("gpupack", packs), ("gpuspread", not packs)):
        plugins[name]["enabled"] = is_on
    if spec.get("kValue") is not None:
        plugins["proportion"]["arguments"]["kValue"] = spec["kValue"]
    known = ("preemptMinRuntime", "reclaimMinRuntime")
    runtimes = mapping_of(spec.get("minRuntime") or {}, "spec.minRuntime", known, problems)
    for key, given in runtimes.items():
        if given is not None:
            plugins["minruntime"]["arguments"][f"default{key[0].upper()}{key[1:]}"] = given
    plugins["nodeplacement"]["arguments"] = {"gpu": gpu, "cpu": cpu}
    fields = ("enabled", "priority", "arguments")
    _override(plugins, spec.get("plugins"), "spec.plugins", fields, problems)
    return plugins


def _override(
    defaults: dict[str, dict[str, Any]],
    tree: Any,
    path: str,
    known: tuple[str, ...],
    problems: Problems,
) -> None:
    """What a shard says of plugins or actions; a name that is none is found where they are read."""
    if tree is None:
        return
    if not isinstance(tree, dict):
        problems.add(path, format_value(tree), "a mapping")
        return
    for name, given in tree.items():
        if path == "spec.actions" and name not in _ACTIONS:
            hint = did_you_mean(str(name), _ACTIONS)
            place = child_path(path, str(name))
            problems.add(place, "an unknown action", format_alternatives(_ACTIONS), hint)
            continue
        fields = mapping_of(given or {}, f"{path}.{name}", known, problems)
        if path == "spec.plugins" and fields.get("enabled") is False and name not in _KNOWN:
            # Those that are on are judged where they are read.
            hint = did_you_mean(str(name), _KNOWN)
            problems.add(child_path(path, str(name)), "an unknown plugin", "a plugin of KAI", hint)
            continue
        changed = {key: value for key, value in fields.items() if value is not None}
        for key, kind in (("enabled", bool), ("priority", int)):
            if key in changed and type(changed[key]) is not kind:
                wanted = "true or false" if kind is bool else "a whole number"
                problems.add(f"{path}.{name}.{key}", format_value(changed.pop(key)), wanted)
        defaults[str(name)] = {**defaults.get(str(name), {"priority": 0}), **changed}


def _in_order(entries: Mapping[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Those that are on, highest priority first, then by name."""
    on = [(name, one) for name, one in entries.items() if one.get("enabled", True)]
    return sorted(on, key=lambda pair: (-int(pair[1]["priority"]), pair[0]))
