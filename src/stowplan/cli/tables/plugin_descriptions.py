"""What `stowplan plugin describe` prints: the declaration of a plugin and its documentation."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import msgspec

from stowplan.framework.plugin import Plugin
from stowplan.framework.plugin_calls import method_name
from stowplan.framework.runtime.registry import RegistryEntry

LABEL_WIDTH = 19


class PluginDescription(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin, for users.

    points: the extension points. reads: kinds beside nodes and pods; None where the plugin does
    not declare them. declared: the other fields that differ from their defaults. arguments: the
    fields of its arguments with their defaults. required: the arguments without a default.
    source: what it was written after.
    """

    name: str
    class_name: str = msgspec.field(name="class")
    in_tree: bool
    points: tuple[str, ...]
    weight: int
    reads: tuple[str, ...] | None
    declared: dict[str, Any]
    kernel_terms: bool
    arguments: dict[str, Any]
    required: tuple[str, ...]
    description: str
    source: str


class SessionPluginDescription(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin or action of sessions, for users. type: session or action."""

    name: str
    type: str
    class_name: str = msgspec.field(name="class")
    description: str


def describe_session_plugin(plugin: type[Any], kind: str) -> SessionPluginDescription:
    """The description of a plugin or action of sessions. kind: session or action."""
    return SessionPluginDescription(
        name=plugin.name,
        type=kind,
        class_name=f"{plugin.__module__}.{plugin.__qualname__}",
        description=inspect.cleandoc(plugin.__doc__ or ""),
    )


def session_table(description: SessionPluginDescription) -> str:
    """A description as `kubectl describe` lays it out."""
    lines = [
        _line("Name", description.name),
        _line("Class", description.class_name),
        _line("Type", description.type),
        *_description_lines(description.description),
    ]
    return "\n".join(lines) + "\n"


def describe_plugin(entry: RegistryEntry) -> PluginDescription:
    """The description of a registered plugin."""
    declared, plugin = entry.declaration, entry.plugin
    module = sys.modules.get(plugin.__module__)
    return PluginDescription(
        name=entry.name,
        class_name=f"{plugin.__module__}.{plugin.__qualname__}",
        in_tree=entry.in_tree,
        points=entry.points,
        weight=declared.weight,
        reads=None if declared.reads is None else tuple(kind.__name__ for kind in declared.reads),
        declared=_declared_fields(declared),
        kernel_terms=bool(method_name(plugin, "kernel_terms")),
        arguments=_arguments(entry.args),
        required=tuple(
            field.encode_name for field in msgspec.structs.fields(entry.args) if field.required
        ),
        description=inspect.cleandoc(plugin.__doc__ or ""),
        source=_source_of(inspect.cleandoc((module and module.__doc__) or "")),
    )


def _declared_fields(declared: Plugin) -> dict[str, Any]:
    """The fields that a plugin declares beside those that every description has."""
    default = Plugin(name=declared.name)
    return {
        field: getattr(declared, field)
        for field in declared.__struct_fields__
        if field not in ("name", "weight", "reads")
        and getattr(declared, field) != getattr(default, field)
    }


def _arguments(args: type[msgspec.Struct]) -> dict[str, Any]:
    """Argument, as configurations spell it -> its default."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(args):
        if field.default_factory is not msgspec.NODEFAULT:
            found[field.encode_name] = msgspec.to_builtins(field.default_factory())
        elif not field.required:
            found[field.encode_name] = msgspec.to_builtins(field.default)
    return found


def _source_of(text: str) -> str:
    """The paragraph of a docstring that begins with `Source:`."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("Source:"):
            return " ".join(paragraph.removeprefix("Source:").split())
    return ""


def as_table(description: PluginDescription) -> str:
    """A description as `kubectl describe` lays it out."""
    reads = description.reads
    kinds = "<unknown>" if reads is None else ", ".join(reads) or "<none>"
    declared = [
        field if value is True else f"{field}={value}"
        for field, value in description.declared.items()
    ]
    lines = [
        _line("Name", description.name),
        _line("Class", description.class_name),
        _line("In tree", _yes_no(value=description.in_tree)),
        _line("Extension points", ", ".join(description.points)),
        _line("Weight", str(description.weight)),
        _line("Reads", kinds),
        _line("Declares", ", ".join(declared) or "<none>"),
        _line("Kernel terms", _yes_no(value=description.kernel_terms)),
        _line("Source", description.source or "<none>"),
    ]
    arguments = [f"  {name}: <required>" for name in description.required]
    for name, value in description.arguments.items():
        arguments.append(f"  {name}: {'<unset>' if value is None else json.dumps(value)}")
    lines += ["Arguments:", *arguments] if arguments else [_line("Arguments", "<none>")]
    lines += _description_lines(description.description)
    return "\n".join(lines) + "\n"


def _description_lines(text: str) -> list[str]:
    return ["Description:", *(f"  {line}".rstrip() for line in text.splitlines())]


def _line(label: str, value: str) -> str:
    return f"{label + ':':<{LABEL_WIDTH}}{value}"


def _yes_no(*, value: bool) -> str:
    return "yes" if value else "no"
