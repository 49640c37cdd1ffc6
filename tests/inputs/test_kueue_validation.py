"""Objects of Kueue in files: each mistake once, with the file, the object and the field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError

Tree = dict[str, Any]

QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}


def queue(version: str = "v1beta2", more: Tree | None = None, **amounts: Any) -> Tree:
    """A ClusterQueue with a quota of cpu. more: other fields of its spec."""
    flavor = {"name": "f", "resources": [{"name": "cpu", **amounts}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    return kueue("ClusterQueue", {"resourceGroups": groups, **(more or {})}, version)


def kueue(kind: str, spec: Tree, version: str = "v1beta2") -> Tree:
    head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind}
    return {**head, "metadata": {"name": "x"}, "spec": spec}


def errors(tmp_path: Path, tree: Tree, validate: str = "auto") -> list[str]:
    """Errors of an object, without the file, whose name they all begin with."""
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump_all([NODE, tree]))
    try:
        read_cluster([file], validate=validate)
    except InputError as problem:
        lines = str(problem).splitlines()
        assert all(line.startswith(f"{file}: document 2, line ") for line in lines)
        return [line.split(": ", 2)[2] for line in lines]
    return []


@pytest.mark.parametrize("validate", ["auto", "strict"])
@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            queue(nominalQota=4),
            f'ClusterQueue x: unknown field "{QUOTA}.nominalQota" (did you mean "nominalQuota"?)',
        ),
        (
            queue(nominalQuota=-4),
            f'ClusterQueue x: {QUOTA}.nominalQuota: Invalid value: "-4": '
            "must be greater than or equal to 0",
        ),
        (
            queue("v1beta1", nominalQuota="four"),
            f"ClusterQueue x: {QUOTA}.nominalQuota: Invalid value: 'four': expected a quantity: a "
            "decimal number, with or without one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi "
            "Ei, or an exponent such as e3",
        ),
        (queue(), f"ClusterQueue x: {QUOTA}.nominalQuota: Required value"),
        (
            queue(nominalQuota=4, lendingLimit=1),
            f"ClusterQueue x: {QUOTA}.lendingLimit: Forbidden: only a queue in a cohort has one",
        ),
        (
            queue(more={"preemption": {"withinClusterQueue": "Always"}}, nominalQuota=4),
            'ClusterQueue x: spec.preemption.withinClusterQueue: Unsupported value: "Always": '
            'supported values: "Never", "LowerPriority", "LowerOrNewerEqualPriority"',
        ),
        (kueue("Cohort", {"parent": "y"}), 'Cohort x: unknown field "spec.parent"'),
        (
            kueue("LocalQueue", {"clusterQeue": "q"}),
            'LocalQueue default/x: unknown field "spec.clusterQeue" (did you mean "clusterQueue"?)',
        ),
        (
            kueue("ResourceFlavor", {"nodeLabels": {"pool": "a b"}}),
            'ResourceFlavor x: spec.nodeLabels: Invalid value: "a b": a valid label must be',
        ),
        (kueue("Topology", {"levels": []}), "Topology x: spec.levels: Required value"),
        (kueue("AdmissionCheck", {}), "AdmissionCheck x: spec.controllerName: Required value"),
    ],
)
def test_one_mistake_is_one_error(tree: Tree, expected: str, validate: str, tmp_path: Path) -> None:
    (line,) = errors(tmp_path, tree, validate)
    assert line.startswith(expected)


@pytest.mark.parametrize(
    "tree",
    [
        queue("v1beta1", {"cohort": "c", "admissionChecks": ["a"]}, nominalQuota=4, lendingLimit=4),
        queue("v1beta2", {"cohortName": "c"}, nominalQuota="0.5", borrowingLimit=0),
        kueue("ClusterQueue", {"namespaceSelector": {}, "stopPolicy": "Hold"}),
        kueue("Cohort", {"parentName": "y", "fairSharing": {"weight": "0.5"}}),
        {**kueue("WorkloadPriorityClass", {}), "spec": None, "value": -1},
    ],
)
def test_what_kueue_takes_is_taken(tree: Tree, tmp_path: Path) -> None:
    given = {key: value for key, value in tree.items() if value is not None}
    assert errors(tmp_path, given, "strict") == []


def test_what_a_server_stored_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    stored = queue(nominalQota=4)
    stored["metadata"]["uid"] = "1"
    assert errors(tmp_path, stored) == []
    stored = queue(nominalQuota="four")
    stored["metadata"]["uid"] = "1"
    assert len(errors(tmp_path, stored)) == 1
