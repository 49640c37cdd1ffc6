"""Reference pages made from code: commands, configuration, metrics, decisions."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

SOURCES = Path(__file__).parents[2] / "src" / "stowplan"
FAMILY = re.compile(r"(Counter|Gauge|Histogram|Info|Summary)MetricFamily")
SERIES_NAME = re.compile(r"(?:scheduler|volcano|stowplan|kube_batch)_[a-z0-9_]+")
SERIES = re.compile(rf'^[A-Z_]+ = "{SERIES_NAME.pattern}"$', re.MULTILINE)


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
    examples = getattr(command, "examples", "").strip()
    if examples:
        parts.append(f"~~~~shell\n{examples}\n~~~~\n")
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


class Series(NamedTuple):
    """A series of /metrics."""

    kind: str
    labels: tuple[str, ...]
    help: str


def metrics() -> str:
    """Every series that the scheduler and the embedded API server expose."""
    families = _families()
    recorded = {name: one for name, one in _recorded().items() if name not in families}
    parts = [
        "# Metrics\n",
        "Made from the code that exposes them; the help texts are those of `/metrics`. Series of "
        "kube-scheduler (`scheduler_...`) and of Volcano (`volcano_...`) have the names and labels "
        "of the original.\n",
        "## State when `/metrics` is read\n",
        "| series | kind | labels | help |",
        "|---|---|---|---|",
    ]
    for name, series in sorted(families.items()):
        labels = ", ".join(f"`{label}`" for label in series.labels)
        parts.append(f"| `{name}` | {series.kind} | {labels} | {_cell(series.help)} |")
    parts += ["\n## Counted and measured\n", "| series | kind | help |", "|---|---|---|"]
    for name, series in sorted(recorded.items()):
        parts.append(f"| `{name}` | {series.kind} | {_cell(series.help)} |")
    return "\n".join(parts) + "\n"


def _sources() -> Iterator[ast.Module]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if FAMILY.search(text) or SERIES.search(text) or "_metric_family(" in text:
            yield ast.parse(text)


def _calls(module: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(name of what is called, call) of a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def _families() -> dict[str, Series]:
    """The series whose metric family is made where they are looked up."""
    helps = _helps()
    found: dict[str, Series] = {}
    for name, call in (one for module in _sources() for one in _calls(module)):
        texts = [text for arg in call.args if (text := _text(arg))]
        made = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else name
        match = FAMILY.fullmatch(made)
        if match and texts:
            given = next((one.value for one in call.keywords if one.arg == "labels"), None)
            labels = tuple(ast.literal_eval(given)) if given is not None else ()
            kind = match[1].lower()
            series = texts[0].removesuffix("_total") + "_total" * (kind == "counter")
            found[series] = Series(kind, labels, helps.get(series) or texts[-1])
        elif name == "_metric_family" and len(texts) == 3:
            found[texts[0]] = Series(texts[1], ("component",), texts[2])
    return found


def _text(argument: ast.expr) -> str:
    """The text of a literal, or of a constant of the module of help texts; "" for neither."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.Attribute(value=ast.Name(id="metrics_help"), attr=name):
            return str(getattr(import_module("stowplan.driver.live.metrics_help"), name))
    return ""


def _helps() -> dict[str, str]:
    """Series -> help text, of those that are recorded by name."""
    for name in ("metrics_help", "exposition"):
        try:
            module = import_module(f"stowplan.driver.live.{name}")
        except ModuleNotFoundError:
            continue
        return dict(module.HELP)
    raise LookupError("no table of help texts")


def _recorded() -> dict[str, Series]:
    """The series that are recorded by name and exposed as they are."""
    helps = _helps()
    kinds = {"count": "counter", "set_gauge": "gauge", "observe": "histogram"}
    found: dict[str, Series] = {}
    for module in _sources():
        constants = {
            target.id: node.value.value
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and SERIES_NAME.fullmatch(str(node.value.value))
        }
        used = {
            constants[call.args[0].id]: kinds[name]
            for name, call in _calls(module)
            if name in kinds and call.args and isinstance(call.args[0], ast.Name)
            if call.args[0].id in constants
        }
        for series in constants.values():
            kind = used.get(series) or ("counter" if series.endswith("_total") else "histogram")
            found.setdefault(series, Series(kind, (), helps.get(series, "Of sessions.")))
    return found


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
