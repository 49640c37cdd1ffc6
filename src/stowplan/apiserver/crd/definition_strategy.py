"""CustomResourceDefinition. Its types are in `definition_types`.

Source: apiextensions-apiserver v0.36, pkg/registry/customresourcedefinition,
pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, restore_field, update_generation
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    required,
    too_many,
)
from stowplan.apis.machinery.names import label_1035_problems, subdomain_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.validation import field_checks
from stowplan.apiserver.crd.approval import approval_causes
from stowplan.apiserver.crd.definition_controller import (
    CLEANUP_FINALIZER,
    condition_status,
    set_condition,
)
from stowplan.apiserver.crd.definition_types import TYPES, set_definition_defaults
from stowplan.apiserver.crd.schema_validation import schema_causes, unknown_formats
from stowplan.objects.encoding.tree import Tree

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_FIELDS_MAX = 8
_WARNING_MAX = 256


class DefinitionStrategy(ResourceStrategy):
    """CustomResourceDefinition: a deleted one stays until its objects are deleted."""

    unconditional_update = False
    returns_deleted = True
    lingers = True

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        stored = [one["name"] for one in obj["spec"]["versions"] or () if one["storage"]][:1]
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        new["status"] = dict(new["status"])
        update_generation(new, old, ("spec",))
        versions = list(new["status"]["storedVersions"] or ())
        for one in new["spec"]["versions"] or ():
            if one["storage"]:
                if one["name"] not in versions:
                    new["status"]["storedVersions"] = [*versions, one["name"]]
                break

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        names, name = obj["spec"]["names"], obj["metadata"].get("name", "")
        if name and name != f"{names['plural']}.{obj['spec']['group']}":
            yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
        yield from _spec_causes(obj["spec"])
        yield from _stored_versions_causes(obj)
        yield from approval_causes(obj, None)
        yield from _preserve_unknown_fields_causes(obj, None)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        spec, before = new["spec"], old["spec"]
        yield from _spec_causes(spec)
        names, had = spec["names"], before["names"]
        if condition_status(old, "Established") == "True":
            yield from field_checks.immutable(spec["scope"], before["scope"], "spec.scope")
            yield from field_checks.immutable(names["kind"], had["kind"], "spec.names.kind")
        yield from field_checks.immutable(spec["group"], before["group"], "spec.group")
        yield from field_checks.immutable(names["plural"], had["plural"], "spec.names.plural")
        yield from _stored_versions_causes(new)
        yield from approval_causes(new, old)
        yield from _preserve_unknown_fields_causes(new, old)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        had = set(unknown_formats(old["spec"])) if old is not None else set()
        for name in unknown_formats(obj["spec"]):
            if name not in had:
                yield f'unrecognized format "{name}"'

    def begin_delete(self, obj: Tree, call: ApiCall) -> None:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
        text = (
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        )
        set_condition(obj, ("Terminating", "True", "InstanceDeletionPending", text), call.now)


class DefinitionStatusStrategy(StatusStrategy):
    """`customresourcedefinitions/status`."""

    unconditional_update = False


def _spec_causes(spec: Tree) -> Iterator[Cause]:
    group = spec["group"]
    if not group:
        yield required("spec.group")
    elif problems := subdomain_problems(group):
        yield invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    scopes = ("Cluster", "Namespaced")
    yield from field_checks.supported_value(spec["scope"], scopes, "spec.scope")
    versions: list[Tree] = spec["versions"] or []
    for at, one in enumerate(versions):
        if not (one.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{at}].schema.openAPIV3Schema")
    shared = {key: _is_shared(versions, key) for key in _SHARED_FIELDS}
    for at, one in enumerate(versions):
        yield from _version_causes(one, f"spec.versions[{at}]", shared)
    yield from _version_list_causes(versions, shared)
    for name in ("plural", "singular", "kind", "listKind"):
        if not spec["names"].get(name):
            yield required(f"spec.names.{name}")
    yield from _names_causes(spec["names"], "spec.names")
    if versions:
        one = {key: value for key, value in versions[0].items() if shared.get(key)}
        statuses = any("status" in (each.get("subresources") or {}) for each in versions)
        yield from _version_part_causes(one, "spec", "spec.validation", statuses)
    yield from _conversion_causes(spec["conversion"], "spec.conversion")


_SHARED_FIELDS = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def _is_shared(versions: list[Tree], key: str) -> bool:
    """True if all versions are equal in this: the original then stores it once."""
    return bool(versions) and all(
        one.get(key) and one[key] == versions[0].get(key) for one in versions
    )


def _version_causes(one: Tree, path: str, shared: dict[str, bool]) -> Iterator[Cause]:
    yield from _label_causes(one["name"], f"{path}.name")
    warning = one.get("deprecationWarning")
    if warning is not None:
        here = f"{path}.deprecationWarning"
        if not one.get("deprecated"):
            yield invalid(here, warning, "can only be set for deprecated versions")
        elif len(warning) > _WARNING_MAX:
            yield invalid(here, warning, "must be <= 256 characters long")
        elif not warning:
            yield invalid(here, warning, "must not be an empty string")
    own = {key: value for key, value in one.items() if key in _SHARED_FIELDS and not shared[key]}
    statuses = "status" in (one.get("subresources") or {})
    yield from _version_part_causes(own, path, f"{path}.schema", statuses)


def _version_part_causes(one: Tree, path: str, schema_path: str, statuses: bool) -> Iterator[Cause]:
    """Schema, subresources, columns and selectable fields of a version, or of all."""
    schema = (one.get("schema") or {}).get("openAPIV3Schema")
    if schema:
        yield from schema_causes(schema, schema_path, statuses)
    yield from _scale_causes(
        (one.get("subresources") or {}).get("scale"), f"{path}.subresources.scale"
    )
    for at, column in enumerate(one.get("additionalPrinterColumns") or ()):
        yield from _column_causes(column, f"{path}.additionalPrinterColumns[{at}]")
    yield from _selectable_field_causes(
        one.get("selectableFields") or [], f"{path}.selectableFields"
    )


def _version_list_causes(versions: list[Tree], shared: dict[str, bool]) -> Iterator[Cause]:
    printed = [_go_version(one, shared) for one in versions] or None
    names = [one["name"] for one in versions]
    if len(set(names)) != len(names):
        yield invalid("spec.versions", printed, "must contain unique version names")
    if sum(one["storage"] for one in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", printed, text)


def _go_version(one: Tree, shared: dict[str, bool]) -> Tree:
    """A version as the original prints it."""
    kept = {key: None if shared[key] else one.get(key) for key in _SHARED_FIELDS}
    return {
        "Name": one["name"],
        "Served": one["served"],
        "Storage": one["storage"],
        "Deprecated": one.get("deprecated", False),
        "DeprecationWarning": one.get("deprecationWarning"),
        **{f"{key[0].upper()}{key[1:]}": value for key, value in kept.items()},
    }


def _label_causes(value: str, path: str) -> Iterator[Cause]:
    if problems := label_1035_problems(value):
        yield invalid(path, value, ",".join(problems))


def _names_causes(names: Tree, path: str) -> Iterator[Cause]:
    for name in ("plural", "singular"):
        if names.get(name):
            yield from _label_causes(names[name], f"{path}.{name}")
    for name in ("kind", "listKind"):
        value = names.get(name, "")
        problems = label_1035_problems(value.lower())
        if value and problems:
            text = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid(f"{path}.{name}", value, text)
    for at, value in enumerate(names.get("shortNames", ())):
        yield from _label_causes(value, f"{path}.shortNames[{at}]")
    if names["kind"] and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield invalid(f"{path}.listKind", names["listKind"], text)
    for at, value in enumerate(names.get("categories", ())):
        yield from _label_causes(value, f"{path}.categories[{at}]")


def _simple_path_causes(text: str, path: str, below: tuple[str, ...] = ()) -> Iterator[Cause]:
    if not text.startswith("."):
        yield invalid(path, text, "must be a simple json path starting with .")
    elif below and not text.startswith(below):
        where = "either .spec or .status" if len(below) > 1 else below[0][:-1]
        yield invalid(path, text, f"should be a json path under {where}")


def _scale_causes(scale: Tree | None, path: str) -> Iterator[Cause]:
    if scale is None:
        return
    for name, below in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        check = partial(_simple_path_causes, below=(below,))
        yield from field_checks.needed(scale[name], check, f"{path}.{name}")
    if scale.get("labelSelectorPath"):
        here = f"{path}.labelSelectorPath"
        yield from _simple_path_causes(scale["labelSelectorPath"], here, (".spec.", ".status."))


def _column_causes(column: Tree, path: str) -> Iterator[Cause]:
    if not column["name"]:
        yield required(f"{path}.name")
    text = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column["type"]:
        yield required(f"{path}.type", text)
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], text)
    form = column.get("format", "")
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    yield from field_checks.needed(column["jsonPath"], _simple_path_causes, f"{path}.JSONPath")


def _selectable_field_causes(fields: list[Tree], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(fields):
        here, value = f"{path}[{at}].jsonPath", one["jsonPath"]
        if not value:
            yield required(here)
        elif value.startswith(".metadata"):
            yield invalid(here, value, "must not point to fields in metadata")
        elif value in seen:
            yield duplicate(here, value)
        seen.add(value)
    if len(seen) > _FIELDS_MAX:
        yield too_many(path, len(seen), _FIELDS_MAX)


def _conversion_causes(conversion: Tree, path: str) -> Iterator[Cause]:
    strategy, webhook = conversion["strategy"], conversion.get("webhook")
    yield from field_checks.supported_value(strategy, ("None", "Webhook"), f"{path}.strategy")
    if strategy != "Webhook":
        if webhook is not None:
            text = "should not be set when strategy is not set to Webhook"
            if webhook.get("clientConfig") is not None:
                yield forbidden_field(f"{path}.webhookClientConfig", text)
            if webhook.get("conversionReviewVersions"):
                yield forbidden_field(f"{path}.conversionReviewVersions", text)
        return
    client = (webhook or {}).get("clientConfig")
    here = f"{path}.webhookClientConfig"
    if client is None:
        yield required(here, "required when strategy is set to Webhook")
    elif ("url" in client) == ("service" in client):
        yield required(here, "exactly one of url or service is required")
    if not (webhook or {}).get("conversionReviewVersions"):
        yield required(f"{path}.conversionReviewVersions")


def _stored_versions_causes(obj: Tree) -> Iterator[Cause]:
    path, stored = "status.storedVersions", obj["status"]["storedVersions"] or []
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    names = {one["name"] for one in obj["spec"]["versions"] or ()}
    for one in obj["spec"]["versions"] or ():
        if one["storage"] and one["name"] not in stored:
            yield invalid(path, stored, f"must have the storage version {one['name']}")
    for at, name in enumerate(stored):
        if name not in names:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must"
                " remain in spec.versions until a storage migration ensures no data remains"
                f" persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{path}[{at}]", name, text)


def _preserve_unknown_fields_causes(obj: Tree, old: Tree | None) -> Iterator[Cause]:
    if old is not None and old["spec"].get("preserveUnknownFields"):
        return
    if obj["spec"].get("preserveUnknownFields"):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in"
            " spec.versions[*].schema instead"
        )
        yield invalid("spec.preserveUnknownFields", True, text)


KIND = KindRegistration(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    types=TYPES,
    defaults={"apiextensions/v1.CustomResourceDefinition": set_definition_defaults},
    namespaced=False,
    strategy=DefinitionStrategy(),
    status=DefinitionStatusStrategy(),
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    stored_as="v1beta1",
    table=CREATED_AT,
)
