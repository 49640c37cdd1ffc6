"""Simulated extenders: selection of classes, answers, and failures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stowplan.framework import ContractError
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders

NAMES = {"nodeCacheCapable": True}
FILTER = {"urlPrefix": "http://fit", "filterVerb": "filter"}
AT_ONCE = ReplayOptions(pace=Pace(0, 0, 0))


def config(folder: Path, *extenders: dict[str, Any]) -> Path:
    """A configuration with these extenders."""
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": list(extenders),
    }
    file = folder / "config.json"
    file.write_text(json.dumps(tree))
    return file


def small(*pods: Pod, n_nodes: int = 3, cpu: str = "4") -> Cluster:
    nodes = [builders.node(f"n{index}", cpu=cpu) for index in range(n_nodes)]
    return Cluster(nodes=nodes, pods=list(pods))


def nodes_of(result: Simulation) -> list[str]:
    return [place.node for place in result.placements]


# Selection and answers.


@pytest.mark.parametrize("capable", [True, False])
def test_extenders_without_a_class_accept_all(tmp_path: Path, capable: bool) -> None:
    """kube-scheduler counts no pods of nodes returned as objects: all pods go to the best node."""
    file = config(tmp_path, FILTER | {"nodeCacheCapable": capable})
    cluster = generate_workload(12, 80, 1)
    plain, agreed = simulate(cluster), simulate(cluster, config=file)
    assert (nodes_of(plain) == nodes_of(agreed)) is capable
    assert agreed.summary["placed"] == plain.summary["placed"]
    (figures,) = agreed.summary["extenders"]
    assert figures["answered_by"] == "agreement"
    assert figures["calls"]["filter"] >= agreed.summary["placed"]
    assert any("extender http://fit is not simulated" in n for n in agreed.summary["notes"])
    assert "extenders" not in plain.summary


class First:
    """Keeps the first node only."""

    url = "http://fit/"

    def filter(self, node: Any) -> Any:
        return node.name == "n0" or f"{node.name} is not the first"


class Second:
    def filter(self, pod: Pod, node: Any, pods: list[Pod]) -> bool:
        return len(pods) < 2


def test_a_class_keeps_nodes_and_the_reasons_of_the_others(tmp_path: Path) -> None:
    cluster = small(*(builders.pod(f"p{i}", cpu="3") for i in range(2)), n_nodes=2)
    result = simulate(cluster, config=config(tmp_path, FILTER | NAMES), extenders=First)
    assert nodes_of(result) == ["n0", ""]
    assert result.placements[1].message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 n1 is not the first."
    )
    assert result.placements[1].reason == "Insufficient cpu; n1 is not the first"
    assert result.summary["extenders"][0]["answered_by"] == "First"
    assert not any("nobody answers" in note for note in result.summary["notes"])


def test_nodes_that_are_dropped_without_a_word(tmp_path: Path) -> None:
    class Never:
        def filter(self) -> bool:
            return False

    file = config(tmp_path, FILTER)
    result = simulate(small(builders.pod("p")), config=file, extenders=[Never])
    assert result.placements[0].reason == "extenders rejected all nodes"


def test_one_class_speaks_for_all_that_no_other_speaks_for(tmp_path: Path) -> None:
    more = {"urlPrefix": "http://more", "filterVerb": "filter", **NAMES}
    file = config(tmp_path, FILTER | NAMES, more)
    cluster = small(*(builders.pod(f"p{i}", cpu="1") for i in range(3)), n_nodes=2)
    result = simulate(cluster, config=file, extenders=[Second, First])
    assert nodes_of(result) == ["n0", "n0", ""]
    assert [one["answered_by"] for one in result.summary["extenders"]] == ["First", "Second"]


def test_classes_are_read_from_files(tmp_path: Path) -> None:
    mind = tmp_path / "mind.py"
    mind.write_text("class Only:\n    def filter(self, node):\n        return node.name == 'n2'\n")
    file = config(tmp_path, FILTER | NAMES)
    result = simulate(small(builders.pod("p")), config=file, extenders=mind)
    assert nodes_of(result) == ["n2"]
    assert str(mind) in result.summary["plugins"]


# The other verbs.


class Prefers:
    def prioritize(self, node: Any) -> int:
        return 10 if node.name == "n1" else 0


def test_scores_count_beside_those_of_plugins(tmp_path: Path) -> None:
    asked = {"urlPrefix": "http://nice", "prioritizeVerb": "p", "weight": 100, **NAMES}
    cluster = small(*(builders.pod(f"p{i}", cpu="1") for i in range(4)))
    file = config(tmp_path, asked)
    assert nodes_of(simulate(cluster, config=file, extenders=Prefers)) == ["n1"] * 4


class Binds:
    """Binds some pods, after a delay."""

    simulated_s = 3

    def bind(self, pod: Pod, node: Any) -> str | None:
        return None if pod.name != "p1" else "not that one"


def test_a_binding_extender_has_latency(tmp_path: Path) -> None:
    file = config(tmp_path, {"urlPrefix": "http://bind", "bindVerb": "bind"})
    cluster = small(*(builders.pod(f"p{i}", cpu="1") for i in range(2)))
    result = simulate(cluster, config=file, extenders=Binds, replay=AT_ONCE)
    first, second = result.placements
    assert first.bound_s == 3  # type: ignore[attr-defined]
    assert (second.node, second.reason) == ("", "not that one")
    assert result.summary["bindings"] == 1


class Spares:
    """Allows no victims on the first node, and one on the second."""

    def preempt(self, node: Any, victims: list[Pod]) -> Any:
        return victims[:1] if node.name == "n1" else False


def test_candidates_for_eviction_are_reviewed(tmp_path: Path) -> None:
    file = config(tmp_path, {"urlPrefix": "http://fit", "preemptVerb": "preempt", **NAMES})
    lows = [builders.pod(f"low{i}", cpu="4", on=f"n{i}", priority=i) for i in range(2)]
    cluster = small(*lows, builders.pod("vip", cpu="4", priority=9, created_at=0), n_nodes=2)
    result = simulate(cluster, config=file, extenders=Spares, replay=AT_ONCE)
    assert nodes_of(result)[-1] == "n1"
    assert result.summary["preemption"]["victims"] == 1


# Failures.


class Fails:
    """Times out twice, then is unreachable twice, then accepts."""

    def __init__(self) -> None:
        self.n_asked = 0

    def filter(self) -> bool:
        self.n_asked += 1
        if self.n_asked <= 2:
            raise TimeoutError
        if self.n_asked <= 4:
            raise ConnectionError("connect: no route to host")
        return True


@pytest.mark.parametrize("ignorable", [False, True])
def test_a_failure_is_passed_over_only_where_that_is_allowed(
    tmp_path: Path, ignorable: bool
) -> None:
    file = config(tmp_path, FILTER | NAMES | {"ignorable": ignorable, "httpTimeout": "2s"})
    result = simulate(
        small(builders.pod("p"), n_nodes=1), config=file, extenders=Fails, replay=AT_ONCE
    )
    (place,) = result.placements
    assert place.node == "n0"
    if ignorable:
        assert (place.bound_s, place.refusals) == (2, 0)  # type: ignore[attr-defined]
    else:
        # Two timeouts of 2 s and two refused connections, with backoffs of 1, 2, 4 and 8 s.
        assert place.refusals == 4  # type: ignore[attr-defined]
        assert 19 <= place.bound_s <= 23  # type: ignore[attr-defined]
    assert result.summary["extenders"][0]["failed"] == (1 if ignorable else 4)


class Slow:
    simulated_s = 7.0

    def filter(self) -> bool:
        return True

    def bind(self) -> None:
        return None


def test_an_extender_slower_than_its_timeout_times_out(tmp_path: Path) -> None:
    file = config(tmp_path, FILTER | NAMES)
    simple = type("SlowFilter", (), {"filter": Slow.filter, "simulated_s": 7.0})
    result = simulate(small(builders.pod("p")), config=file, extenders=simple)
    assert nodes_of(result) == [""]
    assert result.placements[0].reason == (
        'Post "http://fit/filter": context deadline exceeded '
        "(Client.Timeout exceeded while awaiting headers)"
    )


def test_a_late_binding_counts(tmp_path: Path) -> None:
    """The scheduler gives up after 5 s and reads; after 7 s the pod is bound, once."""
    file = config(tmp_path, {"urlPrefix": "http://bind", "bindVerb": "bind"})
    slow = type("SlowBind", (), {"bind": Slow.bind, "simulated_s": 7.0})
    result = simulate(small(builders.pod("p")), config=file, extenders=slow, replay=AT_ONCE)
    (place,) = result.placements
    assert place.node
    assert place.bound_s == 7  # type: ignore[attr-defined]
    assert result.summary["bindings"] == 1


# Invalid classes.


def refused(kind: Any, tmp_path: Path, *extenders: dict[str, Any]) -> str:
    file = config(tmp_path, *(extenders or (FILTER | NAMES,)))
    with pytest.raises((ContractError, InputError)) as problem:
        simulate(small(builders.pod("p")), config=file, extenders=kind)
    return str(problem.value)


def made(**body: Any) -> type[Any]:
    return type("Mine", (), body)


def raises(self: Any) -> bool:
    raise KeyError("gone")


CASES: Sequence[tuple[dict[str, Any], str]] = [
    (
        {"filter": lambda self, nodes: True},
        "filter(): unknown parameter 'nodes': expected pod, node, po",
    ),
    (
        {"bind": lambda self: None},
        "bind is never called: the configuration has no bindVerb for http://fit",
    ),
    (
        {"filtre": raises, "filter": raises},
        "filtre is never called: the methods of an extender are filter",
    ),
    ({"x": 1}, "no methods: expected at least one of filter, prioritize, preempt, bind"),
    (
        {"filter": raises, "simulated_s": -1},
        "simulated_s: Invalid value: -1: expected seconds >= 0",
    ),
    (
        {"filter": raises, "__init__": lambda self, x: None},
        "the constructor must not have parameters: x",
    ),
    ({"filter": raises, "__init__": raises}, "the constructor raised KeyError: 'gone'"),
    (
        {"filter": raises, "url": "http://fat"},
        "expected an extender of the configuration: http://fit (did",
    ),
]


@pytest.mark.parametrize(("body", "text"), CASES)
def test_a_class_that_cannot_be_used(tmp_path: Path, body: dict[str, Any], text: str) -> None:
    message = refused(made(**body), tmp_path)
    assert message.startswith("extender Mine: ")
    assert text in message
    assert "\n" not in message


@pytest.mark.parametrize("ignorable", [False, True])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            lambda self: 7,
            "filter() for pod 'default/bad' on node 'n0' returned 7: expected True, Fa",
        ),
        (raises, "filter of pod 'default/bad' on node 'n0' raised KeyError: 'gone' (test_ex"),
    ],
)
def test_a_call_that_fails_fails_its_pod_alone(
    tmp_path: Path, answer: Any, text: str, ignorable: bool
) -> None:
    def filter(self: Any, pod: Pod) -> Any:
        return answer(self) if pod.name == "bad" else True

    file = config(tmp_path, FILTER | NAMES | {"ignorable": ignorable})
    pods = [builders.pod(name) for name in ("good", "bad", "worse", "next")]
    result = simulate(small(*pods), config=file, extenders=made(filter=filter))
    good, bad, _, last = result.placements
    assert good.node
    assert last.node
    assert bool(bad.node) is ignorable
    assert ignorable or text in bad.message
    (warning,) = result.summary["warnings"]
    assert warning.startswith("extender Mine: ")
    assert text in warning


def test_two_that_speak_for_one(tmp_path: Path) -> None:
    twin = type("Twin", (First,), {})
    assert "two classes for 'http://fit/': First and Twin: expected one class" in refused(
        [First, twin], tmp_path
    )
    assert "no extender without a class" in refused([Second, Fails], tmp_path)


def test_a_class_without_an_extender_is_an_error() -> None:
    with pytest.raises(InputError, match=r"extender Second: .*it has none"):
        simulate(small(builders.pod("p")), extenders=Second)


def test_a_file_without_a_class(tmp_path: Path) -> None:
    file = tmp_path / "mind.py"
    file.write_text("def filter(pod, node):\n    return True\n")
    with pytest.raises(ContractError, match=r"mind\.py: no extender found: expected a class with"):
        simulate(small(builders.pod("p")), extenders=file)


def test_what_is_neither_class_nor_file() -> None:
    with pytest.raises(ContractError, match="extenders: Invalid value: 7: expected a class"):
        simulate(small(builders.pod("p")), extenders=[7])  # type: ignore[list-item]


# Determinism.


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    asked = {"urlPrefix": "http://fit", "filterVerb": "f", "prioritizeVerb": "p", "weight": 1}
    file = config(tmp_path, asked | NAMES | {"bindVerb": "b"})
    runs = [
        simulate(
            generate_workload(6, 40, 3), config=file, extenders=Second, seed=3, replay=AT_ONCE
        ).files()
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
