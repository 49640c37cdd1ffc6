"""Which pod an argument names: `web`, `NAMESPACE/web`, `pod/web`, or one of `deploy/web`."""

from __future__ import annotations

import click

from stowplan.forecast.explain import found_pod
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_owners import OWNER_KINDS, POD_NAMES, pods_of_owner
from stowplan.objects.pod import Pod

DEFAULT_NAMESPACE = "default"
NAMES_SHOWN = 5


def find_pod_argument(text: str, namespace: str | None, cluster: Cluster) -> Pod:
    """The pod that an argument of the command line names; raises InputError.

    namespace: None for any. Of an owner's pods it is the last that waits, or else the last: pods
    of a template come one after the other, so the last is the one that finds no room.
    """
    before, slash, name = text.partition("/")
    if not slash:
        return _by_name(text, namespace, cluster)
    if before in POD_NAMES:
        return _by_name(name, namespace, cluster)
    if before in OWNER_KINDS:
        pods = pods_of_owner(cluster.pods, OWNER_KINDS[before], name, namespace)
        if pods:
            return _last(text, pods, cluster)
        # The word may be the name of a namespace, too.
        if not any(pod.key == text for pod in cluster.pods):
            where = "any namespace" if namespace is None else f"namespace {namespace!r}"
            wanted = f"{OWNER_KINDS[before]} with pods in {where}"
            raise InputError(text, "", "no pods that it owns", f"a {wanted}")
    return found_pod(text, cluster)


def _by_name(name: str, namespace: str | None, cluster: Cluster) -> Pod:
    if namespace is not None:
        return found_pod(f"{namespace}/{name}", cluster)
    found = [pod for pod in cluster.pods if pod.name == name]
    if len(found) > 1:
        keys = ", ".join(pod.key for pod in found[:NAMES_SHOWN])
        raise InputError(f"pod {name}", "", f"{len(found)} of this name", f"one of {keys}")
    return found[0] if found else found_pod(name, cluster)


def _last(text: str, pods: list[Pod], cluster: Cluster) -> Pod:
    keys = {pod.key for pod in pods}
    waiting = [pod for pod in cluster.pending() if pod.key in keys]
    chosen = (waiting or pods)[-1]
    if len(pods) > 1:
        count = f"{len(pods)} pods, {len(waiting)} of them pending"
        click.echo(f"{text} has {count}; using pod/{chosen.name}", err=True)
    return chosen
