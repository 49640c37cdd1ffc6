"""Values of wrong types in objects of Volcano: the server and files refuse them, with the path."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.objects.volcano.job_defaults import with_job_defaults
from tests.apiserver.small_cluster import SmallCluster

Tree = dict[str, Any]
Steps = tuple[str | int, ...]

TOPOLOGY = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": ""}
POLICY = {"event": "PodEvicted", "action": "RestartJob", "timeout": "5m"}
PARTS = {"totalPartitions": 1, "partitionSize": 2, "minPartitions": 1, "networkTopology": TOPOLOGY}
TASK: Tree = {
    "name": "w",
    "replicas": 2,
    "minAvailable": 2,
    "maxRetry": 1,
    "topologyPolicy": "none",
    "policies": [{"events": ["PodFailed"], "action": "RestartTask"}],
    "partitionPolicy": PARTS,
    "template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"},
    },
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
JOB: Tree = {
    "minAvailable": 1,
    "schedulerName": "volcano",
    "queue": "default",
    "maxRetry": 3,
    "ttlSecondsAfterFinished": 5,
    "priorityClassName": "",
    "minSuccess": 1,
    "runningEstimate": "5m",
    "networkTopology": TOPOLOGY,
    "plugins": {"svc": ["--a=b"], "mpi": []},
    "policies": [POLICY, {"exitCode": 3, "action": "AbortJob"}],
    "volumes": [{"mountPath": "/a", "volumeClaim": CLAIM}],
    "tasks": [TASK, {"name": "v", "dependsOn": {"name": ["w"], "iteration": "any"}}],
}
SUB_GROUP = {
    "name": "a",
    "subGroupSize": 1,
    "minSubGroups": 1,
    "labelSelector": {"matchLabels": {"a": "b"}},
    "matchLabelKeys": ["a"],
    "networkTopology": TOPOLOGY,
}
GROUP: Tree = {
    "minMember": 1,
    "minTaskMember": {"a": 1},
    "queue": "default",
    "priorityClassName": "",
    "minResources": {"cpu": "1"},
    "networkTopology": TOPOLOGY,
    "subGroupPolicy": [SUB_GROUP],
}
NODE_GROUPS = {"requiredDuringSchedulingIgnoredDuringExecution": ["g"]}
QUEUE: Tree = {
    "weight": 1,
    "capability": {"cpu": "4"},
    "deserved": {"cpu": "2"},
    "guarantee": {"resource": {"cpu": "1"}},
    "reclaimable": True,
    "priority": 1,
    "parent": "root",
    "type": "",
    "dequeueStrategy": "fifo",
    "affinity": {"nodeGroupAffinity": NODE_GROUPS, "nodeGroupAntiAffinity": NODE_GROUPS},
    "extendClusters": [{"name": "a", "weight": 1, "capacity": {"cpu": "4"}}],
}
MEMBER = {"type": "Node", "selector": {"regexMatch": {"pattern": "a"}}}
KINDS: dict[str, tuple[str, str, Tree]] = {
    "Job": ("batch.volcano.sh/v1alpha1", "namespaces/default/jobs", JOB),
    "PodGroup": ("scheduling.volcano.sh/v1beta1", "namespaces/default/podgroups", GROUP),
    "Queue": ("scheduling.volcano.sh/v1beta1", "queues", QUEUE),
    "HyperNode": ("topology.volcano.sh/v1alpha1", "hypernodes", {"tier": 1, "members": [MEMBER]}),
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}
AMOUNTS = ("cpu", "storage")


def places(value: Any, at: Steps) -> Iterator[tuple[Steps, Any]]:
    """Every value below a value, and itself."""
    yield at, value
    if isinstance(value, dict | list):
        for step, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*at, step))


def wrong_values(at: Steps, value: Any) -> Iterator[Any]:
    """Values of other types. An amount may be a number."""
    for one in ("x", 7, True, ["x"], {"a": "b"}):
        is_number = at[-1] in AMOUNTS and type(one) is int
        if type(one) is not type(value) and not is_number:
            yield one
    # A template is decoded as by Go, which takes a null as an empty container.
    if isinstance(value, list) and "template" not in at:
        yield [None]


def with_value(kind: str, at: Steps, value: Any) -> Tree:
    version, _, spec = KINDS[kind]
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    # Values that are in several places become values of their own.
    made: Tree = json.loads(json.dumps(tree))
    inside: Any = made
    for step in at[:-1]:
        inside = inside[step]
    inside[at[-1]] = value
    return made


ONE_IN = 4
"""Of the wrong values in `make test`; all in `make soak`."""
WRONG = [
    pytest.param(
        kind,
        at,
        value,
        id=f"{kind} {'.'.join(map(str, at))} {json.dumps(value)}",
        marks=() if number % ONE_IN == 0 else pytest.mark.soak,
    )
    for number, (kind, at, value) in enumerate(
        (kind, at, value)
        for kind, (_, _, spec) in KINDS.items()
        for at, given in places(spec, ("spec",))
        for value in wrong_values(at, given)
    )
]
FIELDS = [(kind, at) for kind, (*_, spec) in KINDS.items() for at, _ in places(spec, ("spec",))]


@cache
def shared() -> SmallCluster:
    return SmallCluster(nodes=1, volcano=True)


def answer(kind: str, tree: Tree) -> tuple[int, str]:
    """Status code and message of a creation."""
    version, path, _ = KINDS[kind]
    # Strict validation would name a field in a mapping as unknown first.
    query = (("fieldValidation", "Warn"), ("dryRun", "All"))
    headers, body = {"content-type": "application/json"}, json.dumps(tree).encode()
    request = HttpRequest("POST", f"/apis/{version}/{path}", query, headers, body)
    made = shared().server.handle(request, shared().now)
    assert isinstance(made, HttpResponse)
    return made.status, str(json.loads(made.body).get("message"))


def errors(tmp_path: Path, tree: Tree, validate: str = "auto") -> str:
    file = tmp_path / "x.yaml"
    queue = {**with_value("Queue", ("spec",), {}), "metadata": {"name": "default"}}
    file.write_text(yaml.safe_dump_all([NODE, *[queue][: tree["kind"] != "Queue"], tree]))
    try:
        read_cluster([file], validate=validate)
    except InputError as problem:
        return str(problem)
    return ""


def names(at: Steps, value: Any, message: str) -> bool:
    """Whether a message names the place, however it writes keys."""
    wanted = [*map(str, at), *(["0"] if value == [None] else [])]
    words = re.findall(r"""[^.\[\]'"\s:,(]+""", message)
    # A list of another item type is named with the item, or without where a list is wrong.
    return any(
        words[first : first + len(steps)] == steps
        for steps in (wanted, list(map(str, at)))
        for first in range(len(words))
    )


@pytest.mark.parametrize(("kind", "at", "value"), WRONG)
def test_the_server_refuses_a_value_of_a_wrong_type(kind: str, at: Steps, value: Any) -> None:
    code, message = answer(kind, with_value(kind, at, value))
    assert code == 422, message
    assert names(at, value, message), message


@pytest.mark.parametrize(("kind", "at", "value"), WRONG)
def test_so_do_files(kind: str, at: Steps, value: Any, tmp_path: Path) -> None:
    message = errors(tmp_path, with_value(kind, at, value))
    assert names(at, value, message), message


@pytest.mark.parametrize(("kind", "at", "value"), [one for one in WRONG if one.values[0] == "Job"])
def test_a_job_that_cannot_be_read_is_refused_without_validation_too(
    kind: str, at: Steps, value: Any, tmp_path: Path
) -> None:
    message = errors(tmp_path, with_value(kind, at, value), "ignore")
    assert names(at, value, message), message


@pytest.mark.parametrize(("kind", "at"), FIELDS)
def test_a_null_field_is_as_a_missing_one_and_a_null_item_is_refused(
    kind: str, at: Steps, tmp_path: Path
) -> None:
    tree = with_value(kind, at, None)
    code, message = answer(kind, tree)
    if not isinstance(at[-1], int):
        without = copy.deepcopy(tree)
        inside: Any = without
        for step in at[:-1]:
            inside = inside[step]
        del inside[at[-1]]
        assert code == answer(kind, without)[0]
        assert bool(errors(tmp_path, tree)) == bool(errors(tmp_path, without))
    elif "template" not in at:
        assert (code, bool(errors(tmp_path, tree))) == (422, True), message


def test_null_replicas_are_none() -> None:
    made = with_job_defaults({"spec": {"tasks": [{"replicas": None, "minAvailable": None}]}})
    assert (made["spec"]["tasks"][0]["replicas"], made["spec"]["minAvailable"]) == (0, 0)
