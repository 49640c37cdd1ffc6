"""pluginConfig: arguments of a profile's plugins, decoded into each plugin's Struct.

Fields left out have the Struct's defaults. As in the original the arguments may contain
`apiVersion` and `kind`, which must be those of the plugin's arguments.

Differs: arguments of unknown plugins and of plugins without arguments are mistakes, because nothing
would read them; the original ignores them.

Source: kube-scheduler v1.36, kube-scheduler/config/v1 and apis/config/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stowplan.config.model import Setting
from stowplan.config.plugin_sets import find_plugin
from stowplan.config.strict_decoder import INVALID, Problems, decode, fields_of, format_value
from stowplan.framework.runtime.registry import Registry, RegistryEntry

API_VERSION = "kubescheduler.config.k8s.io/v1"


class PluginConfig(Setting, frozen=True):
    """An entry of `pluginConfig`."""

    name: str = ""
    args: Any = None


def args_of(
    written: Sequence[PluginConfig],
    names: Iterable[str],
    registry: Registry,
    path: str,
    problems: Problems,
) -> dict[str, Any]:
    """Arguments of the plugins `names`, in that order; adds problems.

    Arguments of plugins that the profile does not run are checked and dropped.
    """
    given: dict[str, Any] = {}
    first: dict[str, int] = {}
    for i, item in enumerate(written):
        where = f"{path}[{i}]"
        if problems.is_invalid(where):
            continue
        entry = find_plugin(item.name, registry, f"{where}.name", problems)
        if entry is None:
            continue
        if item.name in first:
            hint = f"first at {path}[{first[item.name]}]"
            problems.add(f"{where}.name", f"{item.name!r} again", "each plugin once", hint)
        else:
            first[item.name] = i
            given[item.name] = _decoded(item.args, entry, f"{where}.args", problems)
    absent = {
        name: _decoded(None, registry[name], f"{path}[{name!r}].args", problems)
        for name in names
        if name not in given
    }
    return {name: given[name] if name in given else absent[name] for name in names}


def _decoded(tree: Any, entry: RegistryEntry, path: str, problems: Problems) -> Any:
    """The arguments as the plugin's Struct, None (with a problem) when invalid."""
    bare = _without_type(tree, entry, path, problems) if isinstance(tree, dict) else tree
    args = decode({} if bare is None else bare, entry.args, path, problems)
    if args is INVALID:
        return None
    if hasattr(args, "problems"):
        problems.extend(args.problems(path))
    return args


def _without_type(tree: dict[str, Any], entry: RegistryEntry, path: str, problems: Problems) -> Any:
    """The arguments without `apiVersion` and `kind`, which are checked only."""
    wanted = {"kind": f"{entry.name}Args"}
    if entry.in_tree:
        wanted["apiVersion"] = API_VERSION
    own = fields_of(entry.args)
    for key, value in wanted.items():
        if key not in own and tree.get(key, value) not in (None, value):
            problems.add(f"{path}.{key}", format_value(tree[key]), repr(value))
    return {k: v for k, v in tree.items() if k in own or k not in ("apiVersion", "kind")}


def has_arguments(args: Any) -> bool:
    """True for arguments with at least one field."""
    return isinstance(args, msgspec.Struct) and bool(fields_of(type(args)))
