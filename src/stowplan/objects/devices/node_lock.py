"""Locks on nodes by which schedulers and device plugins agree on one pod at a time.

A scheduler writes the annotation before it binds a pod, and the node's device plugin removes it
once the pod has its devices. It holds the time, and with HAMi the pod: `TIME,NAMESPACE,NAME`.

Source: Project-HAMi/HAMi, pkg/util/nodelock; volcano-sh/volcano, pkg/scheduler/api/devices.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EXPIRES_S = 300
"""Age, in seconds, from which a lock no longer counts, for HAMi and Volcano alike."""


class NodeLock(msgspec.Struct, frozen=True):
    """annotation: of the node. names_pod: the value names the pod after the time."""

    annotation: str
    names_pod: bool = False

    def text(self, moment: str, namespace: str, name: str) -> str:
        """The value for a pod. moment: RFC 3339."""
        return f"{moment},{namespace},{name}" if self.names_pod else moment


VOLCANO_LOCK = NodeLock("volcano.sh/mutex.lock")
HAMI_LOCK = NodeLock("hami.io/mutex.lock", names_pod=True)


def lock_owner(text: str) -> tuple[str, str] | None:
    """Namespace and name of the pod that a lock names; None where it names none."""
    parts = text.split(",")
    return (parts[1], parts[2]) if len(parts) == 3 else None


def is_released_by(text: str, namespace: str, name: str) -> bool:
    """True if the device plugin removes a lock after it has served the pod."""
    return lock_owner(text) in (None, (namespace, name))


def lock_texts(annotations: Mapping[str, str]) -> dict[str, str]:
    """The locks that a node has, by annotation."""
    keys = (VOLCANO_LOCK.annotation, HAMI_LOCK.annotation)
    return {key: annotations[key] for key in keys if key in annotations}
