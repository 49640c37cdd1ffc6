"""What pods ask for: each way of counting, over the shapes that pods have.

Source: kube-scheduler v1.36: component-helpers resource/helpers.go, framework/types.go,
plugins/noderesources.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_requests import (
    balanced_requests,
    fit_requests,
    fit_score_requests,
    is_extended,
    is_scalar,
    is_tracked,
    nonzero_requested,
    pod_requests,
    requested,
)
from stowplan.objects.quantity import QuantityError, milli_value, value
from tests.property.wrong import caught_at_once

MI = 2**20
GI = 2**30
Amounts = dict[str, Any]


def container(requests: Amounts, name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **more}


def sidecar(requests: Amounts, name: str = "s") -> dict[str, Any]:
    return container(requests, name, restartPolicy="Always")


def make(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    level: Amounts | None = None,
    overhead: Amounts | None = None,
    status: dict[str, Any] | None = None,
) -> Pod:
    spec = {"containers": containers, "initContainers": init, "overhead": overhead}
    spec["resources"] = None if level is None else {"requests": level}
    return convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)


def resized(name: str, running: Amounts | None, allocated: Amounts) -> dict[str, Any]:
    resources = None if running is None else {"requests": running}
    return {"name": name, "resources": resources, "allocatedResources": allocated}


def pending(reason: str) -> dict[str, Any]:
    return {"type": "PodResizePending", "status": "True", "reason": reason}


SPEC_ONLY = [
    ("nothing", make(), {}),
    ("a container without requests", make(container({})), {}),
    (
        "regular containers are added",
        make(container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 1, "x.io/gpu": "2"})),
        {"cpu": 1500, "memory": GI, "x.io/gpu": 2},
    ),
    (
        "they are added before rounding",
        make(container({"cpu": "100u", "memory": "0.1"}), container({"cpu": "0.0001"})),
        {"cpu": 1, "memory": 1},
    ),
    (
        "the largest init container counts if it is more",
        make(
            container({"cpu": "300m", "memory": "1Gi"}),
            init=[container({"cpu": "200m", "memory": "2Gi"}), container({"cpu": "400m"})],
        ),
        {"cpu": 400, "memory": 2 * GI},
    ),
    (
        "a sidecar stays beside the regular containers",
        make(container({"cpu": "300m"}), init=[sidecar({"cpu": "200m", "memory": "64Mi"})]),
        {"cpu": 500, "memory": 64 * MI},
    ),
    (
        "an init container runs beside the sidecars before it, not those after it",
        make(
            container({"cpu": "100m"}),
            init=[
                container({"cpu": "900m"}, "i1"),
                sidecar({"cpu": "200m"}, "s1"),
                container({"cpu": "800m"}, "i2"),
                sidecar({"cpu": "50m"}, "s2"),
            ],
        ),
        {"cpu": 1000},
    ),
    (
        "overhead is added to all, also where nothing else is named",
        make(
            container({"cpu": "100m"}),
            init=[container({"cpu": "2"})],
            overhead={"cpu": "250m", "memory": "120Mi"},
        ),
        {"cpu": 2250, "memory": 120 * MI},
    ),
    (
        "the pod level replaces what it names of cpu, memory and huge pages",
        make(
            container({"cpu": "3", "memory": "1Gi", "hugepages-2Mi": "4Mi", "x.io/gpu": 1}),
            level={"cpu": "1", "hugepages-2Mi": "2Mi", "x.io/gpu": 5, "ephemeral-storage": "1"},
            overhead={"cpu": "100m"},
        ),
        {"cpu": 1100, "memory": GI, "hugepages-2Mi": 2 * MI, "x.io/gpu": 1},
    ),
    (
        "status does not count",
        make(
            container({"cpu": "1"}),
            status={"containerStatuses": [resized("c", {"cpu": "4"}, {"cpu": "5"})]},
        ),
        {"cpu": 1000},
    ),
    (
        "amounts beyond int64 are added as the original does",
        make(container({"memory": "9Ei"}), container({"memory": "1"})),
        {"memory": -(2**63)},
    ),
    ("the int64 form answers 0 beyond int64", make(container({"memory": "10E"})), {"memory": 0}),
    ("the sum alone is too much", make(*[container({"x.io/y": "5E"})] * 2), {"x.io/y": 0}),
    (
        "negative amounts",
        make(container({"cpu": "-100m"}), init=[container({"cpu": "-200m", "memory": "-1"})]),
        {"cpu": -100, "memory": -1},
    ),
    (
        "sidecars alone are a phase, too",
        make(container({"cpu": "-100m"}), init=[sidecar({"cpu": "200m"})]),
        {"cpu": 200},
    ),
]


@pytest.mark.parametrize(
    ("pod", "amounts"), [c[1:] for c in SPEC_ONLY], ids=[c[0] for c in SPEC_ONLY]
)
def test_requests_of_the_spec(pod: Pod, amounts: dict[str, int]) -> None:
    assert pod_requests(pod, use_status=False) == amounts


IN_PLACE = [
    (
        "the greatest of asked, running and allocated",
        make(
            container({"cpu": "100m", "memory": "1Gi"}),
            status={
                "containerStatuses": [
                    resized("c", {"cpu": "300m"}, {"memory": "2Gi", "cpu": "200m", "x.io/gpu": 1})
                ]
            },
        ),
        {"cpu": 300, "memory": 2 * GI, "x.io/gpu": 1},
    ),
    (
        "a status without resources does not count",
        make(
            container({"cpu": "100m"}),
            status={"containerStatuses": [resized("c", None, {"cpu": "2"})]},
        ),
        {"cpu": 100},
    ),
    (
        "a status of another container does not count",
        make(
            container({"cpu": "100m"}),
            status={"containerStatuses": [resized("other", {"cpu": "2"}, {})]},
        ),
        {"cpu": 100},
    ),
    (
        "reports go by name, wherever they stand",
        make(
            container({"cpu": "100m"}),
            status={"initContainerStatuses": [resized("c", {"cpu": "2"}, {})]},
        ),
        {"cpu": 2000},
    ),
    (
        "what is asked for does not count once found infeasible",
        make(
            container({"cpu": "8", "memory": "1Gi"}),
            status={
                "containerStatuses": [resized("c", {"cpu": "300m"}, {"cpu": "400m"})],
                "conditions": [pending("Infeasible"), pending("Deferred")],
            },
        ),
        {"cpu": 400},
    ),
    (
        "only the first condition of the kind is looked at",
        make(
            container({"cpu": "8"}),
            status={
                "containerStatuses": [resized("c", {"cpu": "300m"}, {})],
                "conditions": [{"type": "Ready"}, pending("Deferred"), pending("Infeasible")],
            },
        ),
        {"cpu": 8000},
    ),
    (
        "of init containers only sidecars are resized",
        make(
            container({"cpu": "100m"}),
            init=[sidecar({"cpu": "100m"}), container({"cpu": "150m"}, "i")],
            status={
                "initContainerStatuses": [
                    resized("s", {"cpu": "300m"}, {}),
                    resized("i", {"cpu": "9"}, {}),
                ]
            },
        ),
        {"cpu": 450},
    ),
    (
        "the pod level is resized as a whole",
        make(
            container({"cpu": "100m"}),
            level={"cpu": "1", "memory": "1Gi"},
            overhead={"cpu": "50m"},
            status={
                "resources": {"requests": {"cpu": "2"}},
                "allocatedResources": {"memory": "2Gi", "hugepages-2Mi": "2Mi"},
            },
        ),
        {"cpu": 2050, "memory": 2 * GI},
    ),
    (
        "without a status of the pod level its request counts",
        make(container({}), level={"cpu": "1"}, status={"allocatedResources": {"cpu": "3"}}),
        {"cpu": 1000},
    ),
    (
        "an infeasible pod level that nothing is reported of counts as nothing",
        make(
            container({"memory": "1Gi"}),
            level={"cpu": "1", "memory": "4Gi"},
            status={"resources": {"requests": {"cpu": "2"}}, "conditions": [pending("Infeasible")]},
        ),
        {"cpu": 2000, "memory": 0},
    ),
]


@pytest.mark.parametrize(
    ("pod", "amounts"), [c[1:] for c in IN_PLACE], ids=[c[0] for c in IN_PLACE]
)
def test_requests_while_resized(pod: Pod, amounts: dict[str, int]) -> None:
    assert pod_requests(pod, use_status=True) == amounts


def test_defaults_fill_what_a_container_does_not_name() -> None:
    pod = make(
        container({"cpu": "0"}),
        container({"memory": "1Gi"}),
        init=[sidecar({}), container({"cpu": "1"}, "i")],
    )
    defaults = {"cpu": 100, "memory": 5}
    assert pod_requests(pod, use_status=False, defaults=defaults) == {
        "cpu": 1100,
        "memory": GI + 10,
    }


def test_defaults_fill_beyond_int64_too() -> None:
    pod = make(container({"x.io/gpu": "-1"}), container({"cpu": "1"}))
    amounts = pod_requests(pod, use_status=False, defaults={"cpu": 100, "memory": 5})
    assert amounts == {"x.io/gpu": -1, "cpu": 1100, "memory": 10}


NONZERO = [
    ("no requests", make(container({}), container({})), (200, 400 * MI)),
    ("an explicit zero", make(container({"cpu": "0", "memory": "0"})), (0, 0)),
    ("one of two", make(container({"cpu": "1"})), (1000, 200 * MI)),
    ("no containers", make(), (0, 0)),
    (
        "init containers too",
        make(container({"cpu": "50m", "memory": "1Gi"}), init=[container({"cpu": "10m"})]),
        (50, GI),
    ),
    (
        "pod level names both",
        make(container({}), level={"cpu": "1", "memory": "1Gi"}),
        (1000, GI),
    ),
    (
        "pod level names one",
        make(container({}), container({}), level={"cpu": "1"}),
        (1000, 400 * MI),
    ),
    (
        "pod level names one, a container the other",
        make(container({"memory": "1Gi"}), container({}), level={"cpu": "1"}),
        (1000, GI),
    ),
    (
        "pod level names one, the overhead the other",
        make(container({}), level={"cpu": "1"}, overhead={"memory": "64Mi"}),
        (1000, 64 * MI),
    ),
    (
        "a pod level without supported resources is none",
        make(container({"memory": "1Gi"}), container({}), level={"x.io/gpu": 1}),
        (200, GI + 200 * MI),
    ),
    (
        "resized",
        make(
            container({"cpu": "100m"}),
            status={"containerStatuses": [resized("c", {"cpu": "1", "memory": "1Gi"}, {})]},
        ),
        (1000, GI),
    ),
]


@pytest.mark.parametrize(("pod", "amounts"), [c[1:] for c in NONZERO], ids=[c[0] for c in NONZERO])
def test_nonzero_requested(pod: Pod, amounts: tuple[int, int]) -> None:
    assert nonzero_requested(pod) == amounts


def test_each_rule_counts_in_its_own_way() -> None:
    pod = make(
        container({"cpu": "100m", "unknown": 7, "pods": 3, "x.io/gpu": 0, "x.io/bad": "-2"}),
        level={"cpu": "1"},
        overhead={"memory": "1Mi"},
        status={"containerStatuses": [resized("c", {"x.io/gpu": 2}, {})]},
    )
    tracked = {"cpu": 1000, "memory": MI, "x.io/gpu": 0}
    plain = {**tracked, "unknown": 7, "pods": 3, "x.io/bad": -2}
    assert fit_requests(pod) == {**tracked, "x.io/bad": 0}
    assert requested(pod) == {**tracked, "x.io/gpu": 2, "x.io/bad": -2}
    assert balanced_requests(pod) == {**plain, "x.io/gpu": 2}
    assert fit_score_requests(pod) == {**plain, "cpu": 100, "memory": 201 * MI}


BALANCED = [
    # The original adds the overhead to the pod itself: in two PreFilters, then once for each
    # resource that is scored before this one or is this one.
    ("decimal form", {"memory": "1.5Gi"}, ("cpu", "memory"), 1536 + 4 * 64),
    ("its place in the list counts", {"memory": "1.5Gi"}, ("memory", "cpu"), 1536 + 3 * 64),
    ("not scored, not changed", {"memory": "1.5Gi"}, ("cpu",), 1536 + 64),
    ("int64 form", {"memory": "1536Mi"}, ("cpu", "memory"), 1536 + 64),
    ("not at pod level", {"cpu": "1"}, ("cpu", "memory"), 1024 + 64),
]


@pytest.mark.parametrize(
    ("level", "resources", "memory_mi"), [c[1:] for c in BALANCED], ids=[c[0] for c in BALANCED]
)
def test_overhead_that_sticks_to_the_pod(
    level: Amounts, resources: tuple[str, ...], memory_mi: int
) -> None:
    pod = make(container({"memory": "1Gi"}), level=level, overhead={"memory": "64Mi"})
    assert balanced_requests(pod, resources)["memory"] == memory_mi * MI
    assert requested(pod)["memory"] <= 1600 * MI


@pytest.mark.parametrize("scored", [("cpu", "memory"), ("memory", "cpu")])
def test_overhead_sticks_less_while_resized(scored: tuple[str, ...]) -> None:
    pod = make(
        level={"memory": "1.5Gi"},
        overhead={"memory": "64Mi"},
        status={"resources": {"requests": {"memory": "1Gi"}}},
    )
    assert balanced_requests(pod, scored) == {"memory": (1536 + 3 * 64) * MI}


def test_a_malformed_amount_is_named() -> None:
    for pod in (
        make(container({"cpu": "1x"})),
        make(container({"memory": "-1"}), container({"cpu": "1x"})),
        make(container({}), overhead={"cpu": "1x"}),
    ):
        for count in (fit_requests, requested, nonzero_requested, fit_score_requests):
            with pytest.raises(QuantityError, match="quantity '1x'"):
                count(pod)


NAMES = [
    # name, counted by name, extended
    ("nvidia.com/gpu", True, True),
    ("example.com/a_b.c", True, True),
    ("hugepages-2Mi", True, False),
    ("hugepages-", True, False),
    ("attachable-volumes-aws-ebs", True, False),
    ("kubernetes.io/batch-cpu", True, False),
    ("sub.kubernetes.io/x/y", True, False),
    ("deviceclass.resource.kubernetes.io/gpu", True, False),
    ("requests.example.com/gpu", False, False),
    ("Example.com/gpu", False, False),
    ("example.com/", False, False),
    ("/gpu", False, False),
    ("a/b/c", False, False),
    ("example.com/" + "x" * 64, False, False),
    # with `requests.` before it the domain is one byte too long
    ("a" * 245 + "/x", False, False),
    ("a" * 244 + "/x", True, True),
    ("gpu", False, False),
    ("pods", False, False),
    ("cpu", False, False),
]


@pytest.mark.parametrize(("name", "scalar", "extended"), NAMES)
def test_names_of_resources(name: str, scalar: bool, extended: bool) -> None:
    assert (is_scalar(name), is_extended(name)) == (scalar, extended)
    assert is_tracked(name) is (scalar or name == "cpu")


def test_tracked_beside_the_scalars() -> None:
    assert [
        n for n in ("cpu", "memory", "ephemeral-storage", "storage", "pods") if is_tracked(n)
    ] == [
        "cpu",
        "memory",
        "ephemeral-storage",
    ]


# The same question asked of every phase of the pod's life.

resources = st.sampled_from(["cpu", "memory", "x.io/gpu"])
modest = st.dictionaries(resources, st.sampled_from(["0", "100u", "0.0003", "100m", "1234567n"]))
# Starting must often need more than running does, or it would not show.
greedy = st.dictionaries(resources, st.sampled_from(["7m", "100m", "1", "2.5", "1e-1"]))
pods = st.builds(
    lambda regular, init, overhead: make(
        *[container(r) for r in regular],
        init=[sidecar(r) if stays else container(r) for stays, r in init],
        overhead=overhead,
    ),
    st.lists(modest, min_size=1, max_size=3),
    st.lists(st.tuples(st.booleans(), greedy), max_size=4),
    modest,
)
EXACT = {q: Fraction(q) for q in ["0", "0.0003", "1", "2.5", "1e-1"]} | {
    "100u": Fraction(1, 10**4),
    "7m": Fraction(7, 1000),
    "100m": Fraction(1, 10),
    "1234567n": Fraction(1234567, 10**9),
}


def phases(pod: Pod) -> list[list[dict[str, Any]]]:
    """Who runs together, from the first init container to the regular ones."""
    found, beside = [], []
    for c in pod.spec.init_containers:
        found.append([*beside, c.resources.requests])
        if c.is_sidecar:
            beside.append(c.resources.requests)
    return [*found, [*beside, *(c.resources.requests for c in pod.spec.containers)]]


def by_phase(pod: Pod) -> dict[str, int]:
    names = {name for running in phases(pod) for r in running for name in r} | {*pod.spec.overhead}
    answer = {}
    for name in names:
        peak = max(sum(EXACT[r[name]] for r in running if name in r) for running in phases(pod))
        total = peak + EXACT[pod.spec.overhead.get(name, "0")]
        answer[name] = math.ceil(total * 1000) if name == "cpu" else math.ceil(total)
    return answer


def check_phases(count: Callable[[Pod], dict[str, int]]) -> None:
    @given(pods)
    def agrees(pod: Pod) -> None:
        assert count(pod) == by_phase(pod)

    agrees()


def test_a_pod_asks_for_what_its_greediest_phase_needs() -> None:
    check_phases(lambda pod: pod_requests(pod, use_status=False))


def test_control_sidecars_beside_the_regular_containers_only() -> None:
    def forgetful(pod: Pod) -> dict[str, int]:
        alone = [c for c in pod.spec.init_containers if not c.is_sidecar]
        sidecars = [c for c in pod.spec.init_containers if c.is_sidecar]
        spec = PodSpec(
            containers=(*pod.spec.containers, *sidecars),
            init_containers=tuple(alone),
            overhead=pod.spec.overhead,
        )
        return pod_requests(Pod(spec=spec), use_status=False)

    with caught_at_once():
        check_phases(forgetful)


def test_control_rounding_each_container() -> None:
    def hasty(pod: Pod) -> dict[str, int]:
        if pod.spec.init_containers or pod.spec.overhead:
            return by_phase(pod)
        answer: dict[str, int] = {}
        for c in pod.spec.containers:
            for name, q in c.resources.requests.items():
                n = milli_value(q) if name == "cpu" else value(q)
                answer[name] = answer.get(name, 0) + n
        return answer

    with caught_at_once():
        check_phases(hasty)
