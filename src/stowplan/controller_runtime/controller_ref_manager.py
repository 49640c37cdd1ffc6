"""Controller reference manager: adopts matching orphans, and releases objects that no longer match.

Source: kube-controller-manager v1.36, pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Callable

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


def claim_pods(
    api: Store,
    index: ObjectIndex,
    owner: Tree,
    owner_ref: Tree,
    *,
    finished: bool = False,
    is_member: Callable[[PodFacts], bool] = lambda pod: True,
) -> list[PodFacts]:
    """The pods that `owner` controls, after adopting matching orphans and releasing others.

    finished: whether finished orphans are adopted, too. is_member: a condition beside the selector.
    """
    meta = owner["metadata"]
    if is_deleting(owner):
        return index.of_owner(meta["uid"])
    wanted = parse_label_selector(owner["spec"].get("selector"))
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    for pod in index.orphans(meta["namespace"], labels):
        adoptable = not pod.deleting if finished else pod.is_active
        if adoptable and selector_matches(wanted, pod.labels) and is_member(pod):
            _adopt(api, PODS, pod.key, pod.uid, owner_ref)
    owned = index.of_owner(meta["uid"])
    others = [pod for pod in owned if not (selector_matches(wanted, pod.labels) and is_member(pod))]
    for pod in others:
        _release(api, PODS, pod.key, pod.uid, meta["uid"])
    return index.of_owner(meta["uid"]) if others else owned


def claim_replica_sets(api: Store, index: ObjectIndex, owner: Tree, owner_ref: Tree) -> list[Tree]:
    """The same for ReplicaSets, as fresh trees."""
    return claim_objects(api, index, REPLICA_SETS, owner, owner_ref)


def claim_objects(
    api: Store,
    index: ObjectIndex,
    path: str,
    owner: Tree,
    owner_ref: Tree,
    *,
    releases: bool = True,
) -> list[Tree]:
    """The same for ReplicaSets or ControllerRevisions (by path), as fresh trees.

    releases: whether owned objects that do not match are released; they are never returned.
    """
    meta = owner["metadata"]
    wanted = parse_label_selector(owner["spec"].get("selector"))
    claimed = []
    owned = (item for item in index.dependents(meta["uid"]) if item[0] == path)
    for item in (*owned, *index.without_owner(path, meta["namespace"])):
        obj = api.get(*item)
        if obj is None:
            continue
        controller = controller_of(obj)
        fits = selector_matches(wanted, obj["metadata"].get("labels") or {})
        key = (meta["namespace"], obj["metadata"]["name"])
        if controller is not None and controller.get("uid") == meta["uid"]:
            if fits or is_deleting(owner):
                claimed.append(obj)
            elif releases:
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
