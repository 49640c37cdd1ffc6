"""What our controllers write, beside what a real controller manager wrote after the same commands.

The commands are repeated in order on a cluster in virtual time. Compared are the bodies of what is
created (ReplicaSets, pods, events) and the last status of every object; the statuses in between,
and how a rolling update is cut into steps, depend on who was faster. Pod template hashes
are our own.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stowplan.objects.store import DeleteOptions, Store
from tests.apiserver.small_cluster import DEPLOYMENTS, JOBS, SETS, SmallCluster, container

Tree = dict[str, Any]

DATA = Path(__file__).parent / "data" / "controllers.jsonl.gz"
OURS = {"deployment-controller", "replicaset-controller", "job-controller", "disruption-controller"}
BUDGETS = "policy/poddisruptionbudgets"
_FREE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_HASH = re.compile(r"\b(web|mini)-[a-z0-9]{7,10}\b")
_SUFFIX = re.compile(r"\b((?:web|mini)-<hash>|job)-(?:[a-z0-9]{5}|<gen\d+>)(?![a-z0-9-])")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|<uid\d+>")
_EVENT = re.compile(r"\.(<hex\d+>|[0-9a-f]{12,})$")


def normal(value: Any, key: str = "") -> Any:
    """A value with everything replaced that differs from run to run."""
    if isinstance(value, dict):
        kept = {k: normal(v, k) for k, v in value.items() if k not in _FREE}
        return {k: v for k, v in kept.items() if v not in ({}, [], None) or k == "spec"}
    if isinstance(value, list):
        return [normal(each) for each in value]
    if not isinstance(value, str):
        return value
    if key == "pod-template-hash":
        return "<hash>"
    text = _UID.sub("<uid>", _MOMENT.sub("<time>", value))
    text = _EVENT.sub(".<hex>", _HASH.sub(r"\1-<hash>", text))
    return _SUFFIX.sub(r"\1-<gen>", text)


class Recorded:
    """The writes of one command that succeeded."""

    def __init__(self, scenario: Tree) -> None:
        self.command = scenario["scenario"].split(": ", 1)[1].rsplit(" -n ", 1)[0]
        self.created: list[Tree] = []
        self.statuses: dict[tuple[str, str], Tree] = {}
        self.deleted: set[tuple[str, str]] = set()
        for exchange in scenario["exchanges"]:
            request = exchange["request"]
            who = request["headers"].get("User-Agent", "").rsplit("/", 1)[-1]
            mine = who in OURS or who == "generic-garbage-collector"
            if mine and exchange["response"]["status"] < 300:
                self._take(request)

    def _take(self, request: Tree) -> None:
        body, path = request.get("body") or {}, request["path"]
        if request["method"] == "POST":
            self.created.append(normal(_without_place(body)))
        elif request["method"] == "PUT" and path.endswith("/status"):
            name = normal(body["metadata"]["name"])
            self.statuses[body["kind"], name] = body
        elif request["method"] == "DELETE":
            kind, name = path.rsplit("/", 2)[-2:]
            self.deleted.add((kind, normal(name)))


def _without_place(body: Tree) -> Tree:
    """The body of a creation; the namespace is in the path, for some clients in the body too."""
    meta = {k: v for k, v in body["metadata"].items() if k != "namespace"}
    observed = {**body, "metadata": meta}
    about = observed.get("involvedObject")
    if about is not None:
        observed["involvedObject"] = {k: v for k, v in about.items() if k != "namespace"}
    return observed


class Watched:
    """Our in-process writes, noted on their way."""

    def __init__(self, api: Store) -> None:
        self.api = api
        self.clear()
        create, update_status, delete = api.create, api.update_status, api.delete

        def noted_create(path: str, obj: Tree) -> Tree:
            stored = create(path, obj)
            if path in (SETS, "pods", "events") and obj.get("source", {}).get("component") in (
                None,
                *OURS,
            ):
                self.created.append(normal(_without_place(copy.deepcopy(obj))))
            return stored

        def noted_status(path: str, obj: Tree) -> Tree:
            kind = {DEPLOYMENTS: "Deployment", SETS: "ReplicaSet", JOBS: "Job"}.get(path)
            kind = "PodDisruptionBudget" if path == BUDGETS else kind
            if kind:
                name = normal(obj["metadata"]["name"])
                self.statuses[kind, name] = copy.deepcopy(obj)
            return update_status(path, obj)

        def noted_delete(
            path: str, namespace: str, name: str, deletion: DeleteOptions | None = None
        ) -> None:
            if deletion is None or deletion.grace_s is None:
                self.deleted.add((path.rsplit("/", 1)[-1], normal(name)))
            delete(path, namespace, name, deletion)

        api.create, api.update_status = noted_create, noted_status  # type: ignore[method-assign]
        api.delete = noted_delete  # type: ignore[method-assign]

    def clear(self) -> None:
        """Forget what was noted, between two commands."""
        self.created: list[Tree] = []
        self.statuses: dict[tuple[str, str], Tree] = {}
        self.deleted: set[tuple[str, str]] = set()


def recorded() -> dict[str, list[Recorded]]:
    found: dict[str, list[Recorded]] = {}
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for line in lines:
            scenario = json.loads(line)
            if "kubectl 1.36" in scenario["scenario"]:
                one = Recorded(scenario)
                found.setdefault(one.command, []).append(one)
    return found


@pytest.fixture(scope="module")
def played() -> list[tuple[Recorded, Watched, SmallCluster]]:
    """Every command beside what we wrote after it; the worlds are one and the same."""
    wanted = recorded()
    cluster = SmallCluster(3, start_s=0.05)
    watched = Watched(cluster.api)
    found: list[tuple[Recorded, Watched, SmallCluster]] = []

    def after(command: str, at: int = 0) -> None:
        cluster.run(40)
        mine = copy.copy(watched)
        found.append((wanted[command][at], mine, cluster))
        watched.clear()

    first = wanted["apply -f web.yaml"][0].statuses["Deployment", "web"]
    annotations = {
        k: v for k, v in first["metadata"]["annotations"].items() if "deployment.kube" not in k
    }
    web = {"metadata": {"name": "web", "annotations": annotations}, "spec": first["spec"]}
    cluster.create(DEPLOYMENTS, web)
    after("apply -f web.yaml")
    cluster.change(DEPLOYMENTS, "web", replicas=5)
    after("scale deployment/web --replicas=5")
    template = copy.deepcopy(first["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "app:2"
    cluster.change(DEPLOYMENTS, "web", template=template)
    after("set image deployment/web c=app:2")
    cluster.change(DEPLOYMENTS, "web", template=first["spec"]["template"])
    after("rollout undo deployment/web")
    cluster.change(DEPLOYMENTS, "web", replicas=1)
    after("apply -f web.yaml", 1)
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}}
    cluster.create(BUDGETS, budget)
    after("create poddisruptionbudget web --selector=app=web --min-available=1")
    cluster.delete(DEPLOYMENTS, "web", propagation="Background")
    watched.deleted.clear()
    after("delete deployment web")
    plain = {"name": "c", "image": "app:1"}
    spec = {"template": {"spec": {"containers": [plain], "restartPolicy": "Never"}}}
    cluster.create(
        JOBS, {"metadata": {"name": "job"}, "spec": {"completions": 2, "parallelism": 2, **spec}}
    )
    after("apply -f job.yaml")
    cluster.delete(JOBS, "job", propagation="Background")
    watched.deleted.clear()
    after("delete job job")
    mini = wanted["create deployment mini --image=app:1 --replicas=2"][0]
    made = mini.statuses["Deployment", "mini"]
    labels = {"name": "mini", "labels": made["metadata"]["labels"]}
    cluster.create(DEPLOYMENTS, {"metadata": labels, "spec": made["spec"]})
    after("create deployment mini --image=app:1 --replicas=2")
    cluster.delete(DEPLOYMENTS, "mini", propagation="Orphan")
    watched.deleted.clear()
    after("delete deployment mini --cascade=orphan")
    return found


ROLLING = {"set image deployment/web c=app:2", "rollout undo deployment/web", "apply -f web.yaml"}


def counted(bodies: list[Tree], kind: str) -> Counter[str]:
    return Counter(json.dumps(b, sort_keys=True) for b in bodies if b["kind"] == kind)


def test_every_command_was_repeated(played: list[tuple[Recorded, Watched, SmallCluster]]) -> None:
    assert len(played) == 11


@pytest.mark.parametrize("kind", ["ReplicaSet", "Pod"])
def test_what_is_created_is_what_was_created(
    played: list[tuple[Recorded, Watched, SmallCluster]], kind: str
) -> None:
    for theirs, ours, _ in played:
        wanted, got = counted(theirs.created, kind), counted(ours.created, kind)
        if kind == "ReplicaSet" or theirs.command not in ROLLING:
            assert got == wanted, theirs.command
        else:
            assert set(got) == set(wanted), theirs.command


def _sorted_statuses(statuses: dict[tuple[str, str], Tree]) -> list[str]:
    return sorted(json.dumps(normal(b.get("status")), sort_keys=True) for b in statuses.values())


def test_the_last_statuses_are_the_same(
    played: list[tuple[Recorded, Watched, SmallCluster]],
) -> None:
    for theirs, ours, _ in played:
        if theirs.command.startswith("delete"):
            continue
        assert ours.statuses.keys() == theirs.statuses.keys(), theirs.command
        for key, body in theirs.statuses.items():
            wanted, got = normal(body), normal(ours.statuses[key])
            if key[0] != "ReplicaSet":
                assert got["status"] == wanted["status"], (theirs.command, key)


def shape(event: str) -> str:
    """An event without its numbers; of combined ones only that they are combined."""
    text = re.sub(r"\d+", "N", event)
    return re.sub(r"\(combined from similar events\): [^\"]*", "(combined)", text)


def test_events_are_those_that_were_recorded(
    played: list[tuple[Recorded, Watched, SmallCluster]],
) -> None:
    known = {shape(text) for theirs, _, _ in played for text in counted(theirs.created, "Event")}
    for theirs, ours, _ in played:
        wanted, got = counted(theirs.created, "Event"), counted(ours.created, "Event")
        if theirs.command not in ROLLING:
            assert got == wanted, theirs.command
        else:
            # How often a rollout scales, and so from when on its events are combined, is a race.
            shapes = {shape(text) for text in got}
            assert shapes, theirs.command
            assert shapes <= known, theirs.command


def test_the_same_things_are_deleted(played: list[tuple[Recorded, Watched, SmallCluster]]) -> None:
    for theirs, ours, _ in played:
        assert ours.deleted == theirs.deleted, theirs.command


def test_everything_owned_is_gone_or_orphaned_at_the_end(
    played: list[tuple[Recorded, Watched, SmallCluster]],
) -> None:
    cluster = played[-1][2]
    assert cluster.list(DEPLOYMENTS) == []
    assert [normal(each["metadata"]["name"]) for each in cluster.list(SETS)] == ["mini-<hash>"]
    assert len(cluster.pods()) == 2
    assert container()["name"] == "c"
