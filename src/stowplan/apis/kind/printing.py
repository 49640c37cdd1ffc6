"""Tables of kinds (`kubectl get`): columns in one line of text, cells by a function.

A column is written `Node`, `Count:integer`, `Node+` (wide form only), `Driver::name` (format).
Behind `=` stands the field that it prints, `Node=spec.nodeName`, and behind `|` what it prints if
the field is missing; without that, the empty value of the column's type. `Name` and `Age` are those
of the metadata, and `Name=` is not. The other cells are the result of a function.

Source: kubernetes v1.36, pkg/printers/internalversion/printers.go, for the tables of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.resource import TableColumn
from stowplan.apis.validation.field_checks import formatted_selector
from stowplan.objects.encoding.tree import Tree

Cells = Callable[[Tree, float], Iterable[Any]]
Cell = Callable[[Tree, float], Any]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
REPLICA_COLUMNS = (
    "Name, Desired:integer=spec.replicas, Current:integer=status.replicas, "
    "Ready:integer=status.readyReplicas, Age"
)
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
    """A table of fields and of the cells that a function computes (`resource.Table`)."""

    def __init__(self, columns: str, computed: Cells | None = None) -> None:
        """columns: separated by commas. computed: the cells of columns without a field."""
        made = [_column(text.strip()) for text in columns.split(",")]
        self.columns = tuple(column for column, _ in made)
        self._cells = [cell for _, cell in made]
        self._computed = computed

    def cells(self, obj: Tree, now: float) -> list[Any]:
        computed = iter(self._computed(obj, now) if self._computed is not None else ())
        return [next(computed) if cell is None else cell(obj, now) for cell in self._cells]

    def conditions(self, obj: Tree) -> list[Tree]:
        return []


def _column(text: str) -> tuple[TableColumn, Cell | None]:
    """A column and what prints it; None for a computed one."""
    head, given, source = text.partition("=")
    name, kind, form = (*head.rstrip("+").split(":"), "", "")[:3]
    about = _ABOUT.get(name, f"{name} of the object.")
    form = "name" if name == "Name" else form
    column = TableColumn(name, kind or "string", about, form, 1 if head.endswith("+") else 0)
    if given:
        return column, _field(source, _EMPTY.get(kind, "")) if source else None
    return column, _METADATA.get(name)


def _field(source: str, empty: Any) -> Cell:
    """Reader of a field, such as `spec.volumeMode|<unset>`."""
    path, has_default, default = source.partition("|")
    *parents, last = path.split(".")

    def read(obj: Tree, now: float) -> Any:
        for name in parents:
            obj = obj.get(name) or {}
        return obj.get(last, default if has_default else empty)

    return read


def _age(obj: Tree, now: float) -> str:
    return timestamps.human_age(obj["metadata"].get("creationTimestamp"), now)


_EMPTY = {"integer": 0, "boolean": False}
_METADATA: dict[str, Cell] = {"Name": _field("metadata.name", ""), "Age": _age}


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


CREATED_AT = PrintedTable("Name, Created At:date=metadata.creationTimestamp")
NAME_AND_AGE = PrintedTable("Name, Age")
