"""What `stowplan plugin check` does: run the contract's checks on each plugin of a file."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stowplan.assembly.plugin_files import is_batch_part, plugins_of_file
from stowplan.cli.options import TREES
from stowplan.cli.tables.console import print_tree
from stowplan.framework.runtime.declarations import ineffective_fields
from stowplan.inputs.counts import count_of
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing import CheckFailed, checks, session_plugin_checks


class PluginCheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a check. failure: "" where it passed. same_as: the earlier check that failed
    for the same reason, "" for none."""

    plugin: str
    check: str
    passed: bool
    failure: str = ""
    same_as: str = ""


def run_check(file: str, config_files: tuple[str, ...], output: str) -> int:
    """Check the plugins of a file and print the results; the exit code."""
    plugins = plugins_of_file(file)
    args = _arguments(plugins, config_files)
    for plugin in plugins:
        for warning in () if is_batch_part(plugin) else ineffective_fields(plugin):
            click.echo(f"Warning: {warning}", err=True)
    results = [one for plugin in plugins for one in _checked(plugin, args.get(plugin.name))]
    if output in TREES:
        print_tree(results, output)
    else:
        for plugin in plugins:
            _print(plugin.name, [one for one in results if one.plugin == plugin.name])
    return 0 if all(one.passed for one in results) else 1


def _arguments(plugins: tuple[type[Any], ...], files: tuple[str, ...]) -> dict[str, Any]:
    """Plugin -> its arguments in the first profile, or the first tier, that runs it."""
    configuration = read_deciders(files, plugins).configuration
    args: dict[str, Any] = {}
    for profile in configuration.profiles.values():
        args = profile.args | args
    tiers = configuration.batch.tiers if configuration.batch is not None else None
    for use in (use for tier in tiers or () for use in tier):
        args.setdefault(use.name, use.arguments)
    return args


def _checked(plugin: type[Any], args: Any) -> list[PluginCheckResult]:
    results = []
    first: dict[str, str] = {}
    applicable = (
        session_plugin_checks(plugin, args or {}) if is_batch_part(plugin) else checks(plugin, args)
    )
    for check in applicable:
        try:
            check()
        except CheckFailed as failed:
            earlier = first.setdefault(failed.finding, check.name)
            same_as = "" if earlier == check.name else earlier
            text = f"the same as {same_as}" if same_as else str(failed)
            results.append(PluginCheckResult(plugin.name, check.name, False, text, same_as))
        else:
            results.append(PluginCheckResult(plugin.name, check.name, True))
    return results


def _print(name: str, results: list[PluginCheckResult]) -> None:
    failed = [one for one in results if not one.passed]
    if failed:
        click.echo(f"{name}: {len(failed)} of {len(results)} checks failed")
        for one in failed:
            if one.same_as:
                continue
            click.echo(f"  {one.failure}")
            others = [other.check for other in failed if other.same_as == one.check]
            if others:
                click.echo(f"    (the same in {', '.join(others)})")
    else:
        click.echo(f"{name}: {count_of(len(results), 'check')} passed")
