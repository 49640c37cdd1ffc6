"""Admission policies in CEL on a whole server: what they refuse, warn of and change."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from tests.apiserver.small_cluster import SmallCluster

Tree = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
CONFIG_MAPS: Tree = {
    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}  # fmt: skip
PODS: Tree = {**CONFIG_MAPS, "resources": ["pods"]}


def cluster() -> SmallCluster:
    return SmallCluster(nodes=0)


def enforce(
    one: SmallCluster, kind: str, spec: Tree, *, rule: Tree = CONFIG_MAPS, **binding: Any
) -> None:
    """Create a policy and its binding."""
    name = spec.pop("name", "p")
    given = {"matchConstraints": {"resourceRules": [rule]}, **spec}
    one.create(f"{GROUP}/{kind}admissionpolicies", {"metadata": {"name": name}, "spec": given})
    if kind == "validating":
        binding.setdefault("validationActions", ["Deny"])
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, **binding}}
    one.create(f"{GROUP}/{kind}admissionpolicybindings", bound)


def put(one: SmallCluster, name: str, data: Tree | None = None, **meta: Any) -> Any:
    """The data of a new config map, or the error."""
    obj = {"metadata": {"name": name, **meta}, "data": data or {}}
    try:
        return one.create("configmaps", obj).get("data", {})
    except ApiError as error:
        return error


def refusal(found: Any) -> str:
    assert isinstance(found, ApiError)
    return found.message.partition("denied request: ")[2]


VALIDATIONS: list[tuple[Tree, Tree, str]] = [
    ({"validations": [{"expression": "false"}]}, {}, "failed expression: false"),
    ({"validations": [{"expression": "false", "message": " no "}]}, {}, "no"),
    ({"validations": [{"expression": "false", "messageExpression": "'n ' + object.metadata.name"}]},
     {}, "n a"),
    ({"validations": [{"expression": "object.data.x == 'y'"}]}, {},
     "expression 'object.data.x == 'y'' resulted in error: no such key: data"),
    ({"variables": [{"name": "n", "expression": "object.data.size()"},
                    {"name": "m", "expression": "variables.n * 2"}],
      "validations": [{"expression": "variables.m < 2",
                       "messageExpression": "'m is ' + string(variables.m)"}]},
     {"k": "v"}, "m is 2"),
    ({"variables": [{"name": "bad", "expression": "object.data.nosuch"}],
      "validations": [{"expression": "variables.bad == 'x'"}]}, {"k": "v"},
     "expression 'variables.bad == 'x'' resulted in error: composited variable \"bad\" fails to"
     " evaluate: no such key: nosuch"),
    ({"validations": [{"expression": "false",
                       "messageExpression": "request.operation + ' ' + request.resource.resource"
                       " + ' ' + request.namespace + ' ' + namespaceObject.metadata.name"}]},
     {}, "CREATE configmaps default default"),
    ({"matchConditions": [{"name": "c", "expression": "object.data.x == 'y'"}],
      "validations": [{"expression": "true"}]}, {},
     "expression 'object.data.x == 'y'' resulted in error: no such key: data"),
    ({"auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.x)"}]}, {},
     "expression 'string(object.data.x)' resulted in error: no such key: data"),
    ({"paramKind": {"apiVersion": "no.such/v1", "kind": "Kind"},
      "validations": [{"expression": "true"}]}, {},
     "failed to configure policy: failed to find resource referenced by paramKind:"
     " 'no.such/v1, Kind=Kind'"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "data", "wanted"), VALIDATIONS)
def test_refusals(spec: Tree, data: Tree, wanted: str) -> None:
    one = cluster()
    enforce(one, "validating", dict(spec))
    found = put(one, "a", data)
    assert refusal(found) == wanted
    assert (found.code, found.reason) == (422, "Invalid")


def test_a_reason_is_the_code_of_the_answer() -> None:
    one = cluster()
    enforce(one, "validating", {"validations": [{"expression": "false", "reason": "Forbidden"}]})
    found = put(one, "a")
    assert (found.code, found.reason) == (403, "Forbidden")


def test_errors_are_ignored_if_the_policy_asks_for_it() -> None:
    one = cluster()
    spec = {
        "failurePolicy": "Ignore",
        "validations": [{"expression": "object.data.x == 'y'"}, {"expression": "size('a') == 1"}],
    }
    enforce(one, "validating", spec)
    assert put(one, "a", {"k": "v"}) == {"k": "v"}
    assert refusal(put(one, "b", {"x": "z"})) == "failed expression: object.data.x == 'y'"


PARAMS: Tree = {
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "validations": [{"expression": "object.metadata.name != params.data.bad",
                     "messageExpression": "'not ' + params.metadata.name"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"name": "one"}, "not one"),
        ({"selector": {"matchLabels": {"role": "param"}}}, "not one"),
        ({"name": "nosuch"}, "failed to configure binding: no params found for policy binding with"
         " `Deny` parameterNotFoundAction"),
    ],
)  # fmt: skip
def test_parameters(given: Tree, wanted: str) -> None:
    one = cluster()
    put(one, "one", {"bad": "x"}, labels={"role": "param"})
    ref = {**given, "parameterNotFoundAction": "Deny"}
    enforce(one, "validating", dict(PARAMS), paramRef=ref)
    assert refusal(put(one, "x", {})) == wanted


def test_a_missing_parameter_may_be_allowed() -> None:
    one = cluster()
    ref = {"name": "nosuch", "parameterNotFoundAction": "Allow"}
    enforce(one, "validating", dict(PARAMS), paramRef=ref)
    assert put(one, "x", {"a": "b"}) == {"a": "b"}


MATCHES: list[tuple[Tree, bool]] = [
    ({}, True),
    ({"objectSelector": {"matchLabels": {"a": "b"}}}, True),
    ({"objectSelector": {"matchLabels": {"a": "c"}}}, False),
    ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
    ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, False),
    ({"resourceRules": [{**CONFIG_MAPS, "resourceNames": ["x"]}]}, False),
    ({"resourceRules": [{**CONFIG_MAPS, "scope": "Cluster"}]}, False),
    ({"resourceRules": [{**CONFIG_MAPS, "operations": ["DELETE"]}]}, False),
    ({"resourceRules": [{**CONFIG_MAPS, "resources": ["*"], "apiGroups": ["*"]}]}, True),
    ({"excludeResourceRules": [{**CONFIG_MAPS, "resourceNames": ["a"]}]}, False),
]


@pytest.mark.parametrize(("matching", "matches"), MATCHES)
def test_bindings_narrow_a_policy(matching: Tree, matches: bool) -> None:
    one = cluster()
    spec = {"validations": [{"expression": "false"}]}
    enforce(one, "validating", spec, matchResources=matching)
    found = put(one, "a", {}, labels={"a": "b"})
    assert isinstance(found, ApiError) is matches


def test_removed_policies_do_not_count() -> None:
    one = cluster()
    enforce(one, "validating", {"validations": [{"expression": "false"}]})
    assert isinstance(put(one, "a"), ApiError)
    one.api.delete(f"{GROUP}/validatingadmissionpolicybindings", "", "p")
    assert put(one, "a") == {}


def apply(expression: str) -> Tree:
    patch = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return {"mutations": [patch], "reinvocationPolicy": "Never"}


def json_patch(expression: str) -> Tree:
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    return {"mutations": [patch], "reinvocationPolicy": "Never"}


MUTATIONS: list[tuple[Tree, Tree | str]] = [
    (apply("Object{data: {'k': object.metadata.name}}"), {"q": "1", "k": "a"}),
    (json_patch("[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('n'), value: 'v'}]"),
     {"q": "1", "n": "v"}),
    (json_patch("[JSONPatch{op: 'test', path: '/data/q', value: '2'},"
                " JSONPatch{op: 'remove', path: '/data/q'}]"), {"q": "1"}),
    (json_patch("[JSONPatch{op: 'remove', path: '/data/zz'}]"),
     "JSON Patch: error in remove for path: '/data/zz': Unable to remove nonexistent key: zz:"
     " missing value"),
    (json_patch("[JSONPatch{op: 'add', path: '/no/x', value: 'v'}]"),
     'JSON Patch: add operation does not apply: doc is missing path: "/no/x": missing value'),
    (apply("Object{nosuch: 'x'}"), "error applying patch: failed to convert patch object to typed"
     " object: .nosuch: field not declared in schema"),
    (apply("Object{metadata: Object.spec{}}"), 'type mismatch: unexpected type name "Object.spec",'
     ' expected "Object.metadata", which matches field name path from root Object type'),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), MUTATIONS)
def test_mutations(spec: Tree, wanted: Tree | str) -> None:
    one = cluster()
    enforce(one, "mutating", dict(spec))
    found = put(one, "a", {"q": "1"})
    if isinstance(wanted, str):
        assert refusal(found) == wanted
        assert (found.code, found.reason) == (403, "Invalid")
    else:
        assert found == wanted


def test_a_policy_runs_again_after_a_change_if_it_asks_for_it() -> None:
    counting = "Object{data: {'n': string(has(object.data) ? object.data.size() : 0)}}"
    seen = []
    for policy in ("Never", "IfNeeded"):
        one = cluster()
        enforce(one, "mutating", {**apply(counting), "reinvocationPolicy": policy})
        enforce(one, "mutating", {**apply("Object{data: {'z': 'z'}}"), "name": "q"})
        seen.append(put(one, "a", {"q": "1"}))
    assert seen == [{"q": "1", "n": "1", "z": "z"}, {"q": "1", "n": "3", "z": "z"}]


def test_items_of_lists_merge_by_their_keys() -> None:
    one = cluster()
    side = "Object.spec.containers{name: 'side', image: 'x'}"
    own = "Object.spec.containers{name: 'c', image: 'y'}"
    enforce(one, "mutating", apply(f"Object{{spec: Object.spec{{containers: [{own}, {side}]}}}}"),
            rule=PODS)  # fmt: skip
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = one.create("pods", pod)["spec"]["containers"]
    assert [(each["name"], each["image"]) for each in made] == [("c", "y"), ("side", "x")]
