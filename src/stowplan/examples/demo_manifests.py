"""Manifests of the demo: nodes, workloads and scheduler configuration, as trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.kubelet.hollow_nodes import make_hollow_nodes
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.podgroup import GROUP_API_VERSIONS

NAMESPACE = "default"
BATCH = "batch"
"""The schedulerName of session pods."""
GROUP_API = GROUP_API_VERSIONS[1]
GROUP_NAME = "scheduling.k8s.io/group-name"
APP = "app"
ZONE = "topology.kubernetes.io/zone"
KUBELET = "stowplan.dev/kubelet"
CORES = 8
ZONES = {
    "node-1": "zone-a",
    "node-2": "zone-a",
    "node-3": "zone-a",
    "node-4": "zone-b",
    "node-5": "zone-b",
    "node-6": "zone-c",
}
UNREACHABLE = "node.kubernetes.io/unreachable"

CONFIGURATION = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{{schedulerName: default-scheduler}}]
batch:
  schedulerName: {BATCH}
  schedulePeriod: 500ms
  actions: "reclaim, allocate, backfill"
  tiers:
  - plugins:
    - name: priority
    - name: gang
    - name: conformance
    - name: drf
    - name: predicates
    - name: proportion
    - name: nodeorder
"""
"""One scheduler with two deciders: pods one by one as in kube-scheduler, gangs as in kube-batch.
One tier, so that both `gang` and `proportion` must agree to an eviction."""

PATHS = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "PodGroup": f"/apis/{GROUP_API}/namespaces/{NAMESPACE}/podgroups",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Queue": f"/apis/{GROUP_API}/queues",
}
"""API path of each kind."""


def initial_objects() -> Iterator[tuple[str, Tree]]:
    """The nodes, and the CRDs."""
    for node in make_hollow_nodes(len(ZONES)):
        meta = node["metadata"]
        meta["labels"][ZONE] = ZONES[meta["name"]]
        yield "", node
    yield "", _definition("PodGroup", "Namespaced")
    yield "", _definition("Queue", "Cluster")


def _definition(kind: str, scope: str) -> Tree:
    group, _, version = GROUP_API.partition("/")
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    open_tree = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": open_tree, "status": open_tree}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [served]},
    }


def deployment(name: str, replicas: int, cpu: str, **spec: Any) -> Tree:
    """A Deployment. spec: additional fields of the pod spec."""
    labels = {APP: name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(cpu) | spec},
        },
    }


def spread(name: str) -> list[Tree]:
    """The constraint that no zone may have two pods of an app more than another (maxSkew 1)."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {APP: name}},
        }
    ]


def queue(name: str, weight: int) -> Tree:
    """A Queue."""
    return {
        "apiVersion": GROUP_API,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def pod_group_with_job(name: str, in_queue: str, pods: int, at_least: int, cpu: str) -> list[Tree]:
    """A PodGroup, and the Job whose pods are in it and run until deleted."""
    group = {
        "apiVersion": GROUP_API,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": at_least, "queue": in_queue},
    }
    marks = {GROUP_NAME: name, "stowplan.dev/run-seconds": "forever"}
    inner = _pod_spec(cpu) | {"schedulerName": BATCH, "restartPolicy": "Never"}
    template = {"metadata": {"labels": {APP: name}, "annotations": marks}, "spec": inner}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 100,
            "template": template,
        },
    }
    return [group, job]


def priority_class(name: str, value: int) -> Tree:
    """A PriorityClass."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _pod_spec(cpu: str) -> Tree:
    """A container that requests CPU. Its pod tolerates a missing node for a few seconds only."""
    leave = {
        "key": UNREACHABLE,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 5,
    }
    container = {"name": "c", "image": "hollow", "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container], "tolerations": [leave]}
