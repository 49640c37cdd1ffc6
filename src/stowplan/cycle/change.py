"""Change: one way to let a pod run, as people and programs read it.

The JSON form is described in docs/explain-schema.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text

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

    kind: request, toleration, affinity, spread, free, add-node, taint, label, uncordon, queue,
    gang, combined, or one of claims and devices. cost: points, see docs/changes.md, which has all
    kinds; smaller is better.
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

    def __repr__(self) -> str:
        found = ", ".join(f"{one.kind} {one.cost}" for one in self.changes)
        return f"PodChanges({self.pod!r}, {found or 'no change helps'})"

    def _repr_html_(self) -> str:
        """For notebooks: the changes, cheapest first, and what was not searched."""
        rows = ((one.cost, one.kind, one.text) for one in self.changes)
        return html_summary(
            f"{self.pod}: smallest changes that let it run",
            html_table(("Cost", "Kind", "Change"), rows) or html_text("No change helps."),
            *(html_text(f"Not searched: {one}") for one in self.not_searched),
        )

    def to_frame(self, library: str = "") -> Any:
        """The changes as a DataFrame, one row each; see `Explanation.to_frame`."""
        names = ("kind", "cost", "text")
        return to_dataframe({n: [getattr(c, n) for c in self.changes] for n in names}, library)
