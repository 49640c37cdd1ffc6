"""The smallest changes for a pod whose claims no node serves: of its claims, and of devices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from stowplan.assembly.deciders import deciders_of
from stowplan.forecast.explain import explain, explain_changes
from stowplan.web.serving.cluster_questions import ClusterQuestions, ObjectsAtOnce
from tests.insight.claim_manifests import (
    CLASS,
    DRIVER,
    POD,
    Tree,
    can_run,
    card,
    claim,
    held,
    node,
    pod,
    read,
    request,
    selected_by,
    slices,
)
from tests.insight.json_patch import applied

TAINT = {"key": "old", "value": "yes", "effect": "NoSchedule"}
BIG = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("90Gi")) >= 0'
SLICES = {"counterSet": "card", "counters": {"slices": {"value": "2"}}}
PARTS = [card(f"part-{i}", "10Gi", consumesCounters=[SLICES]) for i in range(4)]
COUNTERS = ({"name": "card", "counters": {"slices": {"value": "5"}}},)

CASES: dict[str, tuple[list[Tree], dict[str, tuple[int, str]]]] = {
    "fewer devices, or more of them": (
        [node("n1"), *slices("n1", card("g0"), card("g1")), claim(request(count=3))],
        {
            "device-count": (34, "lower the count of request r of claim c from 3 to 2"),
            "add-device": (500, "add one device like g0 to node n1"),
        },
    ),
    "a taint of all devices": (
        [node("n1"), *slices("n1", card("g0", taints=[TAINT])), claim(request())],
        {
            "device-toleration": (
                10,
                "add a toleration for device taint old=yes:NoSchedule to request r of claim c",
            ),
            "device-taint": (20, "remove taint old=yes:NoSchedule from device g0 of node n1"),
        },
    ),
    # Devices are numbered by what selectors read of them: the changed ones as those of the cluster.
    "a taint, beside a node with other devices": (
        [
            node("n1"), *slices("n1", card("g0", model="A100")),
            node("n2"), *slices("n2", card("g0", taints=[TAINT])),
            claim(request(selectors=selected_by(f'device.attributes["{DRIVER}"].model == "H100"'))),
        ],
        {
            "device-toleration": (
                10,
                "add a toleration for device taint old=yes:NoSchedule to request r of claim c",
            ),
            "device-selector": (
                20,
                f'drop the selector device.attributes["{DRIVER}"].model == "H100" of request r of '
                "claim c",
            ),
            "device-taint": (20, "remove taint old=yes:NoSchedule from device g0 of node n2"),
        },
    ),
    "a selector": (
        [node("n1"), *slices("n1", card("g0")), claim(request(selectors=selected_by("true", BIG)))],
        {"device-selector": (20, f"drop the selector {BIG} of request r of claim c")},
    ),
    "a constraint": (
        [
            node("n1"), *slices("n1", card("g0"), card("g1", model="A100")),
            claim(request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/model"}]),
        ],
        {
            "device-constraint": (20, f"drop the constraint on {DRIVER}/model of claim c"),
            "device-count": (50, "lower the count of request r of claim c from 2 to 1"),
            "add-device": (500, "add one device like g0 to node n1"),
        },
    ),
    "an amount of a capacity": (
        [
            node("n1"), node("n2"), *slices("n1", card("g0", "40Gi")), *slices("n2", card("g0")),
            claim(request(capacity={"requests": {"memory": "100Gi"}})),
        ],
        {
            "device-capacity": (
                20, "lower capacity memory of request r of claim c from 100Gi to 80Gi"
            ),
        },
    ),
    "a capacity that others share": (
        [
            node("n1"), *slices("n1", card("g0", allowMultipleAllocations=True)),
            held("a", "n1", "g0", memory="50Gi"),
            claim(request(capacity={"requests": {"memory": "40Gi"}})),
        ],
        {
            "device-capacity": (
                25, "lower capacity memory of request r of claim c from 40Gi to 30Gi"
            ),
            "add-device": (500, "add one device like g0 to node n1"),
            "add-node": (1000, "add one node of pool cpu=8,memory=16Gi,pods=110"),
        },
    ),
    "a counter": (
        [node("n1"), *slices("n1", *PARTS, counters=COUNTERS), claim(request(count=3))],
        {
            "counter": (20, "raise counter card/slices of node n1 from 5 to 6"),
            "device-count": (34, "lower the count of request r of claim c from 3 to 2"),
        },
    ),
    "devices in use": (
        [
            node("n1"), *slices("n1", card("g0"), card("g1")), held("a", "n1", "g1"),
            claim(request(count=2)),
        ],
        {
            "device-count": (50, "lower the count of request r of claim c from 2 to 1"),
            "add-device": (500, "add one device like g0 to node n1"),
            "add-node": (1000, "add one node of pool cpu=8,memory=16Gi,pods=110"),
        },
    ),
    "an alternative": (
        [
            node("n1"), *slices("n1", card("g0")),
            claim({
                "name": "r",
                "firstAvailable": [
                    {"name": "two", "deviceClassName": "gpu", "count": 4},
                    {"name": "big", "deviceClassName": "gpu", "selectors": selected_by(BIG)},
                ],
            }),
        ],
        {
            "device-selector": (20, f"drop the selector {BIG} of request r/big of claim c"),
            "device-count": (75, "lower the count of request r/two of claim c from 4 to 1"),
            "add-device": (1500, "add 3 devices like g0 to node n1"),
        },
    ),
    "beside a rule of nodes": (
        [
            node("n1", ({"key": "team", "value": "x", "effect": "NoSchedule"},)),
            *slices("n1", card("g0")), claim(request(count=2)),
        ],
        {
            "combined": (
                60,
                "add a toleration for taint team=x:NoSchedule and lower the count of request r of "
                "claim c from 2 to 1",
            ),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_changes_of_claims_and_devices(name: str, tmp_path: Path) -> None:
    manifests, expected = CASES[name]
    manifests = [CLASS, *manifests, pod()]
    found = explain_changes(POD, read(manifests, tmp_path))
    assert {one.kind: (one.cost, one.text) for one in found.changes} == expected
    for change in found.changes:
        after = applied(manifests, msgspec.to_builtins(change.objects))
        assert can_run(after, tmp_path), change.text


def test_a_claim_from_a_template_is_changed_with_its_template(tmp_path: Path) -> None:
    made = claim(request(count=2), name="w-gpu")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "w", "uid": "w", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    asking = pod()
    use = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
    asking["spec"]["resourceClaims"] = [use]
    status = {"name": "gpu", "resourceClaimName": "w-gpu"}
    asking["status"] = {"resourceClaimStatuses": [status]}
    template = claim(request(count=2), name="gpus") | {"kind": "ResourceClaimTemplate"}
    template["spec"] = {"spec": template["spec"]}
    manifests = [CLASS, node("n1"), *slices("n1", card("g0")), made, template, asking]
    change = explain_changes(POD, read(manifests, tmp_path)).changes[0]
    assert [(one.kind, one.name) for one in change.objects] == [
        ("ResourceClaim", "w-gpu"),
        ("ResourceClaimTemplate", "gpus"),
    ]
    after = applied(manifests, msgspec.to_builtins(change.objects))
    assert can_run(after, tmp_path)
    (changed,) = (one for one in after if one["kind"] == "ResourceClaimTemplate")
    assert changed["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_a_pod_with_a_claim_of_a_file_is_explained(tmp_path: Path) -> None:
    """PreEnqueue saw no objects: the claim was said not to exist."""
    manifests = [CLASS, node("n1"), *slices("n1", card("g0")), claim(request(count=2)), pod()]
    found = explain(POD, read(manifests, tmp_path), compare_max=-1)
    assert found.state == "pending"
    assert found.nodes[0].first is not None
    assert found.nodes[0].first.details == (
        "claim c, request r: need 2 of class gpu, have 1 of 1; enough with count 1",
    )


def test_the_page_explains_a_pod_with_a_claim(tmp_path: Path) -> None:
    manifests = [CLASS, node("n1"), *slices("n1", card("g0")), claim(request(count=2)), pod()]
    cluster = read(manifests, tmp_path)
    at_once = ObjectsAtOnce(list(cluster.nodes), list(cluster.pods), list(cluster.objects))
    tree = asyncio.run(ClusterQuestions(deciders_of([])).why(POD, at_once))
    assert [one["kind"] for one in tree["changes"]] == ["device-count", "add-device"]


def test_the_first_of_nodes_that_answer_alike_stands_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stowplan.insight.changes.claim_problems.NODES_MAX", 1)
    nodes = [one for n in ("n1", "n2", "n3") for one in (node(n), *slices(n, card("g0")))]
    found = explain_changes(POD, read([CLASS, *nodes, claim(request(count=2)), pod()], tmp_path))
    assert found.not_searched == ()
    assert {one.kind: one.text for one in found.changes} == {
        "device-count": "lower the count of request r of claim c from 2 to 1",
        "add-device": "add one device like g0 to node n1",
    }


def test_devices_of_nodes_that_were_left_out_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stowplan.insight.changes.claim_problems.NODES_MAX", 1)
    cards = {"n1": card("g0"), "n2": card("g0", "40Gi"), "n3": card("g0", "20Gi")}
    nodes = [one for n, device in cards.items() for one in (node(n), *slices(n, device))]
    found = explain_changes(POD, read([CLASS, *nodes, claim(request(count=2)), pod()], tmp_path))
    assert "changes of claims for, and of devices of, 2 nodes" in found.not_searched
