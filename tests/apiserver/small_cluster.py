"""A cluster in virtual time for the tests of controllers and hollow nodes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from stowplan.apis.core.pod_lifecycle import PodLifecycleDefaults
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase
from stowplan.apiserver.admission.custom_object_checks import checks_of
from stowplan.apiserver.admission.queues.kai_pod_admission import KaiPodAdmission
from stowplan.apiserver.admission.queues.kai_queue_admission import KaiQueueAdmission
from stowplan.apiserver.admission.queues.queued_job_admission import QueuedJobAdmission
from stowplan.apiserver.admission.volcano_admission import VolcanoAdmission
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.options import ApiServerOptions, NonResourcePages
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controllers.job_sets.job_set_kinds import job_set_definitions
from stowplan.controllers.kai.kai_definitions import kai_definitions
from stowplan.controllers.kueue.kueue_kinds import kueue_definitions
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.controllers.volcano.volcano_kinds import volcano_definitions
from stowplan.framework.feature_gates import FeatureGates
from stowplan.kubelet.hollow_nodes import make_hollow_nodes
from stowplan.objects.store import DeleteOptions

Tree = dict[str, Any]

START = 1_000_000_000.0
"""When the worlds of the tests begin: 2001-09-09T01:46:40Z."""
DEPLOYMENTS, SETS, JOBS = "apps/deployments", "apps/replicasets", "batch/jobs"


class SmallCluster:
    """A cluster, its time, and a scheduler that binds every pod to the next node with room."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        simulates_nodes: bool = True,
        schedules: bool = True,
        start_s: float = 1.0,
        capacity: dict[str, str] | None = None,
        node_lifecycle: NodeLifecycleOptions | None = None,
        workloads: bool = False,
        volcano: bool = False,
        kai: bool = False,
        device_taint_rules: bool = False,
        kueue: KueueOptions | None = None,
        job_sets: bool = False,
        gates: FeatureGates | None = None,
        pages: Sequence[NonResourcePages] = (),
        validates: bool = True,
    ) -> None:
        """volcano: with Volcano's kinds and controllers. kai: with those of KAI-Scheduler. kueue:
        with those of Kueue. job_sets: with those of JobSets and Kubeflow. gates: of the
        controllers. pages: discovery and the like. validates: False: invalid objects are stored."""
        self.now = START
        self.schedules = schedules
        manager_options = ControllerManagerOptions(
            hollow_nodes=simulates_nodes,
            pod_lifecycle=PodLifecycleDefaults(start_s=start_s),
            node_lifecycle=node_lifecycle or NodeLifecycleOptions(),
            volcano=volcano,
            kai=kai,
            kueue=kueue,
            job_sets=job_sets,
            gates=gates or FeatureGates(),
        )
        webhooks: list[AdmissionPluginBase] = [VolcanoAdmission()] if volcano else []
        webhooks += [QueuedJobAdmission()] if kueue is not None else []
        webhooks += [KaiPodAdmission(), KaiQueueAdmission()] if kai and validates else []
        definitions = [*(volcano_definitions() if volcano else ())]
        definitions += kueue_definitions() if kueue is not None else ()
        definitions += kai_definitions() if kai else ()
        definitions += job_set_definitions() if job_sets else ()
        webhooks += [checks_of(definitions)] if definitions and validates else []
        registry = built_in_registry(workloads=workloads, device_taint_rules=device_taint_rules)
        options = ApiServerOptions(
            registry=registry,
            admission=(*default_admission(), *webhooks),
            observers=(DefinitionController(),),
            pages=pages,
            validates=validates,
        )
        self.cluster = EmbeddedCluster(
            options, np.random.default_rng(7), manager_options=manager_options
        )
        self.server = self.cluster.server
        self.api = self.cluster.controller_manager.api
        self.api.now = self.now
        self._next_node = 0
        for name in ("default", "kube-system", "kube-node-lease"):
            if self.get("namespaces", name, "") is None:
                self.create("namespaces", {"metadata": {"name": name}})
        for definition in definitions:
            is_kind = definition["kind"] == "CustomResourceDefinition"
            path = "apiextensions.k8s.io/customresourcedefinitions" if is_kind else "namespaces"
            self.create(path, definition)
        self.settle()
        for node in make_hollow_nodes(nodes, capacity=capacity):
            self.create("nodes", node)
        self.settle()

    def create(self, path: str, obj: Tree) -> Tree:
        """Store an object; namespaced ones go to `default`."""
        obj = copy.deepcopy(obj)
        resource = self.server.registry.by_path(path)
        assert resource is not None, path
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", "default")
        self.api.now = self.now
        return self.api.create(path, obj)

    def get(self, path: str, name: str, namespace: str = "default") -> Tree | None:
        """An object as it stands."""
        resource = self.server.registry.by_path(path)
        assert resource is not None, path
        return self.api.get(path, namespace if resource.namespaced else "", name)

    def the(self, path: str, name: str, namespace: str = "default") -> Tree:
        """An object that must be there."""
        found = self.get(path, name, namespace)
        assert found is not None, f"{path} {name} is not there"
        return found

    def list(self, path: str, namespace: str = "") -> list[Tree]:
        """All objects of a kind."""
        return list(self.api.list(path, namespace))

    def pods(self, namespace: str = "default", **labels: str) -> list[Tree]:
        """The pods with these labels, terminating ones included."""
        return [
            pod
            for pod in self.list("pods", namespace)
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        ]

    def change(self, path: str, name: str, namespace: str = "default", **spec: Any) -> Tree:
        """Set fields of an object's spec."""
        obj = self.the(path, name, namespace)
        obj["spec"].update(spec)
        return self.api.update(path, obj)

    def delete(self, path: str, name: str, namespace: str = "default", **how: Any) -> None:
        """Delete an object. how: fields of `DeleteOptions`."""
        resource = self.server.registry.by_path(path)
        assert resource is not None, path
        self.api.now = self.now
        place = namespace if resource.namespaced else ""
        self.api.delete(path, place, name, DeleteOptions(**how))

    def settle(self, most: int = 2000) -> None:
        """Let everything happen that happens at this moment."""
        for _ in range(most):
            following = self.cluster.tick(self.now)
            at_rest = following is None or following > self.now
            if at_rest and not (self.schedules and self._schedule()):
                return
        raise AssertionError("the cluster does not come to rest")

    def run(self, seconds: float, watch: Any = None) -> None:
        """Let time pass, from one moment at which something is due to the next.

        watch: called with the world after each.
        """
        end = self.now + seconds
        for _ in range(100_000):
            self.settle()
            if watch is not None:
                watch(self)
            following = self.cluster.next_at()
            if following is None or following > end:
                self.now = end
                self.settle()
                return
            self.now = max(following, self.now)
        raise AssertionError("too much happens")

    def _schedule(self) -> int:
        """Bind what waits; a stand-in for a scheduler, with a view of taints and selectors."""
        bound = 0
        for pod in self.list("pods"):
            spec = pod["spec"]
            gated = spec.get("schedulingGates") or pod["metadata"].get("deletionTimestamp")
            if spec.get("nodeName") or gated or pod["status"].get("phase") != "Pending":
                continue
            selector = (spec.get("nodeSelector") or {}).items()
            nodes = [
                node
                for node in self.list("nodes")
                if _takes(node, _pinned(spec)) and selector <= node["metadata"]["labels"].items()
            ]
            if nodes:
                self._next_node += 1
                node = nodes[self._next_node % len(nodes)]
                self.server.bind(pod, node["metadata"]["name"], self.now)
                bound += 1
        return bound


def _takes(node: Tree, pinned: str) -> bool:
    """Whether a pod is bound to a node; one that is pinned to it tolerates its taints."""
    if pinned:
        return bool(node["metadata"]["name"] == pinned)
    return not (node.get("spec") or {}).get("taints")


def _pinned(spec: Tree) -> str:
    """The node that a pod's node affinity names; "" for none."""
    of_node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    names = (field["values"][0] for term in terms for field in term.get("matchFields") or ())
    return next(names, "")


def container(**more: Any) -> Tree:
    """A container that asks for a little CPU."""
    return {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}, **more}


def pod(name: str, *, notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A pod to create."""
    meta: Tree = {"name": name, "labels": {"app": name}}
    if notes:
        meta["annotations"] = notes
    return {"metadata": meta, "spec": {"containers": [container()], **spec}}


def template(app: str, notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A pod template."""
    meta: Tree = {"labels": {"app": app}}
    if notes:
        meta["annotations"] = notes
    return {"metadata": meta, "spec": {"containers": [container()], **spec}}


def deployment(name: str, replicas: int, notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A Deployment to create."""
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, notes),
            **spec,
        },
    }


def job(name: str, notes: dict[str, str] | None = None, policy: str = "Never", **spec: Any) -> Tree:
    """A Job to create."""
    return {
        "metadata": {"name": name},
        "spec": {"template": template(name, notes, restartPolicy=policy), **spec},
    }
