"""Kinds that the embedded cluster serves by a CustomResourceDefinition of ours."""

from __future__ import annotations

import dataclasses

from stowplan.apis.custom.custom_kinds import custom_struct
from stowplan.apis.custom.open_schema import PRESERVE, object_schema
from stowplan.objects.encoding.tree import Tree


@dataclasses.dataclass(frozen=True, slots=True)
class CustomKind:
    """A kind of another project: with the fields of its type table, or with every field if it has
    none.

    columns: name, type and JSON path of what `kubectl get` prints; wide_columns: of what it adds
    with `-o wide`. versions: the first is stored. approval: what the annotation says that groups
    under k8s.io need.
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    columns: tuple[tuple[str, str, str], ...] = ()
    namespaced: bool = True
    wide_columns: tuple[tuple[str, str, str], ...] = ()
    approval: str = ""

    def definition(self) -> Tree:
        """Its CustomResourceDefinition."""
        meta: Tree = {"name": f"{self.plural}.{self.group}"}
        if self.approval:
            meta["annotations"] = {"api-approved.kubernetes.io": self.approval}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": meta,
            "spec": {
                "group": self.group,
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": list(self.short_names),
                },
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [self._version(name) for name in self.versions],
            },
        }

    def _version(self, name: str) -> Tree:
        struct = custom_struct(f"{self.group}/{name}", self.kind)
        schema = {"type": "object", PRESERVE: True} if struct is None else object_schema(struct)
        return {
            "name": name,
            "served": True,
            "storage": name == self.versions[0],
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                *(_column(*one) for one in self.columns),
                *(_column(*one) | {"priority": 1} for one in self.wide_columns),
            ],
            "schema": {"openAPIV3Schema": schema},
        }


def _column(title: str, type_: str, path: str) -> Tree:
    return {"name": title, "type": type_, "jsonPath": path}
