"""Queues of a cluster that the configuration does not read, and which option does."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError, reported
from stowplan.cli.runs.cluster_source import ClusterSource
from stowplan.config import DEFAULT_SOURCE
from stowplan.config.queue_models.queue_model_choice import KAI, KUEUE, VOLCANO
from stowplan.config.queue_models.scheduler_hints import OPTIONS
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.kueue_listing import GROUP, VERSIONS
from stowplan.driver.client.object_listing import lists_with_objects
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.kai.kai_kinds import KAI_QUEUE_API_VERSION, KaiQueueObject
from stowplan.objects.podgroup import Queue, QueueSpec

_TEXTS = {
    KAI: "does not read KAI-Scheduler's Queues: use",
    KUEUE: "does not read Kueue's ClusterQueues: use",
    VOLCANO: "reads only weight and capability of Volcano's Queues: use",
}
_LISTS = {
    f"/apis/{KAI_QUEUE_API_VERSION}/queues": KAI,
    **{f"/apis/{GROUP}/{version}/clusterqueues": KUEUE for version in VERSIONS},
}


def unread_queues(source: ClusterSource, cluster: Cluster, deciders: Deciders) -> list[str]:
    """A line for each scheduler whose queues kube-batch's default sessions do not read; none where
    a configuration, or an option, has chosen. Raises CommandError."""
    batch = deciders.batch
    if batch is None or batch.queue_model is not None or batch.source != DEFAULT_SOURCE:
        return []
    models = dict.fromkeys(_models(source, cluster))
    return [
        f"kube-batch's default configuration {_TEXTS[model]} {OPTIONS[model]}" for model in models
    ]


def report_unread_queues(
    source: ClusterSource, cluster: Cluster, deciders: Deciders, *, is_empty: bool
) -> None:
    """Print these lines as notes. is_empty: no queues are shown, so that they are an error, which
    is raised as CommandError."""
    lines = unread_queues(source, cluster, deciders)
    if lines and is_empty:
        raise CommandError("\n".join(lines))
    for line in lines:
        click.echo(f"Note: {line}", err=True)


def _models(source: ClusterSource, cluster: Cluster) -> Iterator[str]:
    if any(isinstance(one, KaiQueueObject) for one in cluster.objects):
        yield KAI
    names = {tree["metadata"].get("name") for tree in cluster.kueue_objects}
    if any(tree.get("kind") == "ClusterQueue" for tree in cluster.kueue_objects):
        yield KUEUE
    # A ClusterQueue in files becomes a Queue where Kueue does not decide.
    queues = [one for one in cluster.objects if isinstance(one, Queue) and one.name not in names]
    if any(_has_fields_of_volcano(one.spec) for one in queues):
        yield VOLCANO
    if source.is_live:
        with reported(CredentialError):
            client_config = load_client_config(source.kubeconfig, source.context)
            found = lists_with_objects(client_config, _LISTS)
        yield from (model for path, model in _LISTS.items() if path in found)


def _has_fields_of_volcano(spec: QueueSpec) -> bool:
    """Whether a Queue states more than kube-batch's sessions read."""
    return replace(spec, weight=0, capability={}) != QueueSpec()
