"""Tables of kinds (`kubectl get`): columns in one line of text, cells by a function.

A column is written `Name`, `Count:integer`, `Node+` (wide form only), `Driver::name` (format).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.resource import TableColumn
from stowplan.apis.validation.field_checks import formatted_selector
from stowplan.objects.encoding.tree import Tree

Cells = Callable[[Tree, float], list[Any]]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
TEMPLATE_COLUMNS = "Containers+, Images+"
"""The columns of `containers_of`."""

_ABOUT = {
    "Name": "The object's name.",
    "Age": "How long ago the object was created.",
    "Containers": "Names of the template's containers.",
    "Images": "Images of the template's containers.",
    "Selector": "Labels of the pods that belong to it.",
}


class PrintedTable:
    """A table whose cells are the result of a function (`resource.Table`)."""

    def __init__(self, columns: str, cells: Cells) -> None:
        """columns: separated by commas, in the order of the cells."""
        self.columns = tuple(_column(text.strip()) for text in columns.split(","))
        self._cells = cells

    def cells(self, obj: Tree, now: float) -> list[Any]:
        """The cells of an object, those of wide output included."""
        return self._cells(obj, now)

    def conditions(self, obj: Tree) -> list[Tree]:
        """None."""
        return []


def _column(text: str) -> TableColumn:
    wide = text.endswith("+")
    name, kind, form = (*text.rstrip("+").split(":"), "", "")[:3]
    about = _ABOUT.get(name, f"{name} of the object.")
    return TableColumn(
        name, kind or "string", about, "name" if name == "Name" else form, 1 if wide else 0
    )


def name_of(obj: Tree) -> str:
    """metadata.name."""
    name: str = obj["metadata"].get("name", "")
    return name


def age_of(obj: Tree, now: float) -> str:
    """The age of an object."""
    return timestamps.human_age(obj["metadata"].get("creationTimestamp"), now)


def containers_of(template: Tree | None) -> list[Any]:
    """Names and images of a template's containers, joined by commas."""
    containers = ((template or {}).get("spec") or {}).get("containers") or []
    return [
        ",".join(one["name"] for one in containers),
        ",".join(one.get("image", "") for one in containers),
    ]


def selector_text(selector: Tree | None) -> str:
    """A label selector in one line; `<none>` for one that selects everything."""
    if selector is None:
        return NONE
    return formatted_selector(selector) or NONE


def joined_labels(labels: Tree | None) -> str:
    """`a=b,c=d`, sorted; `<none>` for no labels."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


CREATED_AT = PrintedTable(
    "Name, Created At:date",
    lambda obj, now: [name_of(obj), obj["metadata"].get("creationTimestamp")],
)
NAME_AND_AGE = PrintedTable("Name, Age", lambda obj, now: [name_of(obj), age_of(obj, now)])
