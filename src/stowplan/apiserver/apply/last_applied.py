"""The annotation of client-side apply, which `kubectl` keeps up to date by server-side apply.

Source: apimachinery v0.36, util/managedfields/internal: lastappliedmanager.go,
lastappliedupdater.go, lastapplied.go.
"""

from __future__ import annotations

import msgspec

from stowplan.apis.machinery.object_meta import ANNOTATIONS_BYTES_MAX
from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.apply.field_manager import ApplyConflict, unchanged_fields
from stowplan.apiserver.apply.field_set import difference
from stowplan.apiserver.apply.typed_value import TypeErrors, check_type
from stowplan.apiserver.apply.versioned_forms import field_type
from stowplan.objects.encoding.tree import Tree

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def allowed_conflicts(error: ApplyConflict, live: Tree, resource: Resource) -> ApplyConflict:
    """The conflicts that are left without those in fields that client-side apply has set.

    live: in the version of the request.
    """
    before = _last_applied(live, resource)
    if before is None:
        return error
    kind = field_type(resource)
    try:
        check_type(before, kind)
        check_type(live, kind)
    except TypeErrors:
        return error
    allowed = unchanged_fields(before, live, kind)
    left = {key: difference(fields, allowed) for key, fields in error.conflicts.items()}
    return ApplyConflict({key: fields for key, fields in left.items() if fields})


def _last_applied(live: Tree, resource: Resource) -> Tree | None:
    text = (live["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    if not text:
        return None
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not isinstance(tree, dict) or tree.get("apiVersion") != resource.api_version:
        return None
    return tree if tree.get("kind") else None


def keep_last_applied(meta: Tree, config: Tree) -> None:
    """Rewrite the annotation of an object that has it to the configuration; drop a long one."""
    annotations = meta.get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return
    text = _config_text(config)
    changed = {**annotations, ANNOTATION: text}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in changed.items())
    if size > ANNOTATIONS_BYTES_MAX:
        del changed[ANNOTATION]
    meta["annotations"] = changed


def _config_text(config: Tree) -> str:
    """A configuration as the annotation holds it: keys sorted, without the annotation itself."""
    tree = dict(config)
    given = tree.get("metadata")
    if isinstance(given, dict) and isinstance(given.get("annotations"), dict):
        left = {key: one for key, one in given["annotations"].items() if key != ANNOTATION}
        meta = {key: one for key, one in given.items() if key != "annotations"}
        tree["metadata"] = {**meta, "annotations": left}
    encoded = msgspec.json.encode(tree, order="sorted").decode()
    for mark, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        encoded = encoded.replace(mark, escape)
    return f"{encoded}\n"
