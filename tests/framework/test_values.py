"""The values of the contract: statuses, cycle state, problems, gates, nominations, the world."""

import pytest

from stowplan.framework import (
    OK,
    SKIP,
    Code,
    ConfigError,
    CycleState,
    FeatureGates,
    Nominations,
    ObjectStore,
    Problem,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.object_store import key_of
from stowplan.framework.problems import did_you_mean
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.storage import StorageClass
from stowplan.objects.workload import Namespace, Service
from stowplan.testing import pod
from tests.framework.stage import snapshot

# Status.


def test_kinds_of_answer() -> None:
    assert [code.title for code in Code] == [
        "Success",
        "Error",
        "Unschedulable",
        "UnschedulableAndUnresolvable",
        "Wait",
        "Skip",
        "Pending",
    ]
    assert [code.title for code in Code if Status(code).is_rejected] == [
        "Unschedulable",
        "UnschedulableAndUnresolvable",
        "Pending",
    ]
    assert [Status(code).is_success for code in Code] == [True] + [False] * 6
    assert SKIP.is_skip
    assert not OK.is_skip


def test_reasons_are_joined() -> None:
    assert unschedulable("a", "b").message == "a, b"
    assert OK.message == ""


def test_the_first_name_stays() -> None:
    assert error("x").by("A").by("B") == Status(Code.ERROR, ("x",), "A")
    assert unresolvable("x") == unresolvable("x")
    assert unresolvable("x") != unresolvable("x").by("A")


# CycleState.


class Counter:
    def __init__(self, count: int = 0) -> None:
        self.count = count

    def clone(self) -> "Counter":
        return Counter(self.count)


def test_what_was_written_is_read() -> None:
    state = CycleState()
    state.write("A", 7)
    assert state.read("A", int) == 7
    assert state.find("A") == 7
    assert state.find("B") is None
    with pytest.raises(LookupError, match=r"cycle state has no 'B'; it has \['A'\]"):
        state.read("B", int)
    with pytest.raises(TypeError, match="cycle state 'A' is a int; expected str"):
        state.read("A", str)


def test_a_clone_goes_its_own_way() -> None:
    state, shared = CycleState(), [1]
    state.write("counter", Counter())
    state.write("shared", shared)
    state.skip_filter.add("A")
    clone = state.clone()
    clone.read("counter", Counter).count += 1
    clone.write("new", 1)
    clone.skip_filter.add("B")
    clone.skip_score.add("B")
    assert state.read("counter", Counter).count == 0
    assert clone.read("shared", list) is shared
    assert state.find("new") is None
    assert (state.skip_filter, state.skip_score) == ({"A"}, set())
    assert clone.skip_filter == {"A", "B"}


# Problems.


def test_every_problem_is_reported_with_its_source() -> None:
    problems = [
        Problem("profiles[0].name", "'x'", "a name", "did you mean 'y'?"),
        Problem("kind", "", "KubeSchedulerConfiguration"),
    ]
    failure = ConfigError("c.yaml", problems)
    assert str(failure) == (
        "c.yaml: profiles[0].name: Invalid value: 'x': expected a name (did you mean 'y'?)\n"
        "c.yaml: kind: expected KubeSchedulerConfiguration"
    )
    assert failure.problems == tuple(problems)


@pytest.mark.parametrize(
    ("got", "hint"),
    [
        ("nodename", "did you mean 'NodeName'?"),
        ("NodeNam", "did you mean 'NodeName'?"),
        ("Banana", ""),
    ],
)
def test_a_guess(got: str, hint: str) -> None:
    assert did_you_mean(got, ["NodePorts", "NodeName"]) == hint


# Gates.


def test_gates_are_set_by_name() -> None:
    gates = FeatureGates.of({"NodeDeclaredFeatures": False, "DRAExtendedResource": False})
    assert (gates.node_declared_features, gates.dra_extended_resource) == (False, False)
    assert FeatureGates.of({}) == FeatureGates()


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        FeatureGates.of({"nodeDeclaredFeatures": True, "Warp": True}, "flags")
    first, second = caught.value.problems
    assert (first.path, first.hint) == (
        "nodeDeclaredFeatures",
        "did you mean 'NodeDeclaredFeatures'?",
    )
    assert str(caught.value).startswith("flags: nodeDeclaredFeatures: Unknown gate: expected ")
    assert second.path == "Warp"


# Nominations and the world.


def names(nominations: Nominations, node: str) -> str:
    return " ".join(info.pod.name for info in nominations.on(node))


def test_nominations_are_kept_by_node() -> None:
    nominations = Nominations([pod("a", nominated="n1"), pod("b", nominated="n1")])
    nominations.add(pod("c"), "n2")
    assert (names(nominations, "n1"), names(nominations, "n2")) == ("a b", "c")
    assert nominations.node_of("default/a") == "n1"
    nominations.add(pod("a"), "n2")
    assert (names(nominations, "n1"), names(nominations, "n2")) == ("b", "c a")
    nominations.drop("default/b")
    nominations.drop("default/b")
    assert nominations.nodes() == ("n2",)
    assert nominations.node_of("default/b") == ""


def test_the_object_store_is_read_by_kind_and_key() -> None:
    meta = ObjectMeta(name="x", namespace="prod")
    service, klass = Service(metadata=meta), StorageClass(metadata=ObjectMeta(name="x"))
    object_store = ObjectStore([service, klass])
    assert (key_of(service), key_of(klass)) == ("prod/x", "x")
    assert object_store.find(Service, "prod/x") is service
    assert object_store.find(StorageClass, "x") is klass
    assert object_store.find(Service, "x") is None
    assert object_store.find(Namespace, "x") is None
    assert list(object_store.all(Service)) == [service]


def test_every_change_of_the_object_store_is_a_new_version() -> None:
    object_store = ObjectStore()
    versions = [object_store.version]
    for name in "abb":
        object_store.put(
            Namespace(metadata=ObjectMeta(name=name, labels={"n": str(len(versions))}))
        )
        versions.append(object_store.version)
    object_store.drop(Namespace, "a")
    versions.append(object_store.version)
    assert len(set(versions)) == len(versions)
    assert [(n.name, n.labels) for n in object_store.all(Namespace)] == [("b", {"n": "3"})]
    with pytest.raises(KeyError):
        object_store.drop(Namespace, "a")


def test_a_snapshot_of_nodes_alone() -> None:
    empty = Snapshot(snapshot().nodes)
    assert list(empty.object_store.all(Namespace)) == []
    assert empty.nominations.nodes() == ()
