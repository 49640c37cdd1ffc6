"""Kinds of other projects that Stowplan reads: their types, and what is invalid in an object.

Manifests in files and requests to the embedded server are judged by the same tables and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apis.custom import kai_checks, kueue_checks, volcano_checks
from stowplan.apis.custom.job_types import JOBSET, KUBEFLOW, TRAINER
from stowplan.apis.custom.kai_types import KAI
from stowplan.apis.custom.kueue_types import KUEUE
from stowplan.apis.custom.null_items import null_items
from stowplan.apis.custom.status_types import STATUS_TYPES, STATUSES
from stowplan.apis.custom.volcano_job_checks import job_causes
from stowplan.apis.custom.volcano_types import SCHEDULING, TOPOLOGY, VOLCANO
from stowplan.apis.machinery.errors import TYPE_INVALID, Cause
from stowplan.apis.schema.scalar_decoders import TypeMismatch, format_path
from stowplan.apis.schema.struct_types import StructType, UnknownFields, open_type
from stowplan.apis.schema.type_notation import TypeTables
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.bind_request import KAI_BIND_API_VERSION
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_API_VERSION,
    KAI_QUEUE_API_VERSION,
    KAI_TOPOLOGY_API_VERSION,
)
from stowplan.objects.podgroup import GROUP_API_VERSIONS
from stowplan.objects.volcano.hyper_node import HYPER_NODE_API_VERSION

Check = Callable[[Tree], Iterable[Cause]]
Warn = Callable[[Tree], Iterable[str]]
CheckUpdate = Callable[[Tree, Tree], Iterable[Cause]]


def _nothing(_: Tree) -> Iterator[Cause]:
    """For kinds whose types say all."""
    return iter(())


def _no_fixed_fields(_: Tree, __: Tree) -> Iterator[Cause]:
    return iter(())


def _no_warnings(_: Tree) -> Iterator[str]:
    return iter(())


class CustomType(NamedTuple):
    """A kind. name: of its type in the tables. check: causes of an object whose types are right.
    warn: what is accepted, but has another effect than it seems to. check_update: causes of a new
    object in place of an old one."""

    name: str
    check: Check = _nothing
    warn: Warn = _no_warnings
    check_update: CheckUpdate = _no_fixed_fields


_PACKAGES = {
    "kai/v2": KAI,
    "kueue/v1": KUEUE,
    "volcano/v1": VOLCANO,
    "scheduling/v1beta1": SCHEDULING,
    "hypernode/v1": TOPOLOGY,
    "jobset/v1": JOBSET,
    "trainer/v1": TRAINER,
    "kubeflow/v1": KUBEFLOW,
}
_TRAINER = "trainer.kubeflow.org/v1alpha1"
_KINDS: Mapping[tuple[str, str], CustomType] = {
    ("batch.volcano.sh/v1alpha1", "Job"): CustomType("volcano/v1.Job", job_causes),
    (HYPER_NODE_API_VERSION, "HyperNode"): CustomType(
        "hypernode/v1.HyperNode", volcano_checks.hyper_node_causes
    ),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): CustomType("jobset/v1.JobSet"),
    **{
        (_TRAINER, kind): CustomType(f"trainer/v1.{kind}")
        for kind in ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
    },
    ("kubeflow.org/v1", "PyTorchJob"): CustomType("kubeflow/v1.PyTorchJob"),
    (KAI_QUEUE_API_VERSION, "Queue"): CustomType("kai/v2.Queue", kai_checks.queue_causes),
    (KAI_GROUP_API_VERSION, "PodGroup"): CustomType(
        "kai/v2.PodGroup", kai_checks.group_causes, kai_checks.group_warnings
    ),
    (KAI_TOPOLOGY_API_VERSION, "Topology"): CustomType(
        "kai/v2.Topology",
        kai_checks.topology_causes,
        check_update=kai_checks.topology_changes,
    ),
    (KAI_BIND_API_VERSION, "BindRequest"): CustomType("kai/v2.BindRequest"),
    **{
        (version, kind): CustomType(f"scheduling/v1beta1.{kind}", check)
        for version in GROUP_API_VERSIONS
        for kind, check in (
            ("PodGroup", volcano_checks.group_causes),
            ("Queue", volcano_checks.queue_causes),
        )
    },
    **{
        (f"kueue.x-k8s.io/{version}", kind): CustomType(
            f"kueue/v1.{kind}",
            check,
            check_update=kueue_checks.CHANGES.get(kind, _no_fixed_fields),
        )
        for version in ("v1beta1", "v1beta2")
        for kind, check in kueue_checks.CHECKS.items()
    },
}
"""(apiVersion, kind) -> the kind."""


def custom_type(api_version: str, kind: str) -> CustomType | None:
    """A kind by its name; None for one that is not known."""
    return _KINDS.get((api_version, kind))


def has_right_types(tree: Tree) -> bool:
    """True for an object whose values have the types of its kind, and for kinds that are not known.

    Defaults and checks of an object are for those only.
    """
    return not isinstance(_decoded(tree)[1], Cause)


def custom_causes(tree: Tree) -> Iterator[Cause]:
    """Causes of an object; none for kinds that are not known."""
    found, made = _decoded(tree)
    if isinstance(made, Cause):
        yield made
    elif found is not None:
        yield from found.check(made)


def custom_update_causes(tree: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update: fields that do not change. Both objects are of one version; the types
    of both are right."""
    found = custom_type(str(tree.get("apiVersion")), str(tree.get("kind")))
    if found is not None:
        yield from found.check_update(tree, old)


def custom_warnings(tree: Tree) -> Iterator[str]:
    """What of an object has another effect than it seems to, and unknown fields."""
    sink = UnknownFields()
    found, made = _decoded(tree, sink)
    yield from sink.texts
    if found is not None and not isinstance(made, Cause):
        yield from found.warn(made)


def _decoded(
    tree: Tree, sink: UnknownFields | None = None
) -> tuple[CustomType | None, Tree | Cause]:
    """The kind of an object, and the object with what its type adds. sink: takes unknown fields."""
    key = str(tree.get("apiVersion")), str(tree.get("kind"))
    struct = custom_struct(*key)
    if struct is None:
        return None, tree
    try:
        made = struct.decode(tree, None, sink or UnknownFields())
        for wrong in null_items(struct, tree):
            raise wrong
        return _KINDS[key], made
    except TypeMismatch as wrong:
        return _KINDS[key], Cause(format_path(wrong.at), TYPE_INVALID, str(wrong))


def custom_struct(api_version: str, kind: str) -> StructType | None:
    """The fields of a kind; None for one that is not known."""
    found = _KINDS.get((api_version, kind))
    return None if found is None else _tables().struct(found.name)


@cache
def _tables() -> TypeTables:
    made = type_tables.extended()
    for package, text in _PACKAGES.items():
        made.read(package, text)
    made.read("status/v1", STATUSES)
    for kind, status in STATUS_TYPES.items():
        struct = made.struct(kind)
        struct.fields["status"].value = open_type(made.struct(f"status/v1.{status}"))
        struct.compile()
    return made
