"""Setting a condition of a pod as the API server itself does.

Source: kube-apiserver v1.36, pkg/api/pod/util.go (UpdatePodCondition).
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.machinery.timestamps import format_time

Tree = dict[str, Any]


def set_pod_condition(pod: Tree, wanted: Tree, now: float) -> bool:
    """Put `wanted` in the place of the condition of its type; False if it said the same already.

    The time of the transition is kept while the status is.
    """
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    entry = {
        "type": wanted["type"],
        "status": wanted["status"],
        "lastProbeTime": None,
        "lastTransitionTime": format_time(now),
    }
    entry |= {name: wanted[name] for name in ("reason", "message") if wanted.get(name)}
    for at, old in enumerate(conditions):
        if old.get("type") != wanted["type"]:
            continue
        if old.get("status") == wanted["status"]:
            entry["lastTransitionTime"] = old.get("lastTransitionTime")
        same = ("status", "reason", "message", "lastProbeTime", "lastTransitionTime")
        changed = any(old.get(name) != entry.get(name) for name in same)
        conditions[at] = entry
        return changed
    conditions.append(entry)
    return True
