"""Notebooks of Kubeflow: the StatefulSet of one pod that runs each.

Source: kubeflow v1.10, components/notebook-controller/controllers/notebook_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.inputs.importers.imported_objects import (
    ImportLookup,
    Tree,
    mapping,
    namespace_of,
    owner_of,
)
from stowplan.objects.workload import StatefulSet

UNMODELLED: tuple[str, ...] = ()
_STOPPED = "kubeflow-resource-stopped"
_NAME = "notebook-name"


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A Notebook, and its StatefulSet unless that is in the input."""
    meta = tree["metadata"]
    if _STOPPED in mapping(meta, "annotations"):
        return
    yield tree
    name, namespace = meta["name"], namespace_of(tree)
    if known.has(StatefulSet, f"{namespace}/{name}"):
        return
    labels = {**mapping(meta, "labels"), _NAME: name}
    pod = mapping(mapping(mapping(tree, "spec"), "template"), "spec")
    yield {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owner_of(tree)},
        "spec": {
            "replicas": 1,
            "serviceName": "",
            "selector": {"matchLabels": {_NAME: name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
