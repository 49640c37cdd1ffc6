"""Help of every command: its options, and examples that can be run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stowplan.cli.command import Command, Group, LazyGroup
from stowplan.cli.main import cli
from tests.cli.run import run

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
"""
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SESSIONS = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]\n'
CHEAP = {
    "stowplan simulate -f cluster.yaml -o wide",
    "stowplan simulate --node-count 20 --pod-count 50 --seeds 5",
    "stowplan explain pod/web -f cluster.yaml",
    "stowplan explain pod/web -f cluster.yaml --config scheduler.yaml -o yaml",
    "stowplan queues -f cluster.yaml",
    "stowplan queues -f cluster.yaml -o name",
    "stowplan config check scheduler.yaml",
    "stowplan config check scheduler.yaml kube-batch-conf.yaml -o json",
    "stowplan config check scheduler.yaml --plugin my_rule.py",
    "stowplan plugin list",
    "stowplan plugin describe TaintToleration",
    "stowplan plugin describe near_data --plugin near_data.py -o yaml",
    "stowplan plugin new near_data",
    "stowplan plugin list --plugin near_data.py -o wide",
    "stowplan evaluate cases.jsonl",
    "stowplan bench --list",
    "stowplan parity",
    "stowplan parity -o json",
}
"""Examples that end by themselves, soon, and need no cluster; in an order in which they can run."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and every group, by the words that call it."""
    yield "stowplan", cli
    context = click.Context(cli, info_name="stowplan")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield f"stowplan {name}", command
        if isinstance(command, click.Group):
            for part, inner in command.commands.items():
                yield f"stowplan {name} {part}", inner


COMMANDS = dict(commands())


def examples(text: str) -> list[str]:
    """The command lines, without comments, with continued lines joined."""
    joined = text.replace("\\\n", " ")
    return [line for line in joined.strip().splitlines() if line and not line.startswith("#")]


def parse(line: str) -> None:
    """Parse the stowplan command of a line, and run nothing; raises click.UsageError."""
    found = re.search(r"stowplan( (?:'[^']*'|[^|>)'])*)", line)
    assert found is not None, line
    command: click.Command = cli
    words = shlex.split(found[1])
    while isinstance(command, click.Group):
        context = click.Context(command, info_name="stowplan")
        _, chosen, words = command.resolve_command(context, words)
        assert chosen is not None
        command = chosen
    command.make_context("stowplan", words)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_parse(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command | Group | LazyGroup)
    lines = [line for line in examples(command.examples) if "stowplan " in line]
    assert lines, name
    for line in lines:
        if line.startswith("stowplan"):
            assert line.startswith(name), (name, line)
        parse(line)
    output = run(*name.split()[1:], "--help").out
    head, _, tail = output.partition("\nExamples:\n")
    assert "Usage: " + name in head
    lines = [line.strip() for line in command.examples.strip().splitlines()]
    assert [line.strip() for line in tail.splitlines()] == lines


def test_an_example_with_an_unknown_flag_is_caught() -> None:
    with pytest.raises(click.NoSuchOption):
        parse("stowplan simulate --no-such-flag")


def test_every_cheap_example_is_in_a_help_text() -> None:
    every = {line for command in COMMANDS.values() for line in examples(command.examples)}  # type: ignore[attr-defined]
    assert every >= CHEAP


def test_cheap_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "cluster.yaml": CLUSTER,
        "scheduler.yaml": CONFIG,
        "kube-batch-conf.yaml": SESSIONS,
        "my_rule.py": "from stowplan.framework import score\n\n\n"
        '@score("MyRule")\ndef my_rule(node):\n    return 1\n',
        "cases.jsonl": '{"id": "a", "pod": {"metadata": {"name": "p"}, '
        '"spec": {"containers": []}}}\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for line in sorted(CHEAP, key=lambda line: "near_data.py" in line):
        ran = run(*shlex.split(line)[1:])
        assert (ran.code, ran.err) == (0, ""), (line, ran)
        assert ran.out, line


STATUS = ("stowplan status", "stowplan diagnose")
"""Commands that ask the scheduler of a cluster, of which they look for one."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if not isinstance(parameter, click.Option):
            continue
        text = parameter.help or ""
        assert re.match(r"[A-Z].*[.\]]$", text, re.DOTALL), (name, parameter.opts, text)
        takes_value = not parameter.is_flag and not parameter.required
        has_default = parameter.show_default or "[default:" in text or "Repeatable." in text
        optional = {"--profile", "--compat", "--out", "--compare", "--explain", "--token"}
        optional |= {"--tls-private-key-file", "--client-ca-file", "-n", "--validate"}
        optional |= {"--kubeconfig"} if name in STATUS else set()
        optional |= {"--token-file"} if name == "stowplan up" else set()
        if takes_value and not optional & set(parameter.opts):
            assert has_default, (name, parameter.opts, text)


def test_without_arguments_help_is_printed() -> None:
    for words in ((), ("plugin",), ("config",)):
        ran = run(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == run(*words, "--help").out
