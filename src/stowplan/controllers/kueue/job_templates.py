"""What an admission changes in the pod templates of a job, and how that is undone.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/podset/podset.go.
"""

from __future__ import annotations

import copy

from stowplan.controllers.kueue.kueue_kinds import (
    POD_SET_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from stowplan.controllers.kueue.workload_status import PodSetInfo
from stowplan.objects.encoding.tree import Tree


def start_template(template: Tree, info: PodSetInfo, workload: str, pod_set: str) -> None:
    """Give a template the selectors and tolerations of an admission. workload: its name."""
    info.apply(template["spec"])
    if not info.has_places:
        return
    # Pods of the template wait for their places in a topology.
    meta = template["metadata"] = template.get("metadata") or {}
    meta["annotations"] = {**(meta.get("annotations") or {}), WORKLOAD_ANNOTATION: workload}
    meta["labels"] = {**(meta.get("labels") or {}), POD_SET_LABEL: pod_set}
    gates = template["spec"].setdefault("schedulingGates", [])
    if all(gate["name"] != TOPOLOGY_GATE for gate in gates):
        gates.append({"name": TOPOLOGY_GATE})


def restore_template(template: Tree, wanted: Tree) -> None:
    """Make a template as it was before `start_template`. wanted: that of the Workload."""
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        _set(template["spec"], name, copy.deepcopy(wanted["spec"].get(name)))
    meta = template["metadata"] = template.get("metadata") or {}
    for name in ("labels", "annotations"):
        old = (wanted.get("metadata") or {}).get(name) or {}
        now = meta.get(name) or {}
        _set(meta, name, {key: now[key] for key in now if key in old or not _is_ours(key)})


def _is_ours(key: str) -> bool:
    return key in (WORKLOAD_ANNOTATION, POD_SET_LABEL)


def _set(tree: Tree, name: str, value: object) -> None:
    if value:
        tree[name] = value
    else:
        tree.pop(name, None)
