"""NodeDeclaredFeatures: what pods need, and nodes that declare it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.node_declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    NodeDeclaredFeatures,
    required_features,
)
from tests.plugins.clusters import Walks, cases, container, is_caught, node, pod, table

RESTARTING = {**container(), "restartPolicyRules": [{"action": "RestartAllContainers"}]}
PRIVATE = {"hostNetwork": True, "hostUsers": False}
REFUSED = f"UnschedulableAndUnresolvable: {NodeDeclaredFeatures.REJECTED.message}"


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({}, ()),
        ({"containers": [RESTARTING]}, (RESTART_ALL_CONTAINERS,)),
        ({"initContainers": [RESTARTING]}, (RESTART_ALL_CONTAINERS,)),
        ({"containers": [{"restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        (PRIVATE, (USER_NAMESPACES_HOST_NETWORK,)),
        ({"hostNetwork": True}, ()),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostUsers": False}, ()),
        (
            {"containers": [RESTARTING], **PRIVATE},
            (RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK),
        ),
    ],
)
def test_requirements(spec: dict[str, Any], features: tuple[str, ...]) -> None:
    assert required_features(pod(**spec).spec) == features


NODES = table(
    [
        node("old"),
        node("half", features=f"Other {RESTART_ALL_CONTAINERS}"),
        node("full", features=f"{USER_NAMESPACES_HOST_NETWORK} {RESTART_ALL_CONTAINERS}"),
    ]
)


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({}, ""),
        ({"containers": [RESTARTING]}, "old"),
        ({"containers": [RESTARTING], **PRIVATE}, "old half"),
    ],
)
def test_every_feature_must_be_declared(spec: dict[str, Any], refused: str) -> None:
    found = Walks(NodeDeclaredFeatures).refusals(pod(**spec), NODES)
    assert found == dict.fromkeys(refused.split(), REFUSED)


def test_the_gate_turns_it_off() -> None:
    walks = Walks(NodeDeclaredFeatures, node_declared_features=False)
    assert not walks.refusals(pod(**PRIVATE), NODES)


@given(cases("features"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodeDeclaredFeatures).agree(*case)


class AnyWillDo(NodeDeclaredFeatures):
    """Wrong: one of the features is enough in the column walk."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        wanted = self.required(pod)
        return nodes.features.count_where(lambda f: f in wanted, rows) > 0


def test_any_feature_is_caught() -> None:
    assert is_caught(AnyWillDo, "features")
