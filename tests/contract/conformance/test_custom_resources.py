"""Definitions, validation of fields and rules, as Kubernetes' own conformance tests ask for them.

Each test restates one of kubernetes v1.36, test/e2e/apimachinery; its name there is the docstring.
"""

from __future__ import annotations

from typing import Any

from tests.contract.conformance.conformance_client import (
    CLUSTER_DEFINITIONS,
    MAPS,
    MERGE,
    THINGS,
    Answer,
    ConformanceClient,
    definition,
    thing,
)

Tree = dict[str, Any]
DEFINITION = f"{CLUSTER_DEFINITIONS}/things.example.com"
SPEC = {"type": "object", "properties": {"size": {"type": "integer"}}}
TYPED = {"type": "object", "properties": {"spec": SPEC}}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def with_kind(schema: Tree, **version: Any) -> ConformanceClient:
    """A client of a cluster with Things."""
    client = ConformanceClient()
    client.done("POST", CLUSTER_DEFINITIONS, definition(schema, **version))
    return client


def with_rule(schema: Tree, **rule: str) -> tuple[ConformanceClient, Answer]:
    """A client, and what the server answers to a definition whose spec has a rule."""
    ruled = {**schema, "x-kubernetes-validations": [rule]}
    tree = definition({"type": "object", "properties": {"spec": ruled}})
    client = ConformanceClient()
    return client, client.send("POST", CLUSTER_DEFINITIONS, tree)


def test_a_definition_is_created_listed_and_deleted() -> None:
    """custom_resource_definition.go: creating/deleting custom resource definition objects works;
    listing custom resource definition objects works"""
    client = with_kind(ANY)
    assert client.done("GET", CLUSTER_DEFINITIONS).names() == ["things.example.com"]
    conditions = client.done("GET", DEFINITION).tree["status"]["conditions"]
    assert {one["type"]: one["status"] for one in conditions} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    client.done("DELETE", DEFINITION)
    assert client.send("GET", DEFINITION).status == 404


def test_the_status_of_a_definition() -> None:
    """custom_resource_definition.go: getting/updating/patching custom resource definition status
    sub-resource works"""
    client = with_kind(ANY)
    found = client.done("GET", f"{DEFINITION}/status").tree
    condition = {
        "type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "set",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found["status"]["conditions"].append(condition)
    client.done("PUT", f"{DEFINITION}/status", found)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    patched = client.done("PATCH", f"{DEFINITION}/status", patch, MERGE).tree
    assert condition in patched["status"]["conditions"]
    assert patched["metadata"]["annotations"] == {"a": "b"}


def test_defaults_are_for_requests_and_for_what_is_stored() -> None:
    """custom_resource_definition.go: custom resource defaulting for requests and from storage
    works"""
    client = with_kind({"type": "object", "properties": {"a": {"type": "string"}}})
    client.done("POST", THINGS, thing("before"))
    tree = client.done("GET", DEFINITION).tree
    schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["a"]["default"] = "A"
    schema["properties"]["b"] = {"type": "string", "default": "B"}
    client.done("PUT", DEFINITION, tree)
    for name in ("before", "after"):
        if name == "after":
            client.done("POST", THINGS, thing("after"))
        found = client.done("GET", f"{THINGS}/{name}").tree
        assert (found["a"], found["b"]) == ("A", "B")
    client.done("PATCH", f"{THINGS}/after", {"b": None}, MERGE)
    assert client.done("GET", f"{THINGS}/after").tree["b"] == "B"


def test_a_valid_object_of_a_custom_kind() -> None:
    """field_validation.go: should create/apply a valid CR for CRD with validation schema"""
    client = with_kind(TYPED)
    client.done("POST", f"{THINGS}?fieldValidation=Strict", thing("a", spec={"size": 1}))
    made = client.apply(THINGS + "/b", thing("b", spec={"size": 2}), "m")
    assert (made.status, made.tree["spec"]) == (201, {"size": 2})


def test_an_object_of_a_custom_kind_with_fields_that_it_has_not() -> None:
    """field_validation.go: should create/apply an invalid CR with extra properties for CRD with
    validation schema"""
    client = with_kind(TYPED)
    extra = thing("a", spec={"size": 1, "color": "red"})
    strict = client.send("POST", f"{THINGS}?fieldValidation=Strict", extra)
    assert (strict.status, strict.tree["reason"]) == (400, "BadRequest")
    assert strict.message.endswith('strict decoding error: unknown field "spec.color"')
    warned = client.send("POST", f"{THINGS}?fieldValidation=Warn", extra)
    assert (warned.status, warned.tree["spec"]) == (201, {"size": 1})
    assert warned.warnings == ['299 - "unknown field \\"spec.color\\""']
    silent = client.send("PATCH", f"{THINGS}/a?fieldValidation=Ignore", extra, MERGE)
    assert (silent.status, silent.warnings) == (200, [])


def test_unknown_metadata_of_a_custom_kind() -> None:
    """field_validation.go: should detect unknown metadata fields in both the root and embedded
    object of a CR"""
    template = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    client = with_kind({"type": "object", "properties": {"template": template}})
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "i", "unknownInner": "x"}}
    tree = thing("a", template=inner)
    tree["metadata"]["unknownOuter"] = "x"
    made = client.send("POST", f"{THINGS}?fieldValidation=Strict", tree)
    assert made.status == 400
    assert 'unknown field "metadata.unknownOuter"' in made.message
    assert 'unknown field "template.metadata.unknownInner"' in made.message
    warned = client.send("POST", f"{THINGS}?fieldValidation=Warn", tree)
    assert len(warned.warnings) == 2
    assert warned.tree["template"]["metadata"] == {"name": "i"}
    wrong = thing("b", template={**inner, "metadata": {"name": 5}})
    assert client.send("POST", THINGS, wrong).message.endswith(
        'template.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go '
        "struct field ObjectMeta.name of type string"
    )


def test_unknown_fields_of_a_built_in_kind() -> None:
    """field_validation.go: should detect unknown metadata fields of a typed object"""
    client = ConformanceClient()
    tree = {"metadata": {"name": "m", "unknownMeta": "x"}, "data": {}}
    made = client.send("POST", f"{MAPS}?fieldValidation=Strict", tree)
    assert made.status == 400
    assert 'unknown field "metadata.unknownMeta"' in made.message
    assert client.send("POST", f"{MAPS}?fieldValidation=Ignore", tree).status == 201


def test_an_object_that_meets_the_rules() -> None:
    """crd_validation_rules.go: MUST NOT fail validation for create of a custom resource that
    satisfies the x-kubernetes-validations rules"""
    client, made = with_rule(SPEC, rule="self.size > 1")
    assert made.status == 201
    client.done("POST", THINGS, thing("a", spec={"size": 2}))


def test_an_object_that_does_not_meet_the_rules() -> None:
    """crd_validation_rules.go: MUST fail validation for create of a custom resource that does not
    satisfy the x-kubernetes-validations rules"""
    client, _ = with_rule(SPEC, rule="self.size > 1", message="too small")
    refused = client.send("POST", THINGS, thing("a", spec={"size": 1}))
    assert refused.status == 422
    assert refused.message.endswith("spec: Invalid value: too small")


def test_a_rule_that_names_a_field_that_is_not_there() -> None:
    """crd_validation_rules.go: MUST fail create of a custom resource definition that contains a
    x-kubernetes-validations rule that refers to a property that do not exist"""
    _, made = with_rule(SPEC, rule="self.colour == 'red'")
    assert made.status == 422
    assert "undefined field 'colour'" in made.message


def test_a_rule_that_does_not_compile() -> None:
    """crd_validation_rules.go: MUST fail create of a custom resource definition that contains an
    x-kubernetes-validations rule that contains a syntax error"""
    _, made = with_rule(SPEC, rule="self.size > ")
    assert made.status == 422
    assert "compilation failed" in made.message


def test_a_rule_that_may_cost_too_much() -> None:
    """crd_validation_rules.go: MUST fail create of a custom resource definition that contains an
    x-kubernetes-validations rule that exceeds the estimated cost limit"""
    inner = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"x": {"type": "array", "items": inner}}}
    _, made = with_rule(schema, rule="self.x.all(a, self.x.all(b, a.all(c, b.all(d, c == d))))")
    assert made.status == 422
    assert "estimated rule cost" in made.message


def test_a_rule_that_costs_too_much_when_it_runs() -> None:
    """crd_validation_rules.go: MUST fail create of a custom resource that exceeds the runtime cost
    limit for x-kubernetes-validations rule execution"""
    words = {"type": "array", "maxItems": 500, "items": {"type": "string", "maxLength": 10}}
    schema = {"type": "object", "properties": {"words": words}}
    client, made = with_rule(schema, rule="self.words.all(x, self.words.all(y, x == y || x != y))")
    assert made.status == 201
    client.done("POST", THINGS, thing("a", spec={"words": ["a"] * 20}))
    refused = client.send("POST", THINGS, thing("b", spec={"words": ["a"] * 500}))
    assert refused.status == 422
    assert "call cost exceeds limit" in refused.message


def test_a_transition_rule() -> None:
    """crd_validation_rules.go: MUST fail update of a custom resource that does not satisfy a
    x-kubernetes-validations transition rule"""
    client, _ = with_rule(SPEC, rule="self.size == oldSelf.size", message="size cannot be changed")
    client.done("POST", THINGS, thing("a", spec={"size": 1}))
    refused = client.send("PATCH", f"{THINGS}/a", {"spec": {"size": 2}}, MERGE)
    assert refused.status == 422
    assert "size cannot be changed" in refused.message
