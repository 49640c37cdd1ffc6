"""Server-side apply: a PATCH with `application/apply-patch+yaml`.

Source: apiserver v0.36, endpoints/handlers/patch.go; apimachinery v0.36,
util/managedfields/internal: structuredmerge.go, versioncheck.go, conflict.go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.errors import ApiError, BodyDecodeError, bad_request, conflict
from stowplan.apis.machinery.resource import ApiCall, Resource, ResourceSchema
from stowplan.apis.schema.json_parser import InvalidJson, parse_json
from stowplan.apiserver.apply.field_manager import ApplyConflict, FieldManager
from stowplan.apiserver.apply.field_set import path_text
from stowplan.apiserver.apply.field_types import FieldType
from stowplan.apiserver.apply.last_applied import allowed_conflicts, keep_last_applied
from stowplan.apiserver.apply.manager_entries import (
    InvalidEntries,
    Managers,
    read_entries,
    write_entries,
)
from stowplan.apiserver.apply.typed_value import ItemError, TypeErrors, check_type
from stowplan.apiserver.apply.versioned_forms import (
    empty_object,
    field_type,
    served_form,
    stored_form,
)
from stowplan.apiserver.crd.custom_resources import CustomSchema
from stowplan.apiserver.http.yaml_body import YamlBodyError, read_yaml, warning_lines
from stowplan.apiserver.patch.patch_request import converter_error_text
from stowplan.objects.encoding.tree import Tree

CONFLICT_CAUSE = "FieldManagerConflict"
KUBECTL = "kubectl"
CONVERSION_PREFIX = "error converting YAML to JSON: "
_INT64_MAX, _UINT64 = 2**63 - 1, 2**64


@dataclass(frozen=True, slots=True)
class ApplyBody:
    """An applied configuration as it was sent. repeated: text about keys given twice."""

    tree: Tree
    repeated: str = ""


def read_apply_body(raw: bytes) -> ApplyBody | ApiError:
    """The configuration of a body, or the error of one that cannot be read."""
    try:
        tree, repeated = _read(raw)
    except YamlBodyError as error:
        prefix = f"error decoding YAML: {CONVERSION_PREFIX}"
        return bad_request(f"{prefix}{error}")
    except ApiError as error:
        return error
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        return bad_request(f"error decoding YAML: {_not_a_map(tree)}")
    return ApplyBody(_whole_numbers(tree), "\n".join(repeated))


def _read(raw: bytes) -> tuple[Any, list[str]]:
    """The tree of a body. JSON without repeated keys is read as such, which is much faster."""
    if raw[:1] == b"{":
        try:
            tree, repeated = parse_json(raw)
        except InvalidJson:
            repeated = [""]
        if not repeated:
            return tree, []
    return read_yaml(raw, first=True)


def _whole_numbers(value: Any) -> Any:
    """The value with whole numbers as integers, and those beyond int64 at its end."""
    if isinstance(value, dict):
        return {key: _whole_numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(one) for one in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _UINT64:
        value = math.trunc(value)
    if isinstance(value, int) and _INT64_MAX < value < _UINT64:
        return _INT64_MAX
    return value


def _not_a_map(tree: Any) -> str:
    names = {str: "string", bool: "bool", list: "array"}
    name = names.get(type(tree), "number")
    go = "Go value of type map[string]interface {}"
    return f"error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {name} into {go}"


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """One apply. call: of the request. rules: of its endpoint. body: see `read_apply_body`.

    resource: of the objects that are applied. refusal: why the result cannot be converted.
    """

    call: ApiCall
    rules: FieldManager
    body: ApplyBody | ApiError
    force: bool
    resource: Resource
    refusal: str = ""

    def make(self, old: Tree) -> Tree:
        """The object to store, with its managedFields. old: stored, {} if there is none.

        Raises ApiError.
        """
        resource = self.resource
        body = self._checked_body(resource.kind, resource.group, resource.version)
        managers = _stored_managers(old) if old else {}
        bare = _without_entries(old) if old else None
        self._check_config(body.tree, field_type(resource), resource)
        new, managers = self._applied(bare, body.tree, managers)
        if new is None and bare is not None:
            made = bare
        elif self.refusal:
            raise self._conversion_error(self.refusal)
        else:
            given = new if new is not None else empty_object(resource)
            made = stored_form(resource, self._decoded(given, resource.schema))
        made = {**made, "metadata": dict(made.get("metadata") or {})}
        if self.call.manager == KUBECTL:
            keep_last_applied(made["metadata"], body.tree)
        if managers:
            made["metadata"]["managedFields"] = write_entries(managers)
        self._warn(body)
        self._check_uid(old, made["metadata"])
        return made

    def _checked_body(self, kind: str, group: str, version: str) -> ApplyBody:
        if isinstance(self.body, ApiError):
            raise self.body
        tree = self.body.tree
        api_version, given = tree.get("apiVersion") or "", tree.get("kind") or ""
        api_version = api_version if isinstance(api_version, str) else ""
        of_group, _, of_version = api_version.rpartition("/")
        if (of_group, of_version, given) != (group, version, kind):
            raise bad_request(f"invalid object type: {_gvk(of_group, of_version, given)}")
        meta = tree.get("metadata")
        if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
            raise bad_request("metadata.managedFields must be nil")
        return self.body

    def _named(self, tree: Tree) -> str:
        """The object as errors name it."""
        meta = tree.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
        place = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
        return f"{place}; {_gvk(group, version, tree.get('kind', ''))}"

    def _check_config(self, tree: Tree, kind: FieldType, resource: Resource) -> None:
        try:
            check_type(tree, kind)
        except TypeErrors as error:
            text = f"failed to create typed patch object ({self._named(tree)}): {error}"
            raise ApiError(500, "", text) from None

    def _applied(
        self, bare: Tree | None, config: Tree, managers: Managers
    ) -> tuple[Tree | None, Managers]:
        rules, manager = self.rules, self.call.manager
        if bare is not None:
            managers = rules.begin_apply(bare, managers)
        try:
            try:
                return rules.apply(bare, config, managers, manager, self.force)
            except ApplyConflict as error:
                left = error
                if manager == KUBECTL and bare is not None:
                    served = served_form(self.resource, bare)
                    left = allowed_conflicts(error, served, self.resource)
                if left.conflicts:
                    raise conflict_error(left) from None
                return rules.apply(bare, config, managers, manager, True)
        except ItemError as error:
            raise ApiError(500, "", f"failed to merge config: {error}") from None

    def _decoded(self, new: Tree, schema: ResourceSchema) -> Tree:
        try:
            if isinstance(schema, CustomSchema):
                made = schema.decode_merged(new)
            else:
                made, _ = schema.decode(new, (), "Ignore")
        except BodyDecodeError as error:
            resource = self.resource
            gvk = _gvk(resource.group, resource.version, resource.kind)
            why = converter_error_text(str(error))
            if why.startswith("illegal base64"):
                why = f"error decoding from json: {why}"
            text = f"unable to convert unstructured object to {gvk}: {why}"
            raise self._conversion_error(text) from None
        made.setdefault("metadata", {})
        schema.default(made)
        return made

    def _conversion_error(self, why: str) -> ApiError:
        named = self._named(self.body.tree) if isinstance(self.body, ApplyBody) else ""
        text = f"failed to convert new object ({named}) to proper version: {why}"
        return ApiError(500, "", text)

    def _warn(self, body: ApplyBody) -> None:
        """Keys given twice: an error with Strict, a warning with Warn."""
        mode = self.call.field_validation
        if not body.repeated or mode == "Ignore":
            return
        if mode == "Strict":
            text = f"error strict decoding YAML: {CONVERSION_PREFIX}{body.repeated}"
            raise bad_request(text)
        self.call.warnings.extend(warning_lines(body.repeated))

    def _check_uid(self, old: Tree, meta: Tree) -> None:
        uid = meta.get("uid")
        if uid and not old:
            text = (
                f"uid mismatch: the provided object specified uid {uid}, and no existing object"
                " was found"
            )
            resource = self.call.resource
            raise conflict(resource.group, resource.plural, self.call.name, text)


def _gvk(group: str, version: str, kind: str) -> str:
    return f"{group}/{version}, Kind={kind}"


def _without_entries(obj: Tree) -> Tree:
    meta = {key: one for key, one in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": meta}


def _stored_managers(obj: Tree) -> Managers:
    try:
        return read_entries(obj["metadata"].get("managedFields"))
    except InvalidEntries as error:
        raise ApiError(500, "", f"failed to decode managed fields: {error}") from None


def conflict_error(error: ApplyConflict) -> ApiError:
    """409 with a cause for each field."""
    listed = error.listed()
    causes = [
        {
            "reason": CONFLICT_CAUSE,
            "message": f"conflict with {key.text()}",
            "field": path_text(path),
        }
        for key, path in listed
    ]
    return ApiError(409, "Conflict", _conflict_text(listed), {"causes": causes})


def _conflict_text(listed: Sequence[tuple[Any, tuple[str, ...]]]) -> str:
    if len(listed) == 1:
        key, path = listed[0]
        return f"Apply failed with 1 conflict: conflict with {key.text()}: {path_text(path)}"
    lines: list[str] = []
    last = None
    for key, path in listed:
        if key != last:
            lines.append(f"conflicts with {key.text()}:")
            last = key
        lines.append(f"- {path_text(path)}")
    return f"Apply failed with {len(listed)} conflicts: " + "\n".join(lines)
