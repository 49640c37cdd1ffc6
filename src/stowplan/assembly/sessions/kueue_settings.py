"""The file that chooses Kueue: `scheduler: kueue`, or the Configuration of Kueue itself.

Kueue admits jobs; their pods are scheduled by profiles. So the file has no part in the
configuration of profiles and sessions.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import yaml

from stowplan.batch.queue_models.kueue.kueue_options import (
    GATES,
    HALF_LIFE,
    INTERVAL,
    STRATEGIES,
    USAGE,
    USAGE_WEIGHTS,
    KueueOptions,
    PodsReadyOptions,
    kueue_options_of,
)
from stowplan.config.queue_models.queue_model_choice import (
    KUEUE,
    KUEUE_KIND,
    SCHEDULER,
    check_keys,
    check_one_document,
)
from stowplan.config.strict_decoder import Problems, format_alternatives, format_value
from stowplan.framework.problems import did_you_mean
from stowplan.objects.encoding.duration import parse, render

_FAIR_SHARING, _PODS_READY = "fairSharing", "waitForPodsReady"
_RESOURCES = "resources"
_FIELDS = (SCHEDULER, _FAIR_SHARING, USAGE, "featureGates", _PODS_READY, _RESOURCES)
_API_GROUP = "config.kueue.x-k8s.io/"
_API_VERSIONS = tuple(_API_GROUP + version for version in ("v1beta1", "v1beta2"))
_ENABLE = "enable"
_NOT_READ = (
    "apiVersion", "kind", "namespace", "health", "metrics", "webhook", "leaderElection",
    "controller", "internalCertManagement", "clientConnection", "integrations", "multiKueue",
    "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "queueVisibility", "tls",
    "objectRetentionPolicies", "pprofBindAddress", "visibilityServer",
)  # fmt: skip
"""Fields of Kueue's Configuration that decide nothing here."""
_MATTERING = (
    "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "objectRetentionPolicies",
    "multiKueue",
)  # fmt: skip
"""Those of them that change in Kueue which jobs wait, or how."""
_EXCLUDED = "excludeResourcePrefixes"
_RESOURCE_FIELDS = (_EXCLUDED, "transformations")
_PODS_READY_FIELDS = ("enable", "timeout", "blockAdmission", "recoveryTimeout", "requeuingStrategy")
_REQUEUING_FIELDS = ("timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds")
_STRATEGIES = "preemptionStrategies"
_TRANSFORMATIONS = ("Retain", "Replace")
_OLD_TIMEOUT_S = 300.0
"""Default of `waitForPodsReady.timeout` in v1beta1."""


def is_for_kueue(text: str | bytes) -> bool:
    """True for a text that names Kueue as the scheduler, or is a Configuration of Kueue."""
    tree = _tree(text)
    return tree.get(SCHEDULER) == KUEUE or _is_own(tree)


def _is_own(tree: dict[str, Any]) -> bool:
    """Whether a tree is the Configuration that Kueue's manager reads."""
    return tree.get("kind") == KUEUE_KIND


def read_kueue_options(text: str | bytes, source: str, *, is_fixed: bool) -> KueueOptions:
    """The options of a text; raises ConfigError with every mistake."""
    tree, problems = _tree(text), Problems()
    is_own = _is_own(tree)
    check_one_document(text, problems)
    check_keys(next(yaml.compose_all(text, Loader=yaml.SafeLoader), None), problems)
    version = tree.get("apiVersion")
    if is_own and version not in _API_VERSIONS:
        hint = did_you_mean(str(version), _API_VERSIONS)
        got = "" if version is None else format_value(version)
        problems.add("apiVersion", got, format_alternatives(_API_VERSIONS), hint)
    for key in tree:
        if key not in _FIELDS and not (is_own and key in _NOT_READ):
            hint = did_you_mean(str(key), _FIELDS)
            problems.add(str(key), "an unknown field", format_alternatives(_FIELDS), hint)
    # Kueue has gates of parts that decide nothing here.
    _check_gates(tree.get("featureGates"), problems, is_own=is_own)
    _check_fair_sharing(tree.get(_FAIR_SHARING), problems)
    if tree.get(USAGE) is not None:
        _check_usage(tree[USAGE], problems)
    is_old = str(tree.get("apiVersion", "")).endswith("/v1beta1")
    default_s = _OLD_TIMEOUT_S if is_old else PodsReadyOptions().timeout_s
    pods_ready = _pods_ready(tree.get(_PODS_READY), default_s, problems)
    transformations = _transformations(tree.get(_RESOURCES), problems)
    if problems.found:
        raise problems.error(source)
    settings = {**tree, "resourceTransformations": transformations}
    fair = tree.get(_FAIR_SHARING)
    # In v1beta1 the field has a switch.
    if isinstance(fair, dict) and fair.get(_ENABLE) is False:
        del settings[_FAIR_SHARING]
    options = kueue_options_of(settings, is_fixed=is_fixed)
    resources = tree.get(_RESOURCES) or {}
    unread = [name for name in _MATTERING if tree.get(name)]
    unread += [f"{_RESOURCES}.{name}" for name in resources if name not in _RESOURCE_FIELDS]
    return dataclasses.replace(
        options,
        pods_ready=pods_ready,
        excluded=tuple(resources.get(_EXCLUDED) or ()),
        warnings=tuple(f"{name} is not read" for name in unread),
    )


def _transformations(tree: Any, problems: Problems) -> list[Any]:
    """`resources.transformations`."""
    if tree is None:
        return []
    prefixes = tree.get(_EXCLUDED) or [] if isinstance(tree, dict) else []
    if not isinstance(prefixes, list) or not all(isinstance(one, str) for one in prefixes):
        path = f"{_RESOURCES}.{_EXCLUDED}"
        problems.add(path, format_value(prefixes), "a list of prefixes of resources")
    found = tree.get("transformations") or [] if isinstance(tree, dict) else None
    is_list = isinstance(found, list) and all(isinstance(one, dict) for one in found)
    if not is_list or not all("input" in one for one in found or ()):
        wanted = "a mapping with transformations, each with an input"
        problems.add(_RESOURCES, format_value(tree), wanted)
        return []
    for i, one in enumerate(found or ()):
        _check_transformation(one, f"{_RESOURCES}.transformations[{i}]", problems)
    return list(found or ())


def _check_transformation(tree: dict[str, Any], path: str, problems: Problems) -> None:
    _check_mapping(tree, path, ("input", "strategy", "outputs", "multiplyBy"), problems)
    strategy, outputs = tree.get("strategy"), tree.get("outputs") or {}
    if strategy not in (None, *_TRANSFORMATIONS):
        wanted = format_alternatives(_TRANSFORMATIONS)
        problems.add(f"{path}.strategy", format_value(strategy), wanted)
    if not isinstance(outputs, dict):
        problems.add(f"{path}.outputs", format_value(outputs), "a mapping of resources to factors")
        return
    for name, factor in outputs.items():
        try:
            float(factor)
        except (TypeError, ValueError):
            problems.add(f"{path}.outputs[{name}]", format_value(factor), "a number")


def _pods_ready(tree: Any, default_s: float, problems: Problems) -> PodsReadyOptions | None:
    """`waitForPodsReady`; None where it is off. default_s: its timeout where none is stated."""
    if tree is None:
        return None
    _check_mapping(tree, _PODS_READY, _PODS_READY_FIELDS, problems)
    if not isinstance(tree, dict) or tree.get(_ENABLE) is False:
        return None
    for name in (_ENABLE, "blockAdmission"):
        if not isinstance(tree.get(name), bool | None):
            problems.add(f"{_PODS_READY}.{name}", format_value(tree[name]), "true or false")
    strategy = tree.get("requeuingStrategy") or {}
    path = f"{_PODS_READY}.requeuingStrategy"
    _check_mapping(strategy, path, _REQUEUING_FIELDS, problems)
    if not isinstance(strategy, dict):
        return None
    timeout_s = _seconds(tree, "timeout", default_s, problems)
    recovery_s = _seconds(tree, "recoveryTimeout", timeout_s, problems)
    stamp = strategy.get("timestamp") or "Eviction"
    if stamp not in ("Eviction", "Creation"):
        problems.add(f"{path}.timestamp", format_value(stamp), "Eviction or Creation")
    numbers = {}
    for name, default in (("backoffBaseSeconds", 60), ("backoffMaxSeconds", 3600)):
        numbers[name] = strategy.get(name) or default
        if not _is_count(numbers[name]):
            wanted = "a number of seconds, 0 or more"
            problems.add(f"{path}.{name}", format_value(numbers[name]), wanted)
    limit = strategy.get("backoffLimitCount")
    if limit is not None and not _is_count(limit):
        problems.add(f"{path}.backoffLimitCount", format_value(limit), "a number, 0 or more")
    if problems.found:
        return None
    return PodsReadyOptions(
        timeout_s,
        bool(tree.get("blockAdmission")),
        float(numbers["backoffBaseSeconds"]),
        float(numbers["backoffMaxSeconds"]),
        limit,
        stamp == "Eviction",
        recovery_s or None,
    )


def _seconds(tree: dict[str, Any], field: str, default: float, problems: Problems) -> float:
    """A duration of `waitForPodsReady` in seconds."""
    text = tree.get(field)
    if text is None:
        return default
    try:
        found = parse(str(text)).total_seconds()
    except ValueError:
        found = -1.0
    if found < 0:
        wanted = "a duration such as 5m, not below 0"
        problems.add(f"{_PODS_READY}.{field}", format_value(text), wanted)
        return default
    return found


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _check_mapping(tree: Any, path: str, fields: tuple[str, ...], problems: Problems) -> None:
    if not isinstance(tree, dict):
        problems.add(path, format_value(tree), f"a mapping with {format_alternatives(fields)}")
        return
    for key in tree:
        if key not in fields:
            hint = did_you_mean(str(key), fields)
            problems.add(f"{path}.{key}", "an unknown field", format_alternatives(fields), hint)


def _tree(text: str | bytes) -> dict[str, Any]:
    try:
        found = next(iter(yaml.safe_load_all(text)), None)
    except (yaml.YAMLError, ValueError):
        # The reader of the configuration reports it.
        return {}
    return found if isinstance(found, dict) else {}


def _check_gates(gates: Any, problems: Problems, *, is_own: bool) -> None:
    path = "featureGates"
    if gates is not None and not isinstance(gates, dict):
        problems.add(path, format_value(gates), "a mapping of gates to true or false")
        return
    for name, is_on in (gates or {}).items():
        if name not in GATES and is_own:
            continue
        if name not in GATES:
            hint = did_you_mean(str(name), GATES)
            problems.add(f"{path}.{name}", "an unknown gate", format_alternatives(GATES), hint)
        elif not isinstance(is_on, bool):
            problems.add(f"{path}.{name}", format_value(is_on), "true or false")


def _check_usage(tree: Any, problems: Problems) -> None:
    """`admissionFairSharing`.

    Source: sigs.k8s.io/kueue of 2026-08-22, pkg/config/validation.go.
    """
    _check_mapping(tree, USAGE, (HALF_LIFE, INTERVAL, USAGE_WEIGHTS), problems)
    if not isinstance(tree, dict):
        return
    for name, least in ((HALF_LIFE, "greater than or equal to 0"), (INTERVAL, "greater than 0")):
        text = tree.get(name)
        if text is None:
            continue
        try:
            is_negative = parse(str(text)).total_seconds() < 0
        except ValueError as problem:
            problems.add(f"{USAGE}.{name}", format_value(text), str(problem))
            continue
        if is_negative:
            problems.add(f"{USAGE}.{name}", format_value(text), least)
    weights = tree.get(USAGE_WEIGHTS) or {}
    if not isinstance(weights, dict):
        problems.add(f"{USAGE}.{USAGE_WEIGHTS}", format_value(weights), "a mapping of resources")
        return
    for name, n in weights.items():
        path = f"{USAGE}.{USAGE_WEIGHTS}[{name}]"
        if isinstance(n, bool) or not isinstance(n, int | float):
            problems.add(path, format_value(n), "a number")
        elif n < 0:
            problems.add(path, format_value(n), "greater than or equal to 0")


def _check_fair_sharing(tree: Any, problems: Problems) -> None:
    path = _FAIR_SHARING
    if tree is None:
        return
    if not isinstance(tree, dict):
        problems.add(path, format_value(tree), f"a mapping with {_STRATEGIES}")
        return
    for key in tree:
        if key not in (_STRATEGIES, _ENABLE):
            problems.add(f"{path}.{key}", "an unknown field", _STRATEGIES)
    names = tree.get(_STRATEGIES) or []
    if not isinstance(names, list):
        problems.add(f"{path}.{_STRATEGIES}", format_value(names), "a list")
        return
    for name in names:
        if name not in STRATEGIES:
            wanted = format_alternatives(STRATEGIES)
            problems.add(f"{path}.{_STRATEGIES}", format_value(name), wanted)


def kueue_tree(options: KueueOptions) -> dict[str, Any]:
    """The tree of a file with all that is in force; reading it gives the same options."""
    tree: dict[str, Any] = {SCHEDULER: KUEUE}
    if options.is_fair:
        tree[_FAIR_SHARING] = {_STRATEGIES: list(options.strategies)}
    if options.usage is not None:
        tree[USAGE] = {
            HALF_LIFE: _duration(options.usage.half_life_s),
            INTERVAL: _duration(options.usage.interval_s),
            USAGE_WEIGHTS: dict(options.usage.weights),
        }
    tree["featureGates"] = {name: name in options.gates for name in GATES}
    if options.pods_ready is not None:
        tree[_PODS_READY] = _pods_ready_tree(options.pods_ready)
    if options.excluded or options.transformations:
        tree[_RESOURCES] = {
            _EXCLUDED: list(options.excluded),
            "transformations": [
                {
                    "input": one.resource,
                    "strategy": "Replace" if one.is_replaced else "Retain",
                    "outputs": dict(one.outputs),
                }
                for one in options.transformations
            ],
        }
    return tree


def _pods_ready_tree(options: PodsReadyOptions) -> dict[str, Any]:
    limit = options.requeues_max
    return {
        _ENABLE: True,
        "timeout": _duration(options.timeout_s),
        "recoveryTimeout": _duration(options.recovery_s or 0.0),
        "blockAdmission": options.blocks,
        "requeuingStrategy": {
            "timestamp": "Eviction" if options.by_eviction else "Creation",
            **({} if limit is None else {"backoffLimitCount": limit}),
            "backoffBaseSeconds": int(options.backoff_s),
            "backoffMaxSeconds": int(options.backoff_max_s),
        },
    }


def _duration(seconds: float) -> str:
    return render(timedelta(seconds=seconds))
