"""Configuration formats: detection of a document's format, and its reader.

Documents of two formats have a `kind`; one without it that has actions or tiers is a session
configuration of kube-batch or Volcano.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stowplan.config import kube_scheduler, policy
from stowplan.config import session_configuration as batches
from stowplan.config.document_trees import documents
from stowplan.config.model import Configuration
from stowplan.config.plugin_args import API_VERSION
from stowplan.config.queue_models.kai_shard import SHARD
from stowplan.config.queue_models.queue_model_choice import KUEUE_KIND
from stowplan.config.strict_decoder import Problems, format_alternatives, format_value
from stowplan.framework.problems import did_you_mean
from stowplan.framework.profile import PluginUse
from stowplan.framework.runtime.registry import Registry

ConfigurationReader = Callable[
    [dict[str, Any], str, Registry, Sequence[PluginUse], Problems], Configuration
]
"""(body, source, registry, defaults, problems) -> Configuration; raises ConfigError."""


class ConfigurationFormat(msgspec.Struct, frozen=True):
    """A format: its supported versions and its reader."""

    api_versions: tuple[str, ...]
    read: ConfigurationReader


DEFAULT_SOURCE = "default configuration"
"""What the default configuration is called in errors."""

FORMATS: dict[str, ConfigurationFormat] = {
    kube_scheduler.KIND: ConfigurationFormat((API_VERSION,), kube_scheduler.read),
    policy.KIND: ConfigurationFormat((policy.API_VERSION,), policy.read),
}
"""kind -> format."""

_SESSIONS = "one with actions and tiers"
_OF_QUEUES = (SHARD, KUEUE_KIND)
"""Kinds of objects with the configuration of a queue model."""


def parse(
    text: str | bytes,
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    batch: batches.SupportedSettings | None = None,
) -> Configuration:
    """Parse a configuration from YAML or JSON text; raises ConfigError with every mistake.

    source: name of the file, for errors. registry: plugins that may be named. defaults: default
    multiPoint list with weights. batch: actions and session plugins that may be named; None where
    sessions are not supported.
    """
    if batch is not None and batches.is_session_configuration(text):
        return Configuration(source, {}, batch=batches.read(text, source, batch))
    problems = Problems()
    found = documents(text, problems)
    if not found:
        if not problems.found:
            wanted = f"a document of kind {_kinds_wanted(batch)}"
            problems.add("document", "nothing", wanted)
        raise problems.error(source)
    if len(found) > 1:
        wanted = f"one document of kind {format_alternatives(FORMATS)}"
        problems.add("document", f"{len(found)} documents", wanted)
        raise problems.error(source)
    return _read(found[0], source, registry, defaults, problems, body=False, batch=batch)


def merged(found: Sequence[Configuration]) -> Configuration:
    """Merge a configuration of profiles and one of sessions; raises ConfigError."""
    first = found[0]
    for other in found[1:]:
        problems = Problems()
        if other.profiles and first.profiles:
            got = f"a second file with profiles beside {first.source}"
            problems.add("document", got, f"profiles in one file, {_SESSIONS} beside it")
        if other.batch and first.batch:
            got = f"sessions again, beside {first.source}"
            problems.add("actions", got, "actions and tiers in one file")
        if problems.found:
            raise problems.error(other.source)
        base, beside = (other, first) if other.profiles else (first, other)
        source = f"{first.source}, {other.source}"
        batch = base.batch or beside.batch
        first = msgspec.structs.replace(base, source=source, batch=batch)
        _check_names(first, other.source)
    return first


def _kinds_wanted(batch: batches.SupportedSettings | None) -> str:
    if batch is None:
        return format_alternatives(FORMATS)
    kinds = format_alternatives((*FORMATS, *_OF_QUEUES))
    return f"{kinds}, or one with scheduler, or actions and tiers"


def _check_names(configuration: Configuration, source: str) -> None:
    """Raise ConfigError when a profile and sessions have the same scheduler name."""
    batch = configuration.batch
    taken = (
        [name for name in batch.scheduler_names if name in configuration.profiles] if batch else []
    )
    if taken:
        problems = Problems()
        got, wanted = repr(taken[0]), "another name than those of the profiles"
        problems.add(f"{batches.OPTIONS}.schedulerName", got, wanted)
        raise problems.error(source)


def from_tree(
    tree: Any, source: str, registry: Registry, defaults: Sequence[PluginUse], *, body: bool = False
) -> Configuration:
    """Read a configuration from a tree of dicts and lists; raises ConfigError.

    body: apiVersion and kind may be absent; the tree is then a KubeSchedulerConfiguration.
    """
    return _read(tree, source, registry, defaults, Problems(), body=body)


def default(registry: Registry, defaults: Sequence[PluginUse]) -> Configuration:
    """The default configuration."""
    return from_tree({}, DEFAULT_SOURCE, registry, defaults, body=True)


def _read(
    tree: Any,
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    problems: Problems,
    *,
    body: bool,
    batch: batches.SupportedSettings | None = None,
) -> Configuration:
    if not isinstance(tree, dict):
        wanted = f"a mapping with apiVersion and kind: {_kinds_wanted(batch)}"
        problems.add("document", format_value(tree), wanted)
        raise problems.error(source)
    kind = tree.get("kind") or (kube_scheduler.KIND if body else None)
    if not isinstance(kind, str) or kind not in FORMATS:
        got = "" if kind is None else format_value(kind)
        kinds = (*FORMATS, *(_OF_QUEUES if batch is not None else ()))
        hint = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        wanted = format_alternatives(kinds)
        if batch is not None:
            maps = "" if not got else ", a ConfigMap with the file of KAI, Kueue or Volcano"
            wanted += f"{maps}, or a file with scheduler, or actions and tiers"
        problems.add("kind", got, wanted, hint)
        raise problems.error(source)
    form = FORMATS[kind]
    version = tree.get("apiVersion") or (form.api_versions[0] if body else None)
    if version not in form.api_versions:
        got = "" if version is None else format_value(version)
        problems.add("apiVersion", got, format_alternatives(form.api_versions))
    rest = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    sessions = None
    if batch is not None:
        sessions = batches.read_block(rest.pop(batches.OPTIONS, None), source, batch, problems)
    found = form.read(rest, source, registry, defaults, problems)
    if sessions is None:
        return found
    found = msgspec.structs.replace(found, batch=sessions)
    _check_names(found, source)
    return found
