"""Requests, and outcomes of effects."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.client.api_calls import (
    EVENT_TRIES_MAX,
    ApiCalls,
    EventRetryPause,
    RequestTime,
    RetryPause,
)
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import (
    MERGE_PATCH,
    PATH_SAFE,
    STRATEGIC_PATCH,
    ApiRequest,
    bind,
    patch_event,
    patch_pod_group,
    read_lease,
    update_object,
)
from stowplan.client.resources import RESOURCES, resource_of
from stowplan.client.responses import ApiResponse
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.limits import LimitRange
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupCondition, PodGroupStatus
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, PVSpec

META = ObjectMeta("x", "ns", "uid-1", resource_version="7")
MOMENT = RequestTime(0, 0, "2026-11-21T10:00:00Z", "2026-11-21T10:00:00.000000Z")
BIND = to_do.Bind(1, 1, "uid-1", "ns", "web", "n1")
EVICT = to_do.Evict(3, 1, "uid-1", "ns", "web", "uid-2", "make room")


def performed(effect: Any, *answers: ApiResponse) -> tuple[list[Any], Any]:
    """The steps that an effect takes where the server answers so, and its outcome."""
    steps = ApiCalls(EventCorrelator("h"), lambda: MOMENT).steps(effect)
    left, asked, answer = list(answers), [], None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            assert not left
            return asked, end.value
        asked.append(step)
        answer = None if isinstance(step, RetryPause) else left.pop(0)


@pytest.mark.parametrize("code", [0, 400, 404, 409, 422, 500, 503])
def test_a_refused_binding_is_not_sent_again(code: int) -> None:
    asked, outcome = performed(BIND, ApiResponse(code, b"why"))
    assert len(asked) == 1
    assert outcome == happened.BindFailed(1, "uid-1", code, outcome.reason)


def test_a_throttled_request_is_retried_after_retry_after() -> None:
    busy, soon = ApiResponse(429, b"", 3.0), ApiResponse(429)
    asked, outcome = performed(BIND, busy, soon, ApiResponse(201))
    assert [step.seconds for step in asked if isinstance(step, RetryPause)] == [3.0, 1.0]
    assert asked[0] == asked[2] == asked[4]
    assert outcome == happened.BindDone(1, "uid-1")


def test_a_server_that_stays_busy_is_left_alone_in_the_end() -> None:
    _, outcome = performed(BIND, *[ApiResponse(429, b"", 0.1)] * 20)
    assert outcome.code == 429


def test_a_victim_that_cannot_be_marked_is_not_deleted() -> None:
    asked, outcome = performed(EVICT, ApiResponse(409))
    assert len(asked) == 1
    assert outcome == happened.EvictFailed(3, "uid-1", 409, outcome.reason)
    asked, outcome = performed(EVICT, ApiResponse(200), ApiResponse(404))
    assert [one.method for one in asked] == ["PATCH", "DELETE"]
    assert outcome.code == 404
    assert performed(EVICT, ApiResponse(200), ApiResponse(200))[1] == happened.EvictDone(3, "uid-1")


def test_what_became_of_a_pod() -> None:
    read = to_do.ReadPod(2, 1, "uid-1", "ns", "web")
    assert performed(read, ApiResponse(404))[1] == happened.PodRead(2, "uid-1", None)
    assert performed(read, ApiResponse(500))[1] is None
    assert performed(read, ApiResponse(200, b'{"metadata":'))[1] is None
    pod = performed(read, ApiResponse(200, b'{"metadata":{"name":"web","uid":"uid-9"}}'))[1].pod
    assert isinstance(pod, Pod)
    assert pod.uid == "uid-9"


def test_a_volume_is_patched_on_condition_of_its_version() -> None:
    volume = PersistentVolume(META, PVSpec(storage_class_name="s"))
    request = update_object(to_do.Write(4, 1, "uid", volume, {"spec": {"claimRef": {"name": "c"}}}))
    assert (request.method, request.path) == ("PATCH", "/api/v1/persistentvolumes/x")
    assert request.content_type == "application/merge-patch+json"
    assert json.loads(request.body) == {
        "spec": {"claimRef": {"name": "c"}},
        "metadata": {"resourceVersion": "7", "uid": "uid-1"},
    }
    claim = PersistentVolumeClaim(META)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    request = update_object(to_do.Write(5, 1, "uid", claim, patch))
    assert request.path == "/api/v1/namespaces/ns/persistentvolumeclaims/x"
    meta = json.loads(request.body)["metadata"]
    assert meta == {"annotations": {"a": "b"}, "resourceVersion": "7", "uid": "uid-1"}


def test_an_object_without_uid_is_created_and_one_without_patch_deleted() -> None:
    claim = ResourceClaim(ObjectMeta("new", "ns"))
    content = {"metadata": {"name": "new"}, "spec": {}}
    request = update_object(to_do.Write(4, 1, "uid", claim, content))
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
    assert (request.method, request.path) == ("POST", path)
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    assert json.loads(request.body) == head | content
    request = update_object(to_do.Write(4, 1, "uid", ResourceClaim(META), {}))
    assert (request.method, request.path) == ("DELETE", f"{path}/x")
    given = json.loads(request.body)["preconditions"]
    assert given == {"uid": "uid-1", "resourceVersion": "7"}
    anyone = ResourceClaim(replace(META, resource_version=""))
    request = update_object(to_do.Write(4, 1, "uid", anyone, {}))
    assert json.loads(request.body)["preconditions"] == {"uid": "uid-1"}


def test_the_outcome_of_a_write_has_the_new_version() -> None:
    effect = to_do.Write(4, 1, "uid", PersistentVolume(META), {"spec": {}})
    done = ApiResponse(200, b'{"metadata":{"resourceVersion":"8"}}')
    assert performed(effect, done)[1] == happened.WriteDone(4, "uid", "8")
    assert performed(effect, ApiResponse(200))[1] == happened.WriteDone(4, "uid", "")
    assert performed(effect, ApiResponse(409))[1].code == 409
    effect = to_do.Write(4, 1, "uid", LimitRange(META), {"spec": {}})
    assert performed(effect)[1].code == 400


def test_the_status_of_a_group_uses_the_subresource_if_it_exists() -> None:
    status = PodGroupStatus("Running", (PodGroupCondition("Scheduled", "True"),), 3)
    version = "scheduling.sigs.dev/v1alpha2"
    effect = to_do.PatchGroup(6, 1, "uid-1", "ns", "g", version, status)
    path = "/apis/scheduling.sigs.dev/v1alpha2/namespaces/ns/podgroups/g"
    (request,), outcome = performed(effect, ApiResponse(200))
    assert request.path == f"{path}/status"
    assert outcome is None
    status_messages = json.loads(request.body)["status"]
    assert status_messages["failed"] == 0
    assert status_messages["conditions"][0]["lastTransitionTime"] == MOMENT.seconds
    asked, outcome = performed(effect, ApiResponse(404), ApiResponse(200))
    assert [one.path for one in asked] == [f"{path}/status", path]
    assert outcome is None


def test_names_are_percent_encoded() -> None:
    request = ApiRequest("GET", "/api/v1/pods", (("fieldSelector", "a!=b,c=d e"),))
    assert request.target == "/api/v1/pods?fieldSelector=a%21%3Db%2Cc%3Dd+e"
    assert ApiRequest("GET", "/api/v1/x/a:b c").target == "/api/v1/x/a:b%20c"


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a/../../nodes/n", "a%2F..%2F..%2Fnodes%2Fn"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("a%2Fb", "a%252Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("system:a b", "system:a%20b"),
        ("web-1.x", "web-1.x"),
    ],
)
def test_a_name_is_one_path_segment(name: str, encoded: str) -> None:
    targets = [
        bind(to_do.Bind(1, 1, "uid-1", name, name, "n"), {}).target,
        read_lease(name, name, 1.0).target,
        patch_event(name, name, {}).target,
    ]
    assert targets[0] == f"/api/v1/namespaces/{encoded}/pods/{encoded}/binding"
    assert all(f"/namespaces/{encoded}/" in target for target in targets)
    assert all(f"/{encoded}" in target.partition(f"/{encoded}/")[2] for target in targets)


def test_every_resource_has_a_path() -> None:
    assert len({resource.path() for resource in RESOURCES}) == len(RESOURCES)
    assert resource_of(Node(META)).path("x") == "/api/v1/nodes/x"


@pytest.mark.parametrize("place", ["{}", "/a{}", "/{}b", "/a/{}/c"])
def test_every_character_of_a_path_is_encoded_as_by_the_library(place: str) -> None:
    for character in map(chr, range(300)):
        path = place.format(character)
        assert ApiRequest("GET", path).target == quote(path, safe=PATH_SAFE)


# Events.


def event(reason: str = "FailedScheduling", note: str = "no") -> to_do.RecordEvent:
    return to_do.RecordEvent(
        9, 1, "uid-1", "ns", "web", "stowplan", "Warning", reason, "Scheduling", note
    )


def test_an_event_expired_on_the_server_is_created_again() -> None:
    performer = ApiCalls(EventCorrelator("h"), lambda: MOMENT)

    def status_messages(*answers: ApiResponse) -> list[str]:
        steps, left, methods, answer = performer.steps(event()), list(answers), [], None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return methods
            assert isinstance(step, ApiRequest)
            methods.append(step.method)
            answer = left.pop(0)

    assert status_messages(ApiResponse(201)) == ["POST"]
    assert status_messages(ApiResponse(404), ApiResponse(201)) == ["PATCH", "POST"]
    assert status_messages(ApiResponse(200)) == ["PATCH"]
    assert status_messages() == []


def sent_for(calls: ApiCalls, answers: list[ApiResponse]) -> tuple[list[ApiRequest], list[float]]:
    """The requests of an event and the pauses between them; the last answer is repeated."""
    steps, answer = calls.steps(event()), None
    sent: list[ApiRequest] = []
    pauses: list[float] = []
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return sent, pauses
        answer = None
        if isinstance(step, ApiRequest):
            sent.append(step)
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        else:
            assert isinstance(step, EventRetryPause)
            pauses.append(step.seconds)


def test_an_event_without_a_response_is_sent_again_as_it_was() -> None:
    calls = ApiCalls(EventCorrelator("h"), lambda: MOMENT, rng=np.random.default_rng(1))
    sent, pauses = sent_for(calls, [ApiResponse(0), ApiResponse(0), ApiResponse(201)])
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert len(set(pauses)) == 2
    assert all(10 <= seconds <= 12.5 for seconds in pauses)
    # It is known at the server, so that the next one starts a series.
    assert [one.method for one in sent_for(calls, [ApiResponse(200)])[0]] == ["PATCH"]


def test_an_event_that_the_server_has_although_its_response_was_lost_is_known() -> None:
    calls = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
    sent, pauses = sent_for(calls, [ApiResponse(0), ApiResponse(409)])
    assert (len(sent), pauses) == (2, [10.0])
    assert [one.method for one in sent_for(calls, [ApiResponse(200)])[0]] == ["PATCH"]


def test_an_event_is_given_up_after_twelve_tries_and_when_it_is_refused() -> None:
    calls = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
    assert len(sent_for(calls, [ApiResponse(0)])[0]) == EVENT_TRIES_MAX == 12
    for status in (403, 422, 500, 503):
        sent, pauses = sent_for(calls, [ApiResponse(status)])
        assert ([one.method for one in sent], pauses) == (["POST"], [])


def test_a_refused_event_leaves_those_about_other_versions_of_its_pod() -> None:
    calls = ApiCalls(EventCorrelator("h"), lambda: MOMENT)

    def method(version: str, status: int) -> str:
        steps = calls.record(event(), MOMENT, version)
        request = next(steps)
        assert isinstance(request, ApiRequest)
        with pytest.raises(StopIteration):
            steps.send(ApiResponse(status))
        return request.method

    assert [method(version, 201) for version in ("1", "2")] == ["POST"] * 2
    assert method("3", 422) == "POST"
    assert len(calls.series) == 2
    assert [method(version, 200) for version in ("1", "2", "3")] == ["PATCH", "PATCH", "POST"]


def test_after_six_minutes_a_series_is_over() -> None:
    series = EventCorrelator("h")
    minute = 60_000_000_000
    methods = []
    for at in (0, 1, 2, 3, 10, 16, 30):
        request = series.record(event(), at * minute, at * minute, "t")
        methods.append(None if request is None else request.method)
    assert methods == ["POST", "PATCH", None, None, "POST", "POST", "POST"]
    assert len(series) == 1


def test_conditions_of_a_group_of_kubernetes_are_merged_by_type() -> None:
    condition = PodGroupCondition("PodGroupScheduled", "True", reason="Scheduled")
    status = PodGroupStatus(conditions=(condition,))
    effect = to_do.PatchGroup(1, 1, "u", "default", "g", SCHEDULING_API_VERSION, status, 2)
    request = patch_pod_group(effect, "2026-01-01T00:00:00Z")
    assert request.path == (
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g/status"
    )
    assert request.content_type == STRATEGIC_PATCH
    assert json.loads(request.body) == {
        "metadata": {"uid": "u"},
        "status": {
            "conditions": [
                {
                    "type": "PodGroupScheduled",
                    "status": "True",
                    "reason": "Scheduled",
                    "message": "",
                    "observedGeneration": 2,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }


def test_annotations_of_a_group_of_kai_are_patched_and_others_stay() -> None:
    notes = {"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z", "gone": None}
    effect = to_do.AnnotateGroup(1, 1, "u", "ns", "g", "scheduling.run.ai/v2alpha2", notes)
    steps, outcome = performed(effect, ApiResponse(200, b"{}"))
    (request,) = steps
    assert outcome is None
    assert request.path == "/apis/scheduling.run.ai/v2alpha2/namespaces/ns/podgroups/g"
    assert request.content_type == MERGE_PATCH
    assert json.loads(request.body) == {"metadata": {"uid": "u", "annotations": notes}}
    _, outcome = performed(effect, ApiResponse(409, b"{}"))
    assert isinstance(outcome, happened.PatchFailed)


def test_what_a_queue_has_is_patched_and_the_rest_of_its_status_stays() -> None:
    version = "scheduling.volcano.sh/v1beta1"
    allocated = {"cpu": "2", "nvidia.com/gpu": None}
    effect = to_do.PatchQueue(1, 1, "u", "", "research", version, allocated)
    steps, outcome = performed(effect, ApiResponse(200, b"{}"))
    (request,) = steps
    assert outcome is None
    assert request.path == "/apis/scheduling.volcano.sh/v1beta1/queues/research/status"
    assert request.content_type == MERGE_PATCH
    assert json.loads(request.body) == {
        "metadata": {"uid": "u"},
        "status": {"allocated": allocated},
    }
    _, outcome = performed(effect, ApiResponse(403, b"{}"))
    assert isinstance(outcome, happened.PatchFailed)
