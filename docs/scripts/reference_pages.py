"""Reference pages made from code: commands, configuration, metrics, decisions."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

SOURCES = Path(__file__).parents[2] / "src" / "stowplan"
FAMILY = re.compile(r"(Counter|Gauge|Histogram|Info|Summary)MetricFamily")


# Commands


def commands() -> str:
    """A section per command: usage, help, arguments and options, from click."""
    from stowplan.cli.main import cli

    parts = [
        "# Commands\n",
        "Made from the commands themselves. `stowplan COMMAND --help` prints the same.\n",
        "Exit codes: 0 done, 1 the answer is no, 2 bad input.\n",
    ]
    for name, command, context in _commands(cli, click.Context(cli, info_name="stowplan")):
        parts.append(_command(name, command, context))
    return "\n".join(parts)


def _commands(
    group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _command(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"## {name}\n", f"~~~~text\n{usage}\n~~~~\n", _help(command.help or "")]
    rows = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
    ]
    if rows:
        parts += ["| option | |", "|---|---|"]
        parts += [f"| `{_code(option)}` | {_cell(text)} |" for option, text in rows]
        parts.append("")
    if command.epilog:
        parts.append(_help(command.epilog))
    return "\n".join(parts)


def _help(text: str) -> str:
    r"""Help as Markdown; paragraphs marked \b and indented ones keep their lines."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\f", ""))
    made = []
    for block in blocks:
        lines = block.splitlines()
        if lines and lines[0].strip() == "\b":
            made.append("~~~~text\n" + "\n".join(lines[1:]) + "\n~~~~")
        elif lines and all(line.startswith("  ") for line in lines):
            made.append("~~~~text\n" + "\n".join(lines) + "\n~~~~")
        else:
            made.append(_escaped("\n".join(lines)))
    return "\n\n".join(made) + "\n"


def _cell(text: str) -> str:
    """Text of one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def _code(text: str) -> str:
    """Text of one cell that stands in code."""
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[])", r"\\\1", text.replace("<", "&lt;"))


# Configuration


def configuration() -> str:
    """Every field of KubeSchedulerConfiguration, of plugin arguments and of sessions' options."""
    from stowplan.assembly.in_tree import IN_TREE
    from stowplan.config.kube_scheduler import KubeSchedulerDocument
    from stowplan.config.session_configuration import BatchOptions

    found: dict[type, None] = {}
    _collect(KubeSchedulerDocument, found)
    parts = [
        "# Configuration\n",
        "Made from the types that files are decoded into. A field that is not listed is an error "
        "that names the nearest field. `stowplan config check FILE` prints what is in force.\n",
        "## KubeSchedulerConfiguration\n",
        "`apiVersion: kubescheduler.config.k8s.io/v1`, `kind: KubeSchedulerConfiguration`.\n",
        _fields(KubeSchedulerDocument),
    ]
    parts += [_section(one) for one in found if one is not KubeSchedulerDocument]
    parts.append("## Arguments of plugins\n")
    parts.append("Under `profiles[].pluginConfig[].args`.\n")
    by_args: dict[type, list[str]] = {}
    for name, plugin in IN_TREE.items():
        args = getattr(plugin, "Args", None)
        if isinstance(args, type):
            by_args.setdefault(args, []).append(name)
    inner: dict[type, None] = {}
    for args, names in by_args.items():
        parts.append(f"### {', '.join(names)}\n\n{_doc(args)}\n\n{_fields(args)}")
        _collect(args, inner)
    parts += [_section(one) for one in inner if one not in by_args and one not in found]
    parts.append("## Options of sessions\n")
    parts.append(
        "The block `configuration` beside `actions` and `tiers` "
        "([Gangs, queues and fair shares](../batch.md)).\n"
    )
    parts.append(_fields(BatchOptions))
    return "\n".join(parts)


def _section(struct: type) -> str:
    return f"### {struct.__name__} {{ #{_anchor(struct)} }}\n\n{_doc(struct)}\n\n{_fields(struct)}"


def _anchor(struct: type) -> str:
    return f"type-{struct.__name__.lower()}"


def _doc(struct: type) -> str:
    own = struct.__dict__.get("__doc__") or ""
    return _escaped(" ".join(own.split()))


def _fields(struct: type) -> str:
    hints = typing.get_type_hints(struct, include_extras=True)
    rows = ["| field | type | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        kind, default = _type(hints[field.name]), _default(field)
        rows.append(f"| `{field.encode_name}` | {kind} | {default} |")
    return "\n".join(rows) + "\n"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    value = field.default
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value == "" or value == () or value == b"":
        return ""
    if isinstance(value, msgspec.Struct):
        return "its fields' defaults"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}s`"
    return f"`{msgspec.json.encode(value, enc_hook=str).decode()}`".replace("|", "\\|")


def _type(hint: Any) -> str:
    """A type in the words of the file's format."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return f"{_type(arguments[0])}{_bounds(arguments[1:])}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in arguments if one is not type(None))
    if origin is typing.Literal:
        return " or ".join(f"`{one}`" for one in arguments)
    if origin in (tuple, list, frozenset):
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"map of {_type(arguments[1])}"
    simple = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        bytes: "base64",
        timedelta: "duration",
    }
    if hint in simple:
        return simple[hint]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"[{hint.__name__}](#{_anchor(hint)})"
    return "any value" if not isinstance(hint, type) else hint.__name__


def _bounds(extras: tuple[Any, ...]) -> str:
    said = []
    for extra in extras:
        if not isinstance(extra, msgspec.Meta):
            continue
        for sign, bound in (("≥", extra.ge), (">", extra.gt), ("≤", extra.le), ("<", extra.lt)):
            if bound is not None:
                said.append(f"{sign} {bound}")
    return f" ({', '.join(said)})" if said else ""


def _collect(hint: Any, found: dict[type, None]) -> None:
    """The structs that a type mentions, in the order of their first mention."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found[hint] = None
        for one in typing.get_type_hints(hint, include_extras=True).values():
            _collect(one, found)
    for one in typing.get_args(hint):
        _collect(one, found)


# Metrics


def metrics() -> str:
    """Every series of the scheduler and of the embedded API server: name, kind, labels, help."""
    parts = [
        "# Metrics\n",
        "Made from the code that exposes them; the help texts are those of `/metrics`. Where "
        "kube-scheduler or kube-batch has a series, its name and labels are the same.\n",
    ]
    for title, rows in _families().items():
        parts += [f"## {title}\n", "| series | kind | labels | help |", "|---|---|---|---|"]
        parts += [
            f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in labels)} | {_cell(text)} |"
            for name, (kind, labels, text) in sorted(rows.items())
        ]
        parts.append("")
    return "\n".join(parts)


def _families() -> dict[str, dict[str, tuple[str, tuple[str, ...], str]]]:
    """Title -> series -> (kind, labels, help), of every metric family that the code makes."""
    found: dict[str, dict[str, tuple[str, tuple[str, ...], str]]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not FAMILY.search(text):
            continue
        rows = {
            name: (kind, labels, help_text)
            for call in ast.walk(ast.parse(text))
            if isinstance(call, ast.Call)
            for name, kind, labels, help_text in _family(call)
        }
        module = "stowplan." + ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        rows |= _counted(module)
        if rows:
            found[_title(text)] = rows
    return found


def _title(text: str) -> str:
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return docstring.splitlines()[0].rstrip(".")


def _family(call: ast.Call) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    callee = call.func.id if isinstance(call.func, ast.Name) else ""
    match = FAMILY.fullmatch(callee)
    texts = [one.value for one in call.args[:2] if isinstance(one, ast.Constant)]
    if match and len(texts) == 2:
        labels = next((one.value for one in call.keywords if one.arg == "labels"), None)
        yield (
            texts[0],
            match[1].lower(),
            tuple(ast.literal_eval(labels)) if labels else (),
            texts[1],
        )


def _counted(module: str) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """The series of a module's table HELP (series -> help text), if it has one."""
    from importlib import import_module

    table = getattr(import_module(module), "HELP", {})
    return {name: (_kind(name), (), text) for name, text in table.items()}


def _kind(name: str) -> str:
    if name.endswith("_total"):
        return "counter"
    return "histogram" if name.endswith(("_seconds", "_milliseconds", "_microseconds")) else "gauge"


# Decisions


def decisions(folder: Path) -> str:
    """The list of decision records, by number."""
    lines = [
        "# Decisions\n",
        "Each says what was decided and why, what it costs, and what would change our mind.\n",
    ]
    for path in sorted(folder.glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        title = re.sub(r"^\d{4}:\s*", "", title)
        lines.append(f"- [{path.name[:4]}]({path.name}): {title}")
    return "\n".join(lines) + "\n"
