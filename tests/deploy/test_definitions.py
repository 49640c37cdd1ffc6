"""The shipped CRDs of PodGroup and Queue in the embedded API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.apiserver.server import ApiServer
from stowplan.objects.podgroup import GROUP_API_VERSIONS
from tests.apiserver.test_definitions import DEFINITIONS, exchange, post, server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "batch.md").read_text()

Tree = dict[str, Any]
SPECS: dict[str, Tree] = {
    "PodGroup": {
        "minMember": 2,
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": 4, "memory": "8Gi"},
    },
    "Queue": {"weight": 3, "capability": {"cpu": 8, "nvidia.com/gpu": "2"}, "reclaimable": False},
}


@pytest.fixture(scope="module")
def defined() -> ApiServer:
    made = server()
    for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        for tree in yaml.safe_load_all(file.read_text()):
            post(made, DEFINITIONS, tree)
    return made


def created(made: ApiServer, tree: Tree) -> tuple[int, Any]:
    scope = "/namespaces/default" if tree["kind"] == "PodGroup" else ""
    path = f"/apis/{tree['apiVersion']}{scope}/{tree['kind'].lower()}s?fieldValidation=Strict"
    return exchange(made, "POST", path, tree)


@pytest.mark.parametrize("version", GROUP_API_VERSIONS)
@pytest.mark.parametrize("kind", SPECS)
def test_objects_of_every_group_are_stored_unchanged(
    defined: ApiServer, version: str, kind: str
) -> None:
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": SPECS[kind]}
    status, answer = created(defined, tree)
    assert (status, answer["spec"]) == (201, SPECS[kind])
    wrong = {**tree, "metadata": {"name": "b"}, "spec": {**SPECS[kind], "wieght": 1}}
    # Of Volcano's fields those that are not read are kept, so none is unknown.
    assert created(defined, wrong)[0] == (201 if "volcano" in version else 400)


def test_the_objects_of_the_docs_are_accepted(defined: ApiServer) -> None:
    trees = [
        tree
        for block in re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
        for tree in yaml.safe_load_all(block)
        if tree.get("kind") in SPECS
    ]
    assert len(trees) >= 4
    for tree in trees:
        status, answer = created(defined, tree)
        assert (status, answer.get("spec")) == (201, tree["spec"]), answer
