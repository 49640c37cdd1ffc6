"""Controller reference manager: adopts matching orphans, and releases objects that no longer match.

Source: kube-controller-manager v1.36, pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_fields import (
    controller_of,
    is_deleting,
    parse_label_selector,
    selector_matches,
)
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts
from stowplan.controller_runtime.resource_paths import PODS, REPLICA_SETS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store


def claim_pods(api: Store, index: ObjectIndex, owner: Tree, owner_ref: Tree) -> list[PodFacts]:
    """The pods that `owner` controls, after adopting matching orphans and releasing others."""
    meta = owner["metadata"]
    if is_deleting(owner):
        return index.of_owner(meta["uid"])
    wanted = parse_label_selector(owner["spec"].get("selector"))
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    for pod in index.orphans(meta["namespace"], labels):
        if pod.is_active and selector_matches(wanted, pod.labels):
            _adopt(api, PODS, pod.key, pod.uid, owner_ref)
    for pod in index.of_owner(meta["uid"]):
        if not selector_matches(wanted, pod.labels):
            _release(api, PODS, pod.key, pod.uid, meta["uid"])
    return index.of_owner(meta["uid"])


def claim_replica_sets(api: Store, index: ObjectIndex, owner: Tree, owner_ref: Tree) -> list[Tree]:
    """The same for ReplicaSets, as fresh trees."""
    meta = owner["metadata"]
    path = REPLICA_SETS
    wanted = parse_label_selector(owner["spec"].get("selector"))
    claimed = []
    owned = (item for item in index.dependents(meta["uid"]) if item[0] == path)
    for item in (*owned, *index.loose_sets(meta["namespace"])):
        obj = api.get(*item)
        if obj is None:
            continue
        controller = controller_of(obj)
        fits = selector_matches(wanted, obj["metadata"].get("labels") or {})
        key = (meta["namespace"], obj["metadata"]["name"])
        if controller is not None and controller.get("uid") == meta["uid"]:
            if fits or is_deleting(owner):
                claimed.append(obj)
            else:
                _release(api, path, key, obj["metadata"]["uid"], meta["uid"])
        elif controller is None and fits and not is_deleting(owner) and not is_deleting(obj):
            adopted = _adopt(api, path, key, obj["metadata"]["uid"], owner_ref)
            if adopted is not None:
                claimed.append(adopted)
    return claimed


def _adopt(api: Store, path: str, key: tuple[str, str], uid: str, owner_ref: Tree) -> Tree | None:
    obj = api.get(path, *key)
    if obj is None or obj["metadata"]["uid"] != uid or controller_of(obj) is not None:
        return None
    obj["metadata"].setdefault("ownerReferences", []).append(owner_ref)
    return api.update(path, obj)


def _release(api: Store, path: str, key: tuple[str, str], uid: str, owner: str) -> None:
    obj = api.get(path, *key)
    if obj is None or obj["metadata"]["uid"] != uid:
        return
    owners = obj["metadata"].get("ownerReferences") or []
    obj["metadata"]["ownerReferences"] = [each for each in owners if each.get("uid") != owner]
    try:
        api.update(path, obj)
    except ApiError as error:
        # Deleted or terminating: nothing to release.
        if error.code not in (404, 422):
            raise
