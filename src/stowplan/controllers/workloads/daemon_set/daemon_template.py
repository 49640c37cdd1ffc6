"""The pods that a DaemonSet creates: its template with tolerations, labels and a node.

Source: kube-controller-manager v1.36, pkg/controller/daemon/util/daemonset_util.go.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from stowplan.apis.apps.daemon_pods import daemon_tolerations, node_name_selector
from stowplan.controllers.workloads.controller_revisions import HASH_LABEL
from stowplan.controllers.workloads.daemon_set.daemon_pod_sync import GENERATION_LABEL
from stowplan.controllers.workloads.pod_control import pod_from_template
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import PodSpec

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_template(owner: Tree, hash_: str, generation: str) -> Tree:
    """The pod template with the labels and tolerations of all pods of `owner`.

    generation: of the template, for a deprecated label; "" for none.
    """
    template: Tree = copy.deepcopy(owner["spec"]["template"])
    labels = {GENERATION_LABEL: generation} if generation else {}
    meta = template.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), **labels, HASH_LABEL: hash_}
    template["spec"]["tolerations"] = _tree(daemon_tolerations(convert(template["spec"], PodSpec)))
    return template


def pod_to_create(owner: Tree, owner_ref: Tree, template: Tree, node: str) -> Tree:
    """A pod for a node. template: of `pod_template`."""
    pod = pod_from_template(template, owner, owner_ref)
    affinity = pod["spec"].setdefault("affinity", {})
    affinity.setdefault("nodeAffinity", {})[_REQUIRED] = _tree(node_name_selector(node))
    return pod


def _tree(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
