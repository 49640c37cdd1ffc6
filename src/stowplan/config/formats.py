"""Reading a configuration: which format a document is in, and the reader of that format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stowplan.config import kube_scheduler
from stowplan.config.document import documents
from stowplan.config.model import Configuration
from stowplan.config.plugin_args import API_VERSION
from stowplan.config.strict import Problems, one_of, shown
from stowplan.framework.problems import did_you_mean
from stowplan.framework.profile import PluginUse
from stowplan.framework.registry import Registry

Reader = Callable[
    [dict[str, Any], str, Registry, Sequence[PluginUse], Problems],
    Configuration,
]
"""(body, source, registry, defaults, problems) -> Configuration; raises ConfigError."""


class Format(msgspec.Struct, frozen=True):
    """A format: the versions of it that are understood, and what reads them."""

    api_versions: tuple[str, ...]
    read: Reader


FORMATS: dict[str, Format] = {
    kube_scheduler.KIND: Format((API_VERSION,), kube_scheduler.read),
}
"""kind -> format. A further format is one more entry."""


def parse(
    text: str | bytes, source: str, registry: Registry, defaults: Sequence[PluginUse]
) -> Configuration:
    """The configuration that a YAML or JSON text holds; raises ConfigError with every mistake.

    source: the file, named in errors. registry: the plugins that may be named. defaults: the
    default multiPoint list with its weights.
    """
    problems = Problems()
    found = documents(text, problems)
    if not found:
        if not problems.found:
            problems.add("document", "nothing", f"a document of kind {one_of(FORMATS)}")
        raise problems.error(source)
    if len(found) > 1:
        wanted = f"one document of kind {one_of(FORMATS)}"
        problems.add("document", f"{len(found)} documents", wanted)
        raise problems.error(source)
    return _read(found[0], source, registry, defaults, problems, body=False)


def from_tree(
    tree: Any,
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    *,
    body: bool = False,
) -> Configuration:
    """The configuration that a tree of dicts and lists holds; raises ConfigError.

    body: apiVersion and kind may be absent; it is then a KubeSchedulerConfiguration.
    """
    return _read(tree, source, registry, defaults, Problems(), body=body)


def default(registry: Registry, defaults: Sequence[PluginUse]) -> Configuration:
    """The configuration of somebody who gave none."""
    return from_tree({}, "default configuration", registry, defaults, body=True)


def _read(
    tree: Any,
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    problems: Problems,
    *,
    body: bool,
) -> Configuration:
    if not isinstance(tree, dict):
        wanted = f"a mapping with apiVersion and kind: {one_of(FORMATS)}"
        problems.add("document", shown(tree), wanted)
        raise problems.error(source)
    kind = tree.get("kind") or (kube_scheduler.KIND if body else None)
    if not isinstance(kind, str) or kind not in FORMATS:
        got = "" if kind is None else shown(kind)
        hint = did_you_mean(kind, FORMATS) if isinstance(kind, str) else ""
        problems.add("kind", got, one_of(FORMATS), hint)
        raise problems.error(source)
    form = FORMATS[kind]
    version = tree.get("apiVersion") or (form.api_versions[0] if body else None)
    if version not in form.api_versions:
        got = "" if version is None else shown(version)
        problems.add("apiVersion", got, one_of(form.api_versions))
    rest = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    return form.read(rest, source, registry, defaults, problems)
