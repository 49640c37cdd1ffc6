"""Namespace, with its finalize subresource.

Source: kubernetes v1.36, pkg/registry/core/namespace, pkg/apis/core/validation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import NO_COLLECTION, KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, restore_field, selectable_fields
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy, Subresource
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import label_key_errors

TYPES = """
FinalizerName NamespacePhase NamespaceConditionType = string

Namespace -- a scope for names.
  +PartialObjectMetadata
  spec NamespaceSpec -- desired state.
  status NamespaceStatus -- last observed state.

NamespaceSpec
  finalizers [FinalizerName] -- must be empty before it is removed.

NamespaceStatus
  phase NamespacePhase =Active -- Active or Terminating.
  conditions [NamespaceCondition] ~merge:type

NamespaceCondition
  type NamespaceConditionType!
  status ConditionStatus!
  +ConditionChange
"""
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def _set_defaults(one: Tree) -> None:
    name = one["metadata"].get("name")
    if name:
        one["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


class NamespaceStrategy(ResourceStrategy):
    """Namespace: `spec.finalizers` holds it until it is empty."""

    returns_deleted = True
    lingers = True

    def name_problems(self, name: str, prefix: bool) -> list[str]:
        return label_problems(name, prefix)

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        new["spec"] = dict(old["spec"])
        restore_field(new, old, "status")

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        for name in obj["spec"].get("finalizers", ()):
            yield from _validate_finalizer(name)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return ()

    def canonicalize(self, obj: Tree) -> None:
        labels = obj["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")

    def begin_delete(self, obj: Tree, call: ApiCall) -> None:
        obj["status"]["phase"] = "Terminating"

    def held(self, obj: Tree) -> bool:
        return bool(obj["spec"].get("finalizers"))


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The phase is Terminating if and only if deletionTimestamp is set."""
    phase = new["status"].get("phase", "")
    if old["metadata"].get("deletionTimestamp"):
        if phase != "Terminating":
            text = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            yield invalid("status.Phase", phase, text)
    elif phase != "Active":
        yield invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")


def _validate_finalizer(name: str, path: str = "spec.finalizers") -> Iterator[Cause]:
    wrong = list(field_checks.qualified_name(name, path))
    yield from wrong
    if not wrong and "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
        yield invalid(
            path, name, "name is neither a standard finalizer name nor is it fully qualified"
        )


class NamespaceFinalizeStrategy(ResourceStrategy):
    """`namespaces/finalize`: sets `spec.finalizers`, keeps the stored status."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        """Keep the status; drop an empty list of finalizers."""
        new["status"] = copy.deepcopy(old.get("status") or {})
        spec = new.setdefault("spec", {})
        if not spec.get("finalizers"):
            spec.pop("finalizers", None)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        """Finalizers are qualified names, or standard ones without a domain."""
        for at, name in enumerate(new["spec"].get("finalizers") or ()):
            path = f"spec.finalizers[{at}]"
            for problem in label_key_errors(name):
                yield invalid(path, name, problem)
            if "/" not in name and name not in STANDARD_FINALIZERS:
                text = "name is neither a standard finalizer name nor is it fully qualified"
                yield invalid(path, name, text)


KIND = KindRegistration(
    kind="Namespace",
    types=TYPES,
    defaults={"core/v1.Namespace": _set_defaults},
    namespaced=False,
    strategy=NamespaceStrategy(),
    status=StatusStrategy(_validate_status_update),
    short_names=("ns",),
    verbs=NO_COLLECTION,
    table=PrintedTable("Name, Status=status.phase, Age"),
    fields=selectable_fields("status.phase"),
    subresources=(Subresource("finalize", ("update",), NamespaceFinalizeStrategy()),),
)
