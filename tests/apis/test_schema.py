"""Types as the tables describe them: what decoding keeps, puts in, and complains of."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apis.machinery.errors import BodyDecodeError
from stowplan.apis.machinery.resource import ResourceSchema
from stowplan.apis.schema import StructType
from stowplan.apis.schema.json_parser import InvalidJson, parse_json
from stowplan.apis.schema.scalar_decoders import TypeMismatch
from stowplan.apis.schema.struct_types import CachedStructType, UnknownFields
from stowplan.apiserver.resource_registry import built_in_registry
from tests.soak import examples

Tree = dict[str, Any]

REGISTRY = built_in_registry()


def schema_of(path: str) -> ResourceSchema:
    found = REGISTRY.by_path(path)
    assert found is not None
    return found.schema


PODS = schema_of("pods")


def pod(**spec: Any) -> Tree:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def decoded(tree: Tree, path: str = "pods") -> Tree:
    made, texts = schema_of(path).decode(tree, (), "Strict")
    assert texts == []
    return made


def test_a_pod_gets_its_defaults() -> None:
    made = decoded(pod())
    spec = made["spec"]
    container = spec["containers"][0]
    assert (spec["restartPolicy"], spec["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert (spec["terminationGracePeriodSeconds"], spec["schedulerName"]) == (
        30,
        "default-scheduler",
    )
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {}
    assert made["status"] == {}


POD_TEXTS = st.sampled_from(
    [
        {"restartPolicy": "Never"},
        {"priority": 1},
        {"priority": 1.0},
        {"priority": True},
        {"hostNetwork": True},
        {"nope": 1},
        {"nodeName": None},
        {"terminationGracePeriodSeconds": float("nan")},
        {"nodeSelector": {"b": "1", "a": "2"}},
        {"nodeSelector": {"a": "2", "b": "1"}},
        {"serviceAccount": "x"},
    ]
)


def outcome(shape: StructType, spec: Tree) -> tuple[str, Any, list[str]]:
    """What a spec is decoded to, or why it is not, and what is said of it."""
    sink = UnknownFields()
    try:
        made = shape.decode(copy.deepcopy(spec), (None, "spec", "Pod"), sink)
    except TypeMismatch as error:
        return "wrong", str(error), []
    # As text, since 1 and 1.0 and True are the same to Python, and so are dicts in other orders.
    return "right", json.dumps(made), list(sink.texts)


def same_as_fresh(kind: type[CachedStructType], extras: list[Tree]) -> None:
    """A type that remembers answers as if it had seen nothing before."""
    plain = type_tables.struct("core/v1.PodSpec")
    remembering = kind(plain.package, plain.name)
    remembering.fields, remembering.hook = plain.fields, plain.hook
    remembering.compile()
    for extra in extras:
        spec = pod(**extra)["spec"]
        fresh = StructType(plain.package, plain.name)
        fresh.fields, fresh.hook = plain.fields, plain.hook
        fresh.compile()
        found = outcome(remembering, spec)
        assert found == outcome(fresh, spec)


@given(extras=st.lists(POD_TEXTS, min_size=2, max_size=8))
@settings(max_examples=examples(60))
def test_what_is_remembered_is_what_is_decoded(extras: list[Tree]) -> None:
    same_as_fresh(CachedStructType, extras)


def test_remembering_too_much_is_caught() -> None:
    class Careless(CachedStructType):
        """Remembers also what something was said about."""

        def decode(self, value: Any, at: Any, sink: Any) -> Any:
            quiet = UnknownFields()
            made = super().decode(value, at, quiet)
            if value not in self._seen:
                self._seen.append(value)
                sink.texts.update(quiet.texts)
            return made

        _seen: list[Any] = []

    with pytest.raises(AssertionError):
        same_as_fresh(Careless, [{"nope": 1}, {"nope": 1}])


def test_what_is_remembered_is_not_shared() -> None:
    first = decoded(pod(nodeSelector={"a": "b"}))
    first["spec"]["nodeSelector"]["a"] = "changed"
    assert decoded(pod(nodeSelector={"a": "b"}))["spec"]["nodeSelector"] == {"a": "b"}


def test_requests_come_from_limits() -> None:
    made = decoded(pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "1.5"}}}]))
    limits = {"cpu": "1500m"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": limits, "requests": limits}


@pytest.mark.parametrize(
    ("given_quantity", "canonical"),
    [("1000m", "1"), ("1.5Gi", "1536Mi"), ("0.5", "500m"), (2, "2"), ("1e3", "1e3"), ("0", "0")],
)
def test_quantities_have_one_form(given_quantity: Any, canonical: str) -> None:
    requests = {"requests": {"memory": given_quantity}}
    made = decoded(pod(containers=[{"name": "c", "resources": requests}]))
    assert made["spec"]["containers"][0]["resources"]["requests"]["memory"] == canonical


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"nope": 1}, 'unknown field "spec.nope"'),
        ({"containers": [{"x": 1}]}, 'unknown field "spec.containers[0].x"'),
        ({"affinity": {"nodeAffinity": {"y": 1}}}, 'unknown field "spec.affinity.nodeAffinity.y"'),
    ],
)
def test_unknown_fields_are_reported_and_dropped(spec: Tree, text: str) -> None:
    made, texts = PODS.decode({"spec": spec}, ('duplicate field "kind"',), "Warn")
    assert texts == ['duplicate field "kind"', text]
    assert "nope" not in made["spec"]
    assert PODS.decode({"spec": spec}, (), "Ignore")[1] == []


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (
            {"containers": "x"},
            "cannot unmarshal string into Go struct field PodSpec.spec.containers",
        ),
        ({"priority": "1"}, "cannot unmarshal string into Go struct field PodSpec.spec.priority"),
        ({"priority": 2**40}, "cannot unmarshal number 1099511627776"),
        ({"hostNetwork": 1}, "of type bool"),
    ],
)
def test_wrong_types_are_refused(spec: Tree, part: str) -> None:
    with pytest.raises(BodyDecodeError, match=part.replace("(", r"\(")):
        PODS.decode({"spec": spec}, (), "Ignore")


def test_null_is_as_if_it_was_not_given() -> None:
    assert decoded(pod(priority=None, affinity=None)) == decoded(pod())


def test_lists_know_how_they_merge() -> None:
    shape = PODS.shape
    assert shape is not None
    spec = shape.merging("spec")
    assert spec is not None
    assert spec.shape is not None
    containers = spec.shape.merging("containers")
    assert containers is not None
    assert (containers.strategies, containers.key) == (("merge",), "name")
    assert spec.shape.merging("nope") is None


@pytest.mark.parametrize(
    ("raw", "tree"),
    [
        (rb'{"a": "x\ud800"}', {"a": "x\N{REPLACEMENT CHARACTER}"}),
        (rb'{"\udfff": ["\ud83d\ude00"]}', {"\N{REPLACEMENT CHARACTER}": ["\N{GRINNING FACE}"]}),
    ],
)
def test_half_letters_are_replaced(raw: bytes, tree: Tree) -> None:
    """They could not be written again."""
    assert parse_json(raw) == (tree, [])


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 310, "-" + "9" * 309, "9" * 5000])
def test_numbers_that_go_has_none_for_are_refused(number: str) -> None:
    with pytest.raises(InvalidJson, match="json: cannot unmarshal number"):
        parse_json(b'{"a": %b}' % number.encode())


def test_repeated_keys_are_found() -> None:
    tree, texts = parse_json(b'{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert tree == {"a": 3, "b": {"c": 2}}
    assert texts == ['duplicate field "b.c"', 'duplicate field "a"']
    with pytest.raises(InvalidJson):
        parse_json(b'{"a": ')


NAMES = st.sampled_from(["name", "image", "cpu", "key", "x"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**33), st.text(max_size=3))
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3)
)
CONTAINERS = st.fixed_dictionaries(
    {"name": st.text("ab", max_size=2)},
    optional={
        "image": st.sampled_from(["", "i", "i:latest", "i:1", "i@sha256:" + "0" * 64]),
        "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.dictionaries(st.just("cpu"), st.sampled_from(["1", "5m"]))}
        ),
        "ports": st.lists(st.fixed_dictionaries({"containerPort": st.integers(1, 9)}), max_size=2),
        "livenessProbe": st.fixed_dictionaries({"tcpSocket": st.just({"port": 1})}),
        "tty": st.booleans(),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, max_size=2)},
    optional={
        "hostNetwork": st.booleans(),
        "tolerations": st.lists(st.fixed_dictionaries({"key": st.text("ab", max_size=2)})),
        "securityContext": st.just({}),
        "nodeSelector": st.dictionaries(NAMES, st.text(max_size=2)),
        "terminationGracePeriodSeconds": st.integers(-1, 2),
        "volumes": st.lists(
            st.fixed_dictionaries({"name": st.text("ab", max_size=2), "emptyDir": st.just({})}),
            max_size=2,
        ),
    },
)


def settles(decode: Any, tree: Tree) -> bool:
    """True if what was decoded comes out of another decoding as it is, and the source is whole."""
    before = copy.deepcopy(tree)
    once = decode(tree)
    return bool(tree == before and decode(copy.deepcopy(once)) == once)


@settings(max_examples=examples(60), deadline=None)
@given(SPECS)
def test_decoding_settles_at_once(spec: Tree) -> None:
    assert settles(lambda tree: PODS.decode(tree, (), "Ignore")[0], {"spec": spec})


def test_a_decoder_that_adds_something_each_time_does_not_settle() -> None:
    def greedy(tree: Tree) -> Tree:
        made, _ = PODS.decode(tree, (), "Ignore")
        made["spec"]["containers"].append({"name": "side"})
        return made

    assert not settles(greedy, pod())


@settings(max_examples=examples(60), deadline=None)
@given(TREES, st.sampled_from([one.path for one in REGISTRY.all() if one.act is None]))
def test_any_tree_is_decoded_or_refused(tree: Any, path: str) -> None:
    given_tree = {"metadata": {"name": "a"}, "spec": tree, "data": tree, "status": tree}
    schema = schema_of(path)
    try:
        made, _ = schema.decode(given_tree, (), "Warn")
    except BodyDecodeError:
        return
    assert schema.decode(copy.deepcopy(made), (), "Strict") == (made, [])
