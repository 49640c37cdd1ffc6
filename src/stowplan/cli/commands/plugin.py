"""`stowplan plugin`: write a plugin from a template, check it, and describe any plugin."""

from __future__ import annotations

import builtins
import importlib.util
import json
import keyword
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from stowplan.cli import options
from stowplan.cli.runs.plugin_templates import (
    CLASS,
    CLASS_TEST,
    FUNCTION,
    FUNCTION_TEST,
    RESERVED_NAMES,
)
from stowplan.inputs.input_error import InputError


@click.group(name="plugin")
def command() -> None:
    """Write, check and describe plugins."""


class PluginCheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a check. failure: "" for one that passed. same_as: the earlier check that
    failed for the same reason, "" where none did."""

    plugin: str
    check: str
    passed: bool
    failure: str = ""
    same_as: str = ""


@command.command()
@options.config
@options.output
@click.argument("file", metavar="FILE.py")
def check(file: str, config_files: tuple[str, ...], output: str) -> None:
    """Check that the plugins of FILE keep the plugin contract.

    Declarations and signatures are checked first. Each plugin is then called on clusters generated
    from fixed seeds, on its own, with the arguments that --config has for it. Exit code 1 when a
    check fails, 2 when FILE cannot be loaded.
    """
    from stowplan.assembly.plugin_files import plugins_of_file

    plugins = plugins_of_file(file)
    args = _arguments(plugins, config_files)
    outcomes = [one for plugin in plugins for one in _checked(plugin, args.get(plugin.name))]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(one) for one in outcomes], indent=2))
    else:
        for plugin in plugins:
            _print(plugin.name, [one for one in outcomes if one.plugin == plugin.name])
    sys.exit(0 if all(one.passed for one in outcomes) else 1)


def _arguments(plugins: tuple[type[Any], ...], files: tuple[str, ...]) -> dict[str, Any]:
    """Plugin -> its arguments in the first profile, or the first tier, that runs it."""
    from stowplan.simulation.scheduler_configuration import read_deciders

    configuration = read_deciders(files, plugins).configuration
    args: dict[str, Any] = {}
    for profile in configuration.profiles.values():
        args = profile.args | args
    tiers = configuration.batch.tiers if configuration.batch is not None else None
    for policy in (policy for tier in tiers or () for policy in tier):
        args.setdefault(policy.name, policy.arguments)
    return args


def _checked(plugin: type[Any], args: Any) -> list[PluginCheckResult]:
    # Imported here, as `plugin new` needs none of it.
    from stowplan.assembly.plugin_files import is_batch_part
    from stowplan.testing import CheckFailed, checks, session_plugin_checks

    outcomes = []
    first: dict[str, str] = {}
    ours = (
        session_plugin_checks(plugin, args or {}) if is_batch_part(plugin) else checks(plugin, args)
    )
    for one in ours:
        try:
            one()
        except CheckFailed as failed:
            before = first.setdefault(failed.finding, one.name)
            same = "" if before == one.name else before
            text = f"the same as {same}" if same else str(failed)
            outcomes.append(PluginCheckResult(plugin.name, one.name, False, text, same))
        else:
            outcomes.append(PluginCheckResult(plugin.name, one.name, True))
    return outcomes


def _print(name: str, outcomes: list[PluginCheckResult]) -> None:
    failed = [one for one in outcomes if not one.passed]
    if failed:
        click.echo(f"{name}: {len(failed)} of {len(outcomes)} checks failed")
        for one in failed:
            if one.same_as:
                continue
            click.echo(f"  {one.failure}")
            others = [other.check for other in failed if other.same_as == one.check]
            if others:
                click.echo(f"    (the same in {', '.join(others)})")
    else:
        click.echo(f"{name}: {len(outcomes)} checks passed")


@command.command()
@options.plugin
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.argument("name", metavar="NAME")
def describe(name: str, plugin_files: tuple[str, ...], output: str) -> None:
    """Print the declaration and the documentation of the plugin NAME.

    NAME is an in-tree plugin, a plugin of an installed distribution, or one of --plugin FILE.py.

    \b
    Examples:
      stowplan plugin describe TaintToleration
      stowplan plugin describe NodeResourcesFit -o yaml
      stowplan plugin describe near-data --plugin near_data.py
    """
    from stowplan.assembly.build import registered
    from stowplan.assembly.plugin_files import plugins_of_file
    from stowplan.cli.tables.plugin_descriptions import as_text, describe_plugin
    from stowplan.framework.problems import did_you_mean

    plugins = [plugin for file in plugin_files for plugin in plugins_of_file(file)]
    registry, _ = registered(plugins, name)
    if name not in registry:
        hint = did_you_mean(name, registry)
        raise InputError.at("", "", f'plugin "{name}" not found{f" ({hint})" if hint else ""}')
    click.echo(as_text(describe_plugin(registry[name]), output), nl=False)


@command.command()
@click.option("--class", "as_class", is_flag=True, help="A class with arguments, not a function.")
@click.argument("name", metavar="NAME")
def new(name: str, as_class: bool) -> None:
    """Write a plugin template NAME.py and its test test_NAME.py into the current directory.

    Existing files are not overwritten.
    """
    _check_name(name)
    title = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    words = {"name": name, "title": title}
    rule, test = (CLASS, CLASS_TEST) if as_class else (FUNCTION, FUNCTION_TEST)
    texts = {
        f"{name}.py": rule.substitute(words),
        f"test_{name}.py": test.substitute(words),
    }
    for path in texts:
        if Path(path).exists():
            raise InputError(path, "", "a file that is there already", "a name that is free")
    for path, text in texts.items():
        try:
            with Path(path).open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as problem:
            got = (problem.strerror or str(problem)).lower()
            raise InputError(path, "", got, "a directory to write into") from None
    click.echo(f"Written: {', '.join(texts)}")
    click.echo(
        f"Try: stowplan simulate --plugin {name}.py; stowplan plugin check {name}.py; pytest"
    )


def _check_name(name: str) -> None:
    plain = name.removesuffix(".py").replace("-", "_").replace(".", "_")
    wanted = "a name that Python can import, such as near_data"
    if not name.isidentifier() or keyword.iskeyword(name) or not name.strip("_"):
        is_near = plain != name and plain.isidentifier() and not keyword.iskeyword(plain)
        hint = f" (did you mean {plain!r}?)" if is_near else ""
        raise InputError("NAME", "", repr(name), wanted + hint)
    if name.lower() in RESERVED_NAMES or hasattr(builtins, name):
        raise InputError("NAME", "", f"{name!r}, which is something else already", "another name")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        got = f"{name!r}, the name of a module that Python has already"
        raise InputError("NAME", "", got, "another name")
