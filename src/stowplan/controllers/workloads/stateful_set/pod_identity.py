"""Names, labels and volumes of the pods of a StatefulSet.

Source: kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_utils.go.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import lru_cache

from stowplan.controllers.workloads.controller_revisions import HASH_LABEL
from stowplan.controllers.workloads.pod_control import pod_from_template
from stowplan.objects.encoding.tree import Tree

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)$", re.DOTALL)
_ORDINAL_MAX = 2**31 - 1


@lru_cache(maxsize=1 << 16)
def parent_and_ordinal(name: str) -> tuple[str, int]:
    """StatefulSet and ordinal by a pod's name; ("", -1) for another name."""
    found = _NAME.match(name)
    if found is None:
        return "", -1
    ordinal = int(found[2])
    return found[1], ordinal if ordinal <= _ORDINAL_MAX else -1


def start_ordinal(owner: Tree) -> int:
    """The first ordinal."""
    start = (owner["spec"].get("ordinals") or {}).get("start", 0)
    return int(start)


def replica_count(owner: Tree) -> int:
    """`spec.replicas`."""
    return int(owner["spec"].get("replicas", 1))


def is_in_range(owner: Tree, ordinal: int) -> bool:
    """True for the ordinals that the StatefulSet wants."""
    start = start_ordinal(owner)
    return start <= ordinal < start + replica_count(owner)


def pod_name(owner: Tree, ordinal: int) -> str:
    """Name of the pod with this ordinal."""
    return f"{owner['metadata']['name']}-{ordinal}"


def claim_names(owner: Tree, ordinal: int) -> dict[str, str]:
    """Names of the claims of a pod, by volume, in the order of the templates."""
    templates = owner["spec"].get("volumeClaimTemplates") or ()
    set_name = owner["metadata"]["name"]
    names = (each["metadata"]["name"] for each in templates)
    return {name: f"{name}-{set_name}-{ordinal}" for name in names}


def claims_of(owner: Tree, ordinal: int) -> list[Tree]:
    """The PersistentVolumeClaims of a pod, as they are created."""
    names = claim_names(owner, ordinal)
    selected = owner["spec"]["selector"].get("matchLabels") or {}
    claims = []
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        claim = copy.deepcopy(template)
        meta = claim["metadata"]
        meta["name"] = names[meta["name"]]
        meta["namespace"] = owner["metadata"]["namespace"]
        meta["labels"] = {**(meta.get("labels") or {}), **selected}
        claims.append(claim)
    return claims


def new_pod(owner: Tree, owner_ref: Tree, template: Tree, revision: str, ordinal: int) -> Tree:
    """The pod with this ordinal. template: that of `revision`, the name of a ControllerRevision."""
    pod = pod_from_template(template, owner, owner_ref)
    set_identity(pod, owner, ordinal)
    pod["metadata"]["labels"][HASH_LABEL] = revision
    pod["spec"]["hostname"] = pod["metadata"]["name"]
    if owner["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
    set_storage(pod, owner, ordinal)
    return pod


def set_identity(pod: Tree, owner: Tree, ordinal: int) -> None:
    """Set a pod's name and identity labels."""
    meta = pod["metadata"]
    meta["name"] = pod_name(owner, ordinal)
    labels = {POD_NAME_LABEL: meta["name"], POD_INDEX_LABEL: str(ordinal)}
    meta["labels"] = {**(meta.get("labels") or {}), **labels}


def set_storage(pod: Tree, owner: Tree, ordinal: int) -> None:
    """Set a pod's volumes to its claims; they replace others of their name."""
    claims = claim_names(owner, ordinal)
    if not claims:
        return
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in claims.items()
    ]
    others = [each for each in pod["spec"].get("volumes") or () if each["name"] not in claims]
    pod["spec"]["volumes"] = volumes + others


def identity_matches(owner: Tree, name: str, labels: Mapping[str, str]) -> bool:
    """True when name and pod-name label are those of a pod of `owner`."""
    parent, ordinal = parent_and_ordinal(name)
    return (
        ordinal >= 0
        and parent == owner["metadata"]["name"]
        and name == pod_name(owner, ordinal)
        and labels.get(POD_NAME_LABEL) == name
    )


def storage_matches(owner: Tree, pod: Tree, ordinal: int) -> bool:
    """True when a pod has a volume for each of its claims."""
    volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
    for name, claim in claim_names(owner, ordinal).items():
        source = (volumes.get(name) or {}).get("persistentVolumeClaim") or {}
        if source.get("claimName") != claim:
            return False
    return True
