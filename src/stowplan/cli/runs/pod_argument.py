"""The pod that an argument names: `web`, `NAMESPACE/web`, `pod/web`, or one of `deploy/web`."""

from __future__ import annotations

import click

from stowplan.cli.errors import CommandError, guess
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import (
    OWNER_KINDS,
    POD_GROUP_NAMES,
    POD_NAMES,
    pod_in_question,
    pods_of_owner,
)
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace

NAMES_LISTED = 5
QUEUE_NAMES = (
    "queue", "queues", "clusterqueue", "clusterqueues", "localqueue", "localqueues",
)  # fmt: skip


def find_pod_argument(
    text: str, namespace: str | None, cluster: Cluster, *, reports_choice: bool = True
) -> Pod:
    """The pod that an argument of the command line names; raises CommandError.

    namespace: None for any. reports_choice: print which one of an owner's pods it is. Of an owner's
    pods it is the last pending one (pods of a template are scheduled in order, so that the last is
    the first not to fit), else the last that runs and is not being deleted; failed ones last.
    """
    word, slash, name = text.partition("/")
    if not slash:
        return _by_name(text, namespace, cluster)
    resource = word.lower()
    if resource in POD_NAMES:
        return _by_name(name, namespace, cluster)
    if resource in OWNER_KINDS:
        kind = OWNER_KINDS[resource]
        pods = pods_of_owner(cluster.pods, kind, name, namespace)
        if pods:
            return _last(pods, cluster, reports_choice=reports_choice)
        # The word may be the name of a namespace, too.
        if not any(pod.key == text for pod in cluster.pods):
            raise CommandError(f'no pods found for {kind} "{name}"{_in(namespace)}')
    unknown = unknown_resource(word, cluster)
    if unknown:
        raise CommandError(unknown)
    return _by_name(name, word, cluster)


def unknown_resource(word: str, cluster: Cluster) -> str:
    """The error for the word before the slash, where it is closer to a resource type than to a
    namespace; "" for a resource type, and for what may be a namespace."""
    known = (*POD_NAMES, *OWNER_KINDS, *POD_GROUP_NAMES)
    spaces = {one.metadata.namespace for one in (*cluster.pods, *cluster.objects)}
    spaces |= {one.name for one in cluster.objects if isinstance(one, Namespace)}
    if word.lower() in known or word in spaces:
        return ""
    if word.lower() in QUEUE_NAMES:
        there = "`stowplan queues` shows queues, `stowplan queues --audit` what is wrong with them"
        return f'resource type "{word}": expected pods, workloads or podgroups ({there})'
    close = guess(word.lower(), (*known, *spaces))
    if not close or any(f'"{space}"' in close for space in spaces - {*known}):
        return ""
    return f'the server doesn\'t have a resource type "{word}"{close}'


def names_pods(text: str, namespace: str | None, cluster: Cluster) -> bool:
    """Whether an argument, as for `find_pod_argument`, names pods of the cluster."""
    word, slash, name = text.partition("/")
    resource = word.lower()
    if slash and resource in OWNER_KINDS:
        return bool(pods_of_owner(cluster.pods, OWNER_KINDS[resource], name, namespace))
    place = namespace if not slash or resource in POD_NAMES else word
    plain = name if slash else text
    return any(pod.name == plain and place in (None, pod.namespace) for pod in cluster.pods)


def _by_name(name: str, namespace: str | None, cluster: Cluster) -> Pod:
    found = [pod for pod in cluster.pods if pod.name == name and namespace in (None, pod.namespace)]
    if not found:
        raise CommandError(_not_found(name, namespace, cluster))
    if len(found) > 1:
        keys = ", ".join(pod.key for pod in found[:NAMES_LISTED])
        raise CommandError(f'pods "{name}" found {len(found)} times: name one of {keys}')
    return found[0]


def _not_found(name: str, namespace: str | None, cluster: Cluster) -> str:
    key = f"{namespace}/{name}"
    if key in cluster.not_created:
        return f"pods {key} was not created: {cluster.not_created[key]}"
    text = f'pods "{name}" not found{_in(namespace)}'
    own = [pod.name for pod in cluster.pods if namespace in (None, pod.namespace)]
    others = {pod.name: pod.key for pod in cluster.pods}
    if name in others:
        return f'{text} (did you mean "{others[name]}"?)'
    return text + (guess(name, own) or guess(key, others.values()))


def _in(namespace: str | None) -> str:
    return " in any namespace" if namespace is None else f' in namespace "{namespace}"'


def _last(pods: list[Pod], cluster: Cluster, *, reports_choice: bool) -> Pod:
    keys = {pod.key for pod in pods}
    pending = [pod for pod in cluster.pending() if pod.key in keys]
    chosen = pod_in_question(pending or pods)
    if len(pods) > 1 and reports_choice:
        count = f"{len(pods)} pods, {len(pending)} of them pending"
        click.echo(f"Found {count}, using pod/{chosen.name}", err=True)
    return chosen
