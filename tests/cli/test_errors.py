"""Error messages of the command line, as kubectl words them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from stowplan.cli.main import cli
from tests.cli.run import run


@pytest.mark.parametrize(
    ("arguments", "message", "usage"),
    [
        ("simulate --confg x", 'unknown flag: --confg (did you mean "--config"?)', "simulate"),
        ("simulate --nonsense", "unknown flag: --nonsense", "simulate"),
        ("explain web -z", "unknown shorthand flag: 'z' in -z", "explain"),
        ("simulate --until", "flag needs an argument: --until", "simulate"),
        ("explain", "POD is required", "explain"),
        ("-n team", "COMMAND is required", ""),
        ("plugin -A", "COMMAND is required", "plugin"),
        ("config check", "FILE is required", "config check"),
        ("extender", 'required flag(s) "listen" not set', "extender"),
        ("demo x", 'unexpected argument "x"', "demo"),
        ("simulte", 'unknown command "simulte" for "stowplan" (did you mean "simulate"?)', ""),
        (
            "plugin lst",
            'unknown command "lst" for "stowplan plugin" (did you mean "list"?)',
            "plugin",
        ),
        (
            "explain web -o xml",
            'invalid argument "xml" for "-o, --output" flag: must be one of: '
            "table, wide, json, yaml, name",
            "explain",
        ),
        (
            "simulate --node-count 0",
            'invalid argument "0" for "--node-count" flag: must be an integer greater than or '
            "equal to 1",
            "simulate",
        ),
        (
            "up --port 99999",
            'invalid argument "99999" for "--port" flag: must be an integer between 0 and 65535, '
            "inclusive",
            "up",
        ),
        (
            "completion csh",
            'SHELL: Invalid value: "csh": must be one of: bash, zsh, fish',
            "completion",
        ),
    ],
)
def test_usage_errors(arguments: str, message: str, usage: str) -> None:
    ran = run(*arguments.split())
    assert (ran.code, ran.out) == (2, "")
    command = f"stowplan {usage}".strip()
    assert ran.err == f"error: {message}\nSee '{command} --help' for usage.\n"


WITH_ALL_NAMESPACES = ("stowplan simulate", "stowplan explain")
WITH_A_NAMESPACE = (
    *WITH_ALL_NAMESPACES,
    "stowplan what-if",
    "stowplan preempt-preview",
    "stowplan eta",
)
"""Commands whose answer depends on -n; -A overrides it."""
NAMESPACE_FLAGS = ("-n", "--namespace", "-A", "--all-namespaces")


def leaf_commands(
    group: click.Group, path: str = "stowplan"
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaf_commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(leaf_commands(cli))


@pytest.mark.parametrize("path", COMMANDS)
@pytest.mark.parametrize(
    "flags", [("-n", "team"), ("--namespace=team",), ("-nteam",), ("-A",), ("-A", "-n", "team")]
)
@pytest.mark.parametrize("flags_first", [False, True])
def test_every_command_accepts_a_namespace(
    path: str, flags: tuple[str, ...], *, flags_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the command and before it; where it has no effect, one line says so."""
    command = COMMANDS[path]
    called = []
    monkeypatch.setattr(command, "callback", lambda **_: called.append(path))
    words = path.split()[1:]
    needed = [one for one in command.params if one.required]
    values = {"listen": ("--listen", "127.0.0.1:0"), "shell": ("bash",), "out": ("--out", "x")}
    rest = [word for one in needed for word in values.get(one.name or "", ("x",))]
    ran = run(*((*flags, *words, *rest) if flags_first else (*words, *rest, *flags)))
    has_effect = path in (WITH_ALL_NAMESPACES if "-A" in flags else WITH_A_NAMESPACE)
    names = "-A has" if path in WITH_A_NAMESPACE else "-n and -A have"
    assert ran == (0, "", "" if has_effect else f'Warning: {names} no effect on "{path}"\n')
    assert called == [path]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_namespace_flags_where_they_have_an_effect(path: str) -> None:
    text = run(*path.split()[1:], "--help").out
    printed = [name for name in NAMESPACE_FLAGS if re.search(rf"(?<!\S){name}\b", text)]
    assert bool(printed) == (path in WITH_A_NAMESPACE)


@pytest.mark.parametrize("command", ["simulate", "explain x", "queues", "status"])
@pytest.mark.parametrize("flags", [("-n", "team"), ("--namespace=team",), ("-A",)])
def test_commands_that_read_a_cluster_take_a_namespace(
    command: str, flags: tuple[str, ...]
) -> None:
    cluster = ("--address", "127.0.0.1:1") if command == "status" else ("-f", "nowhere.yaml")
    ran = run(*command.split(), *flags, *cluster)
    assert ran.code == 2
    assert "unknown" not in ran.err
