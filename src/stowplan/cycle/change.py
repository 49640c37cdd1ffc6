"""Change: one way to let a pod run, as people and programs read it.

The JSON form is described in docs/explain-schema.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

Operation = dict[str, Any]
"""An RFC 6902 operation: `op` (add, replace, remove or test), `path` and `value`, if any."""


class ChangedObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is to be done to one object, named as in the input.

    namespace: "" for kinds without one. Exactly one of these is set. patch: operations on the
    object. manifest: the whole object, to create. delete: delete the object.
    """

    api_version: str
    kind: str
    namespace: str = ""
    name: str = ""
    patch: tuple[Operation, ...] = ()
    manifest: dict[str, Any] | None = None
    delete: bool = False


class Change(msgspec.Struct, frozen=True, rename="camel"):
    """A change after which the pod can be scheduled.

    kind: request, toleration, affinity, spread, free, add-node, taint, label, uncordon, queue, gang
    or combined. cost: points, see docs/changes.md; smaller is better.
    """

    kind: str
    cost: int
    text: str
    objects: tuple[ChangedObject, ...] = ()


class PodChanges(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The changes that would let one pod run, cheapest first.

    not_searched: what the search left out, in words; empty when it was complete.
    """

    pod: str
    changes: tuple[Change, ...]
    not_searched: tuple[str, ...] = ()
