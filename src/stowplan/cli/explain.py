"""`stowplan explain`: why a pod is where it is, or nowhere."""

from __future__ import annotations

import sys

import click
import msgspec

from stowplan.cli import options
from stowplan.cli.explain_table import print_explanation
from stowplan.cli.screen import screen
from stowplan.sim.explain import explain


@click.command(name="explain")
@click.argument("pod", metavar="POD")
@options.cluster
@options.config
@options.profile
@options.plugin
@click.option("-n", "--namespace", metavar="NS", default="default", show_default=True)
@options.output
def command(
    pod: str,
    clusters: tuple[str, ...],
    config_file: str | None,
    profile: str | None,
    plugin_files: tuple[str, ...],
    namespace: str,
    output: str,
) -> None:
    """Say, node by node, which rules refuse POD, what it needs and what there is.

    POD is a name or NAMESPACE/NAME. It is judged on the cluster as given, before other pending
    pods are placed; a placed pod as if it were to be placed now. Exit code 1 when no node takes
    it.
    """
    key = pod if "/" in pod else f"{namespace}/{pod}"
    explanation = explain(key, clusters, config=config_file, plugins=plugin_files, profile=profile)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(explanation), indent=2))
    else:
        print_explanation(explanation, screen())
    sys.exit(0 if explanation.node else 1)
