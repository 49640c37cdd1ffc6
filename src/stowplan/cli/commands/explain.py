"""`stowplan explain`: why a pod is where it is, or nowhere."""

from __future__ import annotations

import sys

import click

from stowplan.cli import live_options, options


@click.command(name="explain")
@click.argument("pod", metavar="POD")
@options.input_options
@live_options.kubeconfig
@live_options.context
@options.config
@options.profile
@options.plugin
@options.compat
@click.option("-n", "--namespace", metavar="NS", default="default", show_default=True)
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Look for POD in all namespaces, whatever -n says."
)
@click.option(
    "--after-simulation",
    is_flag=True,
    help="Judge POD on the cluster as `stowplan simulate` has it when its turn comes.",
)
@options.output
def command(
    pod: str,
    files: tuple[str, ...],
    clusters: tuple[str, ...],
    orphans: str,
    validate: str | None,
    kubeconfig: str | None,
    context: str,
    config_files: tuple[str, ...],
    profile: str | None,
    plugin_files: tuple[str, ...],
    compat: str | None,
    namespace: str,
    all_namespaces: bool,
    after_simulation: bool,
    output: str,
) -> None:
    """Say, node by node, which rules refuse POD, what it needs and what there is.

    The cluster is that of files (FILE, -f FILE), or a live one (--kubeconfig, --context); of that
    it lists what the rules read, and writes nothing.

    POD is NAME, NAMESPACE/NAME or pod/NAME. deploy/NAME, rs, sts, ds, job, cj and rc mean one of
    the owner's pods: the last that is pending. podgroup/NAME (or pg/NAME) explains the gang.

    It is judged on the cluster as given, before other pending pods are placed; a placed pod as if
    it were to be placed now. A line says what `stowplan simulate` makes of it, and
    --after-simulation explains that. A pod that sessions decide is explained by one session, with
    its gang and queue. Exit code 1 when no node takes it.
    """
    from stowplan.cli.runs.cluster_source import ClusterSource
    from stowplan.cli.runs.explain import ExplainRequest, run_explain
    from stowplan.cli.tables.configuration_warnings import warn_of_ineffective_settings
    from stowplan.simulation.scheduler_configuration import read_deciders

    deciders = warn_of_ineffective_settings(read_deciders(config_files, plugin_files, compat or ""))
    asked = ExplainRequest(
        pod,
        ClusterSource((*clusters, *files), kubeconfig, context, orphans, validate),
        profile,
        None if all_namespaces else namespace,
        after_simulation,
        plugin_files,
        compat or "",
    )
    sys.exit(run_explain(asked, deciders, output))
