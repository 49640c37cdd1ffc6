"""Custom kinds: schema, strategy, table, and the resources of a definition.

Source: apiextensions-apiserver v0.36, pkg/registry/customresource, pkg/apiserver.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from stowplan.apis.kind.strategy import restore_field
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import BodyDecodeError, Cause, forbidden, invalid
from stowplan.apis.machinery.names import qualified_name_problems
from stowplan.apis.machinery.resource import (
    ApiCall,
    MergeShape,
    Resource,
    ResourceStrategy,
    Subresource,
    TableColumn,
)
from stowplan.apis.machinery.stored_form import decode, encode, version_of_stored
from stowplan.apis.schema import kind_schema, type_tables
from stowplan.apis.schema.scalar_decoders import TypeMismatch
from stowplan.apis.schema.struct_types import UnknownFields
from stowplan.apis.subresources.scale import CustomScaleView
from stowplan.apiserver.crd.embedded_objects import (
    MalformedMetadata,
    clean_embedded,
    has_embedded,
)
from stowplan.apiserver.crd.jsonpath import JsonPath, column_text
from stowplan.apiserver.crd.rules.correlation import Counterpart
from stowplan.apiserver.crd.rules.rule_validator import (
    RuleNode,
    RuleValidator,
    rule_tree,
    unchecked_rules,
)
from stowplan.apiserver.crd.structural_schema import (
    DEFAULTING_STEPS_MAX,
    DefaultingBudget,
    TooManyDefaults,
    drop_nulls,
    prune_unknown,
    set_defaults,
)
from stowplan.apiserver.crd.value_validation import ValueValidator, list_causes
from stowplan.apiserver.http.tables import NAME_TEXT, PLAIN_TABLE
from stowplan.objects.encoding.tree import Tree

CREATE_WHILE_TERMINATING = "create not allowed while custom resource definition is terminating"
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_INT32_MAX = 2**31 - 1
_INT64 = 2**63
_ANY_VERSION = 2**64
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_AGE_COLUMN = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


class CustomSchema:
    """The schema of one version of a custom kind (`resource.ResourceSchema`)."""

    shape: MergeShape | None = None

    def __init__(self, structure: Tree) -> None:
        self.structure = structure
        self._has_embedded = has_embedded(structure)

    def decode(self, tree: Tree, duplicates: Sequence[str], mode: str) -> tuple[Tree, list[str]]:
        """See `resource.ResourceSchema`; the defaults of the schema are set as well."""
        unknown: list[str] = []
        made: Tree = prune_unknown(tree, self.structure, True, unknown)
        sink = UnknownFields(duplicates)
        meta = made.get("metadata")
        if meta is not None:
            try:
                made["metadata"] = type_tables.struct("meta/v1.ObjectMeta").decode(
                    meta, (None, "metadata", ""), sink
                )
            except TypeMismatch as error:
                raise BodyDecodeError(str(error)) from None
        try:
            if self._has_embedded:
                clean_embedded(made, self.structure, sink)
            set_defaults(made, self.structure, DefaultingBudget(DEFAULTING_STEPS_MAX))
        except (MalformedMetadata, TooManyDefaults) as error:
            raise BodyDecodeError(str(error)) from None
        drop_nulls(made, self.structure)
        texts = [*sink.texts, *(f'unknown field "{path}"' for path in sorted(unknown))]
        return made, texts if mode != "Ignore" else []

    def decode_merged(self, tree: Tree) -> Tree:
        """The result of a server-side apply: defaults are set, but nulls stay for validation.

        Raises BodyDecodeError.
        """
        made: Tree = copy.deepcopy(tree)
        if isinstance(made.get("metadata"), dict):
            head, _ = self.decode({"metadata": made["metadata"]}, (), "Ignore")
            made["metadata"] = head["metadata"]
        try:
            set_defaults(made, self.structure, DefaultingBudget(DEFAULTING_STEPS_MAX))
        except TooManyDefaults as error:
            raise BodyDecodeError(str(error)) from None
        return made

    def blank(self) -> Tree:
        return {"metadata": {}}

    def default(self, tree: Tree) -> None:
        """Does nothing: decoding has set the defaults."""


class CurrentSchemaReader:
    """Reads objects that were stored under an earlier schema as under the current one.

    since: later versions were written under the current schema.
    """

    def __init__(self, structure: Tree, since: int) -> None:
        self._structure = structure
        self._since = since

    def __call__(self, value: bytes) -> bytes:
        """The bytes under the current schema; the same object if nothing changes."""
        if version_of_stored(value) > self._since:
            return value
        tree = decode(value)
        made = prune_unknown(tree, self._structure, True, [])
        # Stored objects must be readable, whatever it costs.
        set_defaults(made, self._structure, DefaultingBudget(math.inf))
        drop_nulls(made, self._structure)
        return value if made == tree else encode(made)


class CustomStrategy(ResourceStrategy):
    """A custom kind: its schema validates."""

    unconditional_update = False

    def __init__(
        self, structure: Tree, status: bool, scale: Mapping[str, str] | None, ending: bool
    ) -> None:
        self._ending = ending
        self._structure = structure
        self._status = status
        self._scale = scale
        self._rules = rule_tree(structure, True)

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        if self._ending:
            name = obj["metadata"].get("name", "")
            raise forbidden(
                call.resource.group, call.resource.plural, name, CREATE_WHILE_TERMINATING
            )
        if self._status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        if self._status:
            restore_field(new, old, "status")
        generation = old["metadata"].get("generation", 0)
        # The stored object may be of another version, which differs in its name only.
        same = _without_head({**new, "apiVersion": ""}) == _without_head({**old, "apiVersion": ""})
        new["metadata"]["generation"] = generation + (not same)

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        causes = ValueValidator().check(_without_head(obj), self._structure)
        causes += [*self._scaled(obj), *list_causes(_without_head(obj), self._structure)]
        yield from causes
        yield from broken_rules(self._rules, self._structure, obj, None, causes, call)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        wrong = list(_type_causes(new, call.resource))
        if wrong:
            yield from wrong
            return
        causes = ValueValidator().check(_without_head(new), self._structure, _without_head(old))
        causes += self._scaled(new)
        if not any(list_causes(_without_head(old), self._structure)):
            causes += list_causes(_without_head(new), self._structure)
        yield from causes
        yield from broken_rules(self._rules, self._structure, new, old, causes, call)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        had = set(old["metadata"].get("finalizers", ())) if old is not None else set()
        for name in sorted(set(obj["metadata"].get("finalizers", ())) - had):
            yield from _finalizer_warnings(name)

    def _scaled(self, obj: Tree) -> Iterator[Cause]:
        if self._scale is None:
            return
        for path in (self._scale["specReplicasPath"], self._scale["statusReplicasPath"]):
            found = JsonPath(path).find(obj)
            if not found:
                continue
            if not isinstance(found[0], int):
                text = f"{path} accessor error: {found[0]} is of the type {_go_type(found[0])}"
                yield invalid(path, 0, f"{text}, expected int64")
            elif found[0] < 0:
                yield invalid(path, found[0], "should be a non-negative integer")
            elif found[0] > _INT32_MAX:
                yield invalid(path, found[0], f"should be less than or equal to {_INT32_MAX}")


class CustomStatusStrategy(ResourceStrategy):
    """The status subresource of a custom kind."""

    unconditional_update = False

    def __init__(self, structure: Tree) -> None:
        self._structure = structure
        self._rules = rule_tree(structure, True)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        version = new["metadata"].get("resourceVersion")
        entries = new["metadata"].get("managedFields")
        status, given = new.get("status"), "status" in new
        new.clear()
        new.update(old)
        # The record of this write is part of it.
        new["metadata"] = {**old["metadata"], "resourceVersion": version}
        if entries is None:
            new["metadata"].pop("managedFields", None)
        else:
            new["metadata"]["managedFields"] = entries
        new.pop("status", None)
        if given:
            new["status"] = status

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        causes: list[Cause] = []
        below = (self._structure.get("properties") or {}).get("status")
        if below is not None and "status" in new:
            was = {"old": old["status"]} if "status" in old else {}
            causes += ValueValidator("status").check(new["status"], below, **was)
        if not any(list_causes(_without_head(old), self._structure)):
            causes += list_causes(_without_head(new), self._structure)
        yield from causes
        yield from broken_rules(self._rules, self._structure, new, old, causes, call)


def broken_rules(
    rules: RuleNode | None,
    structure: Tree,
    obj: Tree,
    old: Tree | None,
    causes: list[Cause],
    call: ApiCall,
) -> Iterator[Cause]:
    """Causes of broken rules; rules that an unchanged part breaks warn. causes: found before."""
    if rules is None:
        return
    unchecked = unchecked_rules(causes)
    if unchecked is not None:
        yield unchecked
        return
    validator = RuleValidator()
    counterpart = None if old is None else Counterpart(obj, old, structure)
    validator.check(rules, obj, old, counterpart=counterpart)
    call.warnings.extend(validator.warnings)
    yield from validator.causes


def _type_causes(obj: Tree, resource: Resource) -> Iterator[Cause]:
    """Causes of a kind or apiVersion that a patch has changed."""
    for name, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if obj.get(name, wanted) != wanted:
            yield invalid(name, obj[name], f"must be {wanted}")


def _without_head(obj: Tree) -> Tree:
    return {key: value for key, value in obj.items() if key != "metadata"}


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    names = {str: "string", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def _finalizer_warnings(name: str) -> Iterator[str]:
    for text in qualified_name_problems(name):
        yield f'metadata.finalizers: "{name}": {text}'
    if "/" in name or name in _STANDARD_FINALIZERS:
        return
    wanted = "prefer a domain-qualified finalizer name"
    if "." in name:
        wanted += " including a path (/)"
    yield (
        f'metadata.finalizers: "{name}": {wanted} to avoid accidental conflicts with other'
        " finalizer writers"
    )


class CustomTable:
    """The table of a custom kind: its name and the columns of its definition.

    The columns end at one with an invalid path, as in the original.
    """

    def __init__(self, columns: Sequence[Tree]) -> None:
        columns = list(takewhile(lambda one: JsonPath(one["jsonPath"]).is_readable, columns))
        self._paths = [(JsonPath(one["jsonPath"]), one["type"]) for one in columns]
        self.columns = (
            TableColumn("Name", "string", NAME_TEXT, "name"),
            *(
                TableColumn(
                    one["name"],
                    one["type"],
                    one.get("description") or _column_description(one),
                    one.get("format", ""),
                    one.get("priority", 0),
                )
                for one in columns
            ),
        )

    def cells(self, obj: Tree, now: float) -> list[Any]:
        name = obj["metadata"].get("name", "")
        return [name, *(_cell(path.find(obj), kind, now) for path, kind in self._paths)]

    def conditions(self, obj: Tree) -> list[Tree]:
        return []


def _column_description(column: Tree) -> str:
    path = column["jsonPath"]
    if path == ".metadata.creationTimestamp":
        return str(PLAIN_TABLE.columns[1].description)
    return f"Custom resource definition column (in JSONPath format): {path}"


def _cell(found: list[Any], kind: str, now: float) -> Any:
    value = found[0] if found else None
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "string":
        return column_text(value)
    if kind == "integer" and number:
        whole = math.trunc(value)
        # Go converts a value out of range to the lowest int64.
        return whole if -_INT64 <= whole < _INT64 else -_INT64
    if kind == "number" and number:
        return float(value)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "date" and isinstance(value, str):
        try:
            return timestamps.human_age(value, now)
        except ValueError:
            return "<invalid>"
    return None


def resources_of(definition: Tree, ending: bool, since: int) -> list[Resource]:
    """The resources of a definition, the storage version last.

    ending: it is being deleted. since: objects of later versions have the current schema.
    """
    spec = definition["spec"]
    if any(
        _structural_schema(one) != _structural_schema(spec["versions"][0])
        for one in spec["versions"]
    ):
        # Objects keep to the storage version's form, whichever they were written through.
        since = _ANY_VERSION
    made = [
        (version["storage"], _resource(definition, version, ending, since))
        for version in spec["versions"]
        if version["served"]
    ]
    return [resource for _, resource in sorted(made, key=lambda one: one[0])]


def _structural_schema(version: Tree) -> Tree:
    found: Tree = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _stored_schema(spec: Tree) -> Tree:
    """The schema of the storage version, which stored objects keep to."""
    return _structural_schema(next(one for one in spec["versions"] if one["storage"]))


def _resource(definition: Tree, version: Tree, ending: bool, since: int) -> Resource:
    spec = definition["spec"]
    names = definition["status"]["acceptedNames"]
    structure = _structural_schema(version)
    below = version.get("subresources") or {}
    stored = next(one["name"] for one in spec["versions"] if one["storage"])
    fields = {one["jsonPath"][1:]: one["jsonPath"] for one in version.get("selectableFields", ())}
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=CustomSchema(structure),
        strategy=CustomStrategy(structure, "status" in below, below.get("scale"), ending),
        verbs=VERBS,
        singular=names.get("singular", ""),
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        list_kind=names.get("listKind", ""),
        subresources=_subresources(below, structure),
        table=CustomTable(version.get("additionalPrinterColumns") or _AGE_COLUMN),
        fields={name: _selected(path) for name, path in fields.items()},
        custom=True,
        stored_as=stored,
        reread=CurrentSchemaReader(_stored_schema(spec), since),
        deprecation=version.get("deprecationWarning", "") if version.get("deprecated") else "",
    )


def _subresources(below: Tree, structure: Tree) -> dict[str, Subresource]:
    verbs = ("get", "patch", "update")
    made: dict[str, Subresource] = {}
    if "status" in below:
        made["status"] = Subresource("status", verbs, CustomStatusStrategy(structure))
    scale = below.get("scale")
    if scale is not None:
        replicas, found = scale["specReplicasPath"], scale["statusReplicasPath"]
        view = CustomScaleView(replicas, found, scale.get("labelSelectorPath", ""))
        schema = kind_schema("autoscaling/v1.Scale", "autoscaling")
        made["scale"] = Subresource(
            "scale",
            verbs,
            view=view,
            group="autoscaling",
            version="v1",
            kind="Scale",
            schema=schema,
        )
    return made


def _selected(path: str) -> Callable[[Tree], str]:
    compiled = JsonPath(path)

    def read(obj: Tree) -> str:
        found = compiled.find(obj)
        return column_text(found[0]) if found and found[0] is not None else ""

    return read
