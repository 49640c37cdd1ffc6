"""Error messages of the command line, as kubectl words them."""

from __future__ import annotations

import pytest

from tests.cli.run import run


@pytest.mark.parametrize(
    ("arguments", "message", "usage"),
    [
        ("simulate --confg x", 'unknown flag: --confg (did you mean "--config"?)', "simulate"),
        ("simulate --nonsense", "unknown flag: --nonsense", "simulate"),
        ("explain web -z", "unknown shorthand flag: 'z' in -z", "explain"),
        ("simulate --until", "flag needs an argument: --until", "simulate"),
        ("explain", "POD is required", "explain"),
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


@pytest.mark.parametrize("flag", ["-n", "--namespace", "-A", "--all-namespaces"])
@pytest.mark.parametrize(
    "command", ["run", "up", "extender", "bench", "parity", "demo", "evaluate", "config check"]
)
def test_commands_without_a_namespace_say_so(command: str, flag: str) -> None:
    ran = run(*command.split(), flag)
    assert (ran.code, ran.out) == (2, "")
    text = f'unknown flag: {flag} ("stowplan {command}" is not limited to a namespace)'
    assert ran.err.splitlines()[0] == f"error: {text}"


@pytest.mark.parametrize("command", ["simulate", "explain x", "queues", "status"])
@pytest.mark.parametrize("flags", [("-n", "team"), ("--namespace=team",), ("-A",)])
def test_commands_that_read_a_cluster_take_a_namespace(
    command: str, flags: tuple[str, ...]
) -> None:
    cluster = ("--address", "127.0.0.1:1") if command == "status" else ("-f", "nowhere.yaml")
    ran = run(*command.split(), *flags, *cluster)
    assert ran.code == 2
    assert "unknown" not in ran.err
