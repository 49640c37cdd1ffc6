"""What `stowplan eta` does: find the pods, forecast their starts, print them."""

from __future__ import annotations

import re

import click
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.cli.errors import CommandError, guess, invalid_argument
from stowplan.cli.options import TREES
from stowplan.cli.runs.forecasts.asked_cluster import read_asked_cluster
from stowplan.cli.runs.forecasts.eta_request import EtaRequest
from stowplan.cli.runs.pod_argument import unknown_resource
from stowplan.cli.simulate_options import read_autoscale_option
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.eta_table import print_expected_starts
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.eta import eta
from stowplan.forecast.start_times.groups_without_pods import WaitingGroup, waiting_groups
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import (
    OWNER_KINDS,
    POD_GROUP_NAMES,
    POD_NAMES,
    owners_of,
    pod_group_of,
    pods_of_owner,
)
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup

GROUP_KINDS = (PodGroup, KaiPodGroupObject)

_INTERVAL = re.compile(r"([0-9]{1,2})-([0-9]{2,3})")


def run_eta(request: EtaRequest, deciders: Deciders, output: str) -> int:
    """Print the forecast; the exit code."""
    source = request.source
    if request.target is None and not request.every:
        raise click.UsageError("JOB or POD is required, or --all")
    if request.target is not None and request.every:
        if source.is_live or source.record_file is not None:
            raise click.UsageError("--all takes no JOB or POD")
        # The first argument is a file: there is no target before it.
        source = source._replace(paths=(request.target, *source.paths))
        request = request._replace(source=source, target=None)
    if deciders.kueue is not None:
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.cli.runs.kueue.kueue_eta import run_kueue_eta

        return run_kueue_eta(request, deciders, output)
    percentiles = _percentiles(request.interval)
    autoscale = read_autoscale_option(request.autoscale)
    cluster, now = read_asked_cluster(
        source, deciders, request.now, with_finished=True, with_workloads=True
    )
    groups = _asked_groups(request, waiting_groups(cluster, deciders, now))
    if groups and request.target is not None:
        raise CommandError(groups[0].text)
    if request.every or request.target is None:
        pods = [
            pod for pod in cluster.pending() if request.namespace in (None, pod.metadata.namespace)
        ]
    else:
        pods = find_pods(request.target, request.namespace or source.namespace, cluster)
    with paused_collector():
        found = eta(
            cluster,
            [pod.key for pod in pods],
            config=deciders,
            now=now,
            draws=request.draws,
            percentiles=percentiles,
            seed=request.seed,
            horizon_s=request.horizon_s,
            arrivals_s=request.arrivals_s,
            autoscale=autoscale,
            calibrate=request.calibrate,
        )
    more = (f"{one.text}; its pods are not in the forecast" for one in groups)
    found = replace(found, assumptions=(*found.assumptions, *more))
    if output in TREES:
        print_tree(found, output)
    elif output == "name":
        print_names("pod", [pod.name for pod in pods])
    else:
        print_expected_starts(found, stdout_console(), wide=output == "wide")
        for one in groups if not found.pods else ():
            click.echo(one.text)
    if groups:
        return 1
    return 1 if any(pod.start is not None and pod.start.is_late for pod in found.pods) else 0


def _asked_groups(request: EtaRequest, groups: list[WaitingGroup]) -> list[WaitingGroup]:
    """Those of the groups without pods that are asked for."""
    if request.target is None:
        return [one for one in groups if request.namespace in (None, one.namespace)]
    namespace = request.namespace or request.source.namespace
    word, slash, name = request.target.partition("/")
    kind = OWNER_KINDS.get(word.lower(), "").lower()
    names = {f"{kind}/{name}"} if slash else {f"{kind}/{word}" for kind in ("job", "podgroup")}
    if word.lower() in POD_GROUP_NAMES:
        names = {name, f"{namespace}/{name}"}
    return [one for one in groups if one.namespace == namespace and {one.job, one.group} & names]


def find_pods(text: str, namespace: str, cluster: Cluster) -> list[Pod]:
    """The pods that an argument names, in order; raises CommandError with the closest name."""
    word, slash, name = text.partition("/")
    resource = word.lower()
    if slash and resource in POD_GROUP_NAMES:
        pods = _of_group(name, namespace, cluster)
    elif slash and resource in OWNER_KINDS:
        kind = OWNER_KINDS[resource]
        # A pod of a namespace with such a name is found below.
        pods = pods_of_owner(cluster.pods, kind, name, namespace) or _by_key(text, cluster)
    elif slash and resource in POD_NAMES:
        pods = _by_key(f"{namespace}/{name}", cluster)
    elif slash:
        pods = _by_key(text, cluster) or _of_group(name, word, cluster)
    else:
        pods = _by_name(text, namespace, cluster)
    if pods:
        return pods
    key = text if slash and _is_key(resource) else f"{namespace}/{name or word}"
    if key in cluster.not_created:
        raise CommandError(f"pods {key} was not created: {cluster.not_created[key]}")
    raise CommandError(_not_found(text, namespace, cluster))


def _is_key(resource: str) -> bool:
    return resource not in POD_NAMES and resource not in OWNER_KINDS


def _by_name(name: str, namespace: str, cluster: Cluster) -> list[Pod]:
    """A pod, else the pods of a PodGroup, else those of an owner."""
    found = _by_key(f"{namespace}/{name}", cluster) or _of_group(name, namespace, cluster)
    if found:
        return found
    return [
        pod
        for pod in cluster.pods
        if pod.namespace == namespace and any(owner == name for _, owner in owners_of(pod))
    ]


def _by_key(key: str, cluster: Cluster) -> list[Pod]:
    return [pod for pod in cluster.pods if pod.key == key]


def _of_group(name: str, namespace: str, cluster: Cluster) -> list[Pod]:
    key = name if "/" in name else f"{namespace}/{name}"
    found = [pod for pod in cluster.pods if pod_group_of(pod) == key]
    groups = (value.key for value in cluster.objects if isinstance(value, GROUP_KINDS))
    if not found and key in groups:
        raise CommandError(f'podgroups "{name}" has no pods in namespace "{namespace}"')
    return found


def _not_found(text: str, namespace: str, cluster: Cluster) -> str:
    """The error for an unknown name, with the closest known one."""
    word, slash, name = text.partition("/")
    resource = word.lower()
    own = [pod for pod in cluster.pods if pod.namespace == namespace]
    owners = {(kind, owner) for pod in own for kind, owner in owners_of(pod)}
    if slash and resource in OWNER_KINDS:
        kind = OWNER_KINDS[resource]
        known = {owner for its, owner in owners if its == kind}
        close = guess(name, known, f"{resource}/")
        return f'no pods found for {kind} "{name}" in namespace "{namespace}"{close}'
    if slash and resource in POD_GROUP_NAMES:
        groups = {value.name for value in cluster.objects if isinstance(value, GROUP_KINDS)}
        return f'podgroups "{name}" not found in namespace "{namespace}"{guess(name, groups)}'
    unknown = unknown_resource(word, cluster) if slash else ""
    if unknown:
        return unknown
    if slash and resource not in POD_NAMES:
        keys = [pod.key for pod in cluster.pods]
        return f'pods "{name}" not found in namespace "{word}"{guess(text, keys)}'
    name = name or word
    names = {pod.name for pod in own} | {pod_group_of(pod).partition("/")[2] for pod in own}
    close = guess(name, {*names, *(owner for _, owner in owners)} - {""})
    return f'pods "{name}" not found in namespace "{namespace}"{close}'


def _percentiles(text: str) -> tuple[int, int]:
    found = _INTERVAL.fullmatch(text)
    low, high = (int(found[1]), int(found[2])) if found else (100, 0)
    if not low <= 50 <= high <= 100:
        raise invalid_argument(text, "--interval", "must be two percentiles such as 10-90")
    return low, high
