"""NodeAffinity: selectors, terms, names of nodes, preferences, and what a profile adds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.framework import OK, SKIP, RestrictTo, Status, error
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.plugins.node_affinity.node_affinity import NodeAffinityArgs, NodeAffinityPlugin
from tests.plugins.clusters import Walks, cases, is_caught, node, pod, table

REFUSED = f"UnschedulableAndUnresolvable: {NodeAffinityPlugin.REJECTED.message}"
ENFORCED = f"UnschedulableAndUnresolvable: {NodeAffinityPlugin.ENFORCED.message}"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
RULE = NodeAffinityPlugin(NodeAffinityArgs())

NODES = table(
    [
        node("a", "disk=ssd cores=8"),
        node("b", "disk=hdd cores=32"),
        node("c", "cores=many"),
        node("d", "disk="),
    ]
)


def rule(text: str) -> dict[str, Any]:
    """`KEY OPERATOR VALUES...` as a requirement."""
    key, operator, *values = text.split()
    return {"key": key, "operator": operator, "values": values}


def term(*expressions: str, fields: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {"matchExpressions": map(rule, expressions), "matchFields": map(rule, fields)}
    return {key: list(rules) for key, rules in found.items()}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {REQUIRED: {"nodeSelectorTerms": list(terms)}}


def preferred(**weights: dict[str, Any]) -> dict[str, Any]:
    """w10=term, w5=term ..."""
    return {PREFERRED: [{"weight": int(w[1:]), "preference": t} for w, t in weights.items()]}


def wanting(affinity: dict[str, Any], **more: Any) -> Pod:
    return pod(affinity={"nodeAffinity": affinity}, **more)


@pytest.mark.parametrize(
    ("terms", "admitted"),
    [
        ([term("disk In ssd")], "a"),
        ([term("disk In ssd hdd nvme")], "a b"),
        ([term("disk In nvme")], ""),
        ([term("disk NotIn ssd")], "b c d"),
        ([term("disk Exists")], "a b d"),
        ([term("disk DoesNotExist")], "c"),
        ([term("cores Gt 8")], "b"),
        ([term("cores Lt 32")], "a"),
        ([term("disk Exists", "cores Exists")], "a b"),
        ([term("disk In ssd"), term("disk In hdd")], "a b"),
        ([term("disk Exists", fields=("metadata.name NotIn b",))], "a d"),
        ([term(fields=("metadata.name In b",))], "b"),
        ([term(fields=("metadata.name In gone",)), term("cores Gt 8")], "b"),
        # A field that there is not reads as the empty string.
        ([term("disk Exists", fields=("metadata.uid NotIn x",))], "a b d"),
        # Empty and faulty terms match nothing; the others still count.
        ([term()], ""),
        ([], ""),
        ([term("disk Near ssd"), term("disk In hdd")], "b"),
        ([term("cores Gt 8 9")], ""),
    ],
)
def test_required_terms(terms: list[dict[str, Any]], admitted: str) -> None:
    found = Walks(NodeAffinityPlugin).refusals(wanting(required(*terms)), NODES)
    assert found == {name: REFUSED for name in "abcd" if name not in admitted.split()}


@pytest.mark.parametrize(
    ("selector", "admitted"),
    [
        ({}, "a b c d"),
        ({"disk": "ssd"}, "a"),
        ({"disk": ""}, "d"),
        ({"disk": "ssd", "cores": "32"}, ""),
        ({"unknown": "x"}, ""),
    ],
)
def test_node_selector(selector: dict[str, str], admitted: str) -> None:
    found = Walks(NodeAffinityPlugin).refusals(pod(nodeSelector=selector), NODES)
    assert found == {name: REFUSED for name in "abcd" if name not in admitted.split()}


def test_selector_and_affinity_must_both_hold() -> None:
    both = wanting(required(term("disk Exists")), nodeSelector={"cores": "8"})
    assert Walks(NodeAffinityPlugin).refusals(both, NODES).keys() == {"b", "c", "d"}


NAME_A, NAME_B = "metadata.name In a", "metadata.name In b"


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        (pod(), SKIP),
        (wanting(preferred(w1=term("disk Exists"))), SKIP),
        (pod(nodeSelector={}), OK),
        (wanting(required()), OK),
        (wanting(required(term(fields=(NAME_A,)))), RestrictTo(frozenset("a"))),
        (
            wanting(required(term(fields=(NAME_A,)), term(fields=(NAME_B,)))),
            RestrictTo(frozenset("ab")),
        ),
        (wanting(required(term(fields=(NAME_A,)), term("disk Exists"))), OK),
        (wanting(required(term(fields=("metadata.name NotIn a",)))), OK),
        (wanting(required(term(fields=(NAME_A, NAME_B)))), NodeAffinityPlugin.CONFLICT),
        (
            wanting(required(term(fields=(NAME_A, NAME_B)), term(fields=(NAME_B,)))),
            RestrictTo(frozenset("b")),
        ),
    ],
)
def test_pre_filter(one: Pod, answer: Status | RestrictTo) -> None:
    assert RULE.pre_filter(one) == answer


def test_preferences_add_up_and_are_normalised() -> None:
    one = wanting(
        preferred(
            w10=term("disk In ssd"),
            w30=term("cores Gt 8"),
            w5=term("disk Exists"),
            w0=term("disk Near"),
            w7=term(),
        )
    )
    walks = Walks(NodeAffinityPlugin)
    assert walks.raw(one, NODES) == {"a": 15, "b": 35, "c": 0, "d": 5}
    assert walks.final(one, NODES) == {"a": 42, "b": 100, "c": 0, "d": 14}


def test_pre_score() -> None:
    assert RULE.pre_score(pod()) == SKIP
    assert RULE.pre_score(wanting(required(term("disk Exists")))) == SKIP
    assert RULE.pre_score(wanting(preferred(w1=term("disk Exists")))) == OK
    faulty = wanting(preferred(w1=term("disk Exists"), w2=term("disk Exists x")))
    text = (
        '[1].matchExpressions[0].values: Invalid value: ["x"]: '
        "values set must be empty for exists and does not exist"
    )
    assert RULE.pre_score(faulty) == error(text)


ADDED = {"addedAffinity": {**required(term("disk Exists")), **preferred(w4=term("cores Gt 1"))}}


def test_added_affinity() -> None:
    walks = Walks(NodeAffinityPlugin, ADDED)
    assert walks.refusals(pod(), NODES) == {"c": ENFORCED}
    one = wanting({**required(term("cores Exists")), **preferred(w1=term("disk In hdd"))})
    # The added affinity is asked first.
    assert walks.refusals(one, NODES) == {"c": ENFORCED, "d": REFUSED}
    assert walks.raw(one, NODES) == {"a": 4, "b": 5, "c": 0, "d": 0}
    assert walks.raw(pod(), NODES) == {"a": 4, "b": 4, "c": 0, "d": 0}


@pytest.mark.parametrize(
    ("affinity", "problems"),
    [
        ({}, []),
        (ADDED["addedAffinity"], []),
        (preferred(w0=term("disk Near")), []),
        (
            required(term("disk Exists"), term("disk Near ssd")),
            [
                f"args.addedAffinity.{REQUIRED}.nodeSelectorTerms[1].matchExpressions[0].operator: "
                'Invalid value: "Near": '
                'expected supported values: "In", "NotIn", "Exists", "DoesNotExist", '
                '"Gt", "Lt"'
            ],
        ),
        (
            preferred(w3=term(fields=("metadata.name In a b",))),
            [
                f"args.addedAffinity.{PREFERRED}[0].preference.matchFields[0].values: "
                'Invalid value: ["a","b"]: expected must have one element'
            ],
        ),
    ],
)
def test_problems(affinity: dict[str, Any], problems: list[str]) -> None:
    args = convert({"addedAffinity": affinity}, NodeAffinityArgs)
    assert list(map(str, args.problems("args"))) == problems


@pytest.mark.parametrize("args", [None, ADDED])
@given(case=cases("affinity"))
def test_walks_agree(args: dict[str, Any] | None, case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeAffinityPlugin, args).agree(*case)


class ForgetsTheSelector(NodeAffinityPlugin):
    """Wrong: the column walk looks at the affinity only."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        bare = convert({"spec": {"affinity": pod.spec.affinity}}, Pod)
        return super().filter_column(bare, nodes, rows)


class PrefersEachOnce(NodeAffinityPlugin):
    """Wrong: the column walk takes the greatest weight instead of the sum."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        scores = super().score_column(pod, nodes, rows)
        return np.minimum(scores, max((t.weight for t in self._preferred(pod)), default=0))


@pytest.mark.parametrize("wrong", [ForgetsTheSelector, PrefersEachOnce])
def test_wrong_columns_are_caught(wrong: type[NodeAffinityPlugin]) -> None:
    assert is_caught(wrong, "affinity")


def test_signature_is_selector_and_affinity() -> None:
    one = wanting(required(term("disk Exists")), nodeSelector={"a": "1", "b": "2"})
    same = wanting(required(term("disk Exists")), nodeSelector={"b": "2", "a": "1"})
    assert RULE.signature(one) == RULE.signature(same)
    assert hash(RULE.signature(one)) == hash(RULE.signature(same))
    assert RULE.signature(one) != RULE.signature(wanting(required(term("disk Exists"))))
