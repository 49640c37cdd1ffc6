"""Finalize: a namespace's `spec.finalizers`, which nothing else may change.

Source: kube-apiserver v1.36, pkg/registry/core/namespace (namespaceFinalizeStrategy).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.objects.selectors import label_key_errors

Tree = dict[str, Any]

STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


class NamespaceFinalizeStrategy(ResourceStrategy):
    """Takes `spec.finalizers` from the request and everything of the status from what is stored."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        """Keep the status; an empty list of finalizers is none."""
        new["status"] = copy.deepcopy(old.get("status") or {})
        spec = new.setdefault("spec", {})
        if not spec.get("finalizers"):
            spec.pop("finalizers", None)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        """Finalizers are qualified names; those without a domain are the few standard ones."""
        for at, name in enumerate(new["spec"].get("finalizers") or ()):
            path = f"spec.finalizers[{at}]"
            for problem in label_key_errors(name):
                yield invalid(path, name, problem)
            if "/" not in name and name not in STANDARD_FINALIZERS:
                text = "name is neither a standard finalizer name nor is it fully qualified"
                yield invalid(path, name, text)
