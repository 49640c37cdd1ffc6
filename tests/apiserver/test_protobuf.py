"""The binary bodies of kubectl, read as the JSON they stand for."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apiserver.http import protobuf_body
from stowplan.apiserver.http.body_decoding import body_as_json
from stowplan.apiserver.http.negotiation import JSON, PROTOBUF
from stowplan.apiserver.http.protobuf_body import ProtobufDecodeError, decode_protobuf


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def message(*fields: tuple[int, Any]) -> bytes:
    """Numbers are varints, text and bytes have a length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(content)) + content
    return out


def envelope(version: str, kind: str, content: bytes) -> bytes:
    about = message((1, version), (2, kind))
    return b"k8s\x00" + message((1, about), (2, content), (3, ""), (4, ""))


NAMED = message((1, "x"), (2, ""), (7, 0), (8, b""))
AUTOSCALERS = [
    (
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        message((1, NAMED), (2, message((1, message((1, "D"), (2, "w"))), (3, 5), (4, 50)))),
        {
            "spec": {
                "scaleTargetRef": {"kind": "D", "name": "w"},
                "maxReplicas": 5,
                "targetCPUUtilizationPercentage": 50,
            }
        },
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        message((1, NAMED), (2, message((3, 5), (4, message((1, "Pods")))))),
        {"spec": {"maxReplicas": 5, "metrics": [{"type": "Pods"}]}},
    ),
]


@pytest.mark.parametrize(
    ("version", "kind", "content", "tree"),
    [
        *AUTOSCALERS,
        ("v1", "Namespace", message((1, NAMED), (2, b""), (3, message((1, "")))), {}),
        (
            "v1",
            "ConfigMap",
            message((1, NAMED), (2, message((1, "a"), (2, "b"))), (3, message((1, "c"), (2, "d")))),
            {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
        ),
        (
            "v1",
            "ResourceQuota",
            message((1, NAMED), (2, message((1, message((1, "pods"), (2, message((1, "50")))))))),
            {"spec": {"hard": {"pods": "50"}}},
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            message((1, NAMED), (2, (1 << 64) - 5), (3, 0), (4, ""), (5, "Never")),
            {"value": -5, "preemptionPolicy": "Never"},
        ),
        (
            "batch/v1",
            "CronJob",
            message((1, NAMED), (2, message((1, "@daily"), (5, message((2, message((1, 2)))))))),
            {"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"parallelism": 2}}}},
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            message((1, NAMED), (2, message((1, message((1, 0), (2, 0), (3, "")))))),
            {"spec": {"minAvailable": 0}},
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            message((1, NAMED), (2, message((3, message((1, 1), (2, 0), (3, "20%")))))),
            {"spec": {"maxUnavailable": "20%"}},
        ),
        (
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview",
            message((1, NAMED), (2, message((1, message((1, "ns"), (2, "get"), (5, "pods")))))),
            {
                "spec": {
                    "resourceAttributes": {"namespace": "ns", "verb": "get", "resource": "pods"}
                }
            },
        ),
    ],
)
def test_kinds(version: str, kind: str, content: bytes, tree: dict[str, Any]) -> None:
    wanted = {"kind": kind, "apiVersion": version, "metadata": {"name": "x"}, **tree}
    assert msgspec.to_builtins(decode_protobuf(envelope(version, kind, content))) == wanted


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s\x00",
        b"k8s\x00\xff",
        b'{"kind":"Namespace"}',
        envelope("v1", "Pod", message((1, NAMED))),
        envelope("v2", "Namespace", message((1, NAMED))),
        # Something that is not in the table is not dropped in silence.
        envelope("v1", "Namespace", message((1, NAMED), (9, "y"))),
        envelope("v1", "Namespace", message((1, message((1, b"\xff"))))),
        envelope("v1", "Namespace", message((1, 5))),
        envelope("v1", "Namespace", message((1, NAMED))[:-1]),
    ],
)
def test_what_is_not_known_stays_as_it_is(body: bytes) -> None:
    with pytest.raises(ProtobufDecodeError):
        decode_protobuf(body)
    assert body_as_json(body, PROTOBUF) == (body, PROTOBUF)


def test_only_bodies_of_this_type_are_looked_at() -> None:
    body = envelope("v1", "Namespace", message((1, NAMED)))
    assert body_as_json(body, JSON) == (body, JSON)
    raw, media = body_as_json(body, PROTOBUF)
    assert media == JSON
    assert msgspec.json.decode(raw)["metadata"] == {"name": "x"}


def test_many_fields_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = envelope("v1", "Namespace", message((1, NAMED)))
    monkeypatch.setattr(protobuf_body, "FIELDS_MAX", 6)
    with pytest.raises(ProtobufDecodeError, match="too many fields"):
        decode_protobuf(body)


@given(st.binary(max_size=200), st.sampled_from(["Namespace", "ConfigMap", "Deployment", "Job"]))
def test_any_bytes_are_read_or_refused(content: bytes, kind: str) -> None:
    version = {"Deployment": "apps/v1", "Job": "batch/v1"}.get(kind, "v1")
    try:
        tree = decode_protobuf(envelope(version, kind, content))
    except ProtobufDecodeError:
        return
    assert tree["kind"] == kind
    msgspec.json.encode(tree)
