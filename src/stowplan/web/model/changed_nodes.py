"""What has changed on nodes between two looks, in words."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.node_columns import CORDONED, NOT_READY, NodeView

CHANGES_MAX = 20
_TEXTS = ((CORDONED, "cordoned", "uncordoned"), (NOT_READY, "not ready", "ready"))


def node_changes(before: NodeView, after: NodeView, time: float) -> list[Tree]:
    """Nodes added, removed, cordoned, uncordoned, not ready and ready; at most CHANGES_MAX.
    time: milliseconds since 1970."""
    found: list[Tree] = []
    for name, text in _changes(before, after):
        found.append({"time": time, "what": "node", "name": name, "text": text})
        if len(found) == CHANGES_MAX:
            break
    return found


def _changes(before: NodeView, after: NodeView) -> Iterator[tuple[str, str]]:
    old, new = before.columns.names, after.columns.names
    if old != new:
        known, now = set(old), set(new)
        yield from ((name, "added") for name in new if name not in known)
        yield from ((name, "removed") for name in old if name not in now)
    flags = dict(zip(old, before.flags.tolist(), strict=True))
    for name, flag in zip(new, after.flags.tolist(), strict=True):
        was = flags.get(name, flag)
        if was == flag:
            continue
        for bit, set_, cleared in _TEXTS:
            if (was ^ flag) & bit:
                yield name, set_ if flag & bit else cleared
