"""Builders: short texts in, API objects out."""

from collections.abc import Callable

import pytest

from stowplan.objects.encoding.json_codec import decode, encode, untyped
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing import affinity, container, node, pod, spread, term
from stowplan.testing.builders import (
    HOSTNAME,
    ZONE,
    MakeError,
    host_port,
    label_selector,
    node_term,
    taint,
    toleration,
)


def test_a_plain_node() -> None:
    assert untyped(encode(node("n1"))) == {
        "metadata": {"name": "n1", "uid": "n1", "labels": {HOSTNAME: "n1"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
    }


def test_a_node_with_everything() -> None:
    made = node(
        "n1",
        cpu=2,
        memory=None,
        pods=None,
        resources={"nvidia.com/gpu": "8"},
        zone="a",
        region="east",
        labels={"disk": "ssd", HOSTNAME: "other"},
        taints=["gpu=yes:NoSchedule", "old:NoExecute"],
        cordoned=True,
        images={"nginx": "180M"},
        features=["Swap"],
    )
    assert untyped(encode(made)) == {
        "metadata": {
            "name": "n1",
            "uid": "n1",
            "labels": {
                HOSTNAME: "other",
                ZONE: "a",
                "topology.kubernetes.io/region": "east",
                "disk": "ssd",
            },
        },
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                {"key": "old", "effect": "NoExecute"},
            ],
        },
        "status": {
            "allocatable": {"cpu": 2, "nvidia.com/gpu": "8"},
            "images": [{"names": ["nginx"], "sizeBytes": 180_000_000}],
            "declaredFeatures": ["Swap"],
        },
    }
    assert decode(encode(made), Node) == made


def test_a_plain_pod() -> None:
    assert untyped(encode(pod("web"))) == {
        "metadata": {"name": "web", "namespace": "default", "uid": "default/web"},
        "spec": {"containers": [{"name": "main", "resources": {}}]},
        "status": {},
    }


def test_a_pod_with_everything() -> None:
    made = pod(
        "web",
        namespace="prod",
        uid="u1",
        on="n1",
        nominated="n2",
        cpu="500m",
        memory="1Gi",
        resources={"nvidia.com/gpu": 1},
        image="nginx",
        ports=[80],
        init_containers=[container("proxy", cpu="50m", sidecar=True)],
        overhead={"cpu": "10m"},
        labels={"app": "web"},
        priority=0,
        node_selector={"disk": "ssd"},
        tolerations=["gpu"],
        gates=["later"],
        claims=["data"],
        scheduler="other",
        created_at=0,
    )
    assert untyped(encode(made)) == {
        "metadata": {
            "name": "web",
            "namespace": "prod",
            "uid": "u1",
            "labels": {"app": "web"},
            "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "n1",
            "schedulerName": "other",
            "containers": [
                {
                    "name": "main",
                    "image": "nginx",
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1}
                    },
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                }
            ],
            "initContainers": [
                {
                    "name": "proxy",
                    "resources": {"requests": {"cpu": "50m"}},
                    "restartPolicy": "Always",
                }
            ],
            "overhead": {"cpu": "10m"},
            "priority": 0,
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "schedulingGates": [{"name": "later"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
        "status": {"nominatedNodeName": "n2"},
    }
    assert decode(encode(made), Pod) == made


def test_containers_of_ones_own_replace_the_default_one() -> None:
    two = [container("a", cpu="1"), container("b")]
    assert [c.name for c in pod("web", containers=two).spec.containers] == ["a", "b"]
    with pytest.raises(MakeError, match="pod 'web': expected either containers, or cpu"):
        pod("web", containers=two, cpu="1")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("gpu=yes:NoSchedule", ("gpu", "Equal", "yes", "NoSchedule")),
        ("gpu=:NoSchedule", ("gpu", "Equal", "", "NoSchedule")),
        ("gpu=yes", ("gpu", "Equal", "yes", "")),
        ("example.com/gpu:NoExecute", ("example.com/gpu", "Exists", "", "NoExecute")),
        ("gpu", ("gpu", "Exists", "", "")),
        ("*", ("", "Exists", "", "")),
        ("*:PreferNoSchedule", ("", "Exists", "", "PreferNoSchedule")),
    ],
)
def test_tolerations(text: str, fields: tuple[str, str, str, str]) -> None:
    made = toleration(text)
    assert (made.key, made.operator, made.value, made.effect) == fields


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (80, ("", 80, "")),
        ("80/UDP", ("", 80, "UDP")),
        ("127.0.0.1:80", ("127.0.0.1", 80, "")),
        ("127.0.0.1:80/TCP", ("127.0.0.1", 80, "TCP")),
        ("fe80::1:80", ("fe80::1", 80, "")),
    ],
)
def test_host_ports(text: int | str, fields: tuple[str, int, str]) -> None:
    made = host_port(text)
    assert (made.host_ip, made.host_port, made.protocol) == fields


@pytest.mark.parametrize(
    ("text", "labels", "expressions"),
    [
        ("", {}, []),
        ("app=web", {"app": "web"}, []),
        ("app==web, tier=", {"app": "web", "tier": ""}, []),
        (
            "app in (web, db),tier notin (a),env!=dev,rack,!beta",
            {},
            [
                ("app", "In", ("web", "db")),
                ("tier", "NotIn", ("a",)),
                ("env", "NotIn", ("dev",)),
                ("rack", "Exists", ()),
                ("beta", "DoesNotExist", ()),
            ],
        ),
        ("app=web,app=db", {"app": "web"}, [("app", "In", ("db",))]),
    ],
)
def test_label_selectors(
    text: str, labels: dict[str, str], expressions: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    made = label_selector(text)
    assert made.match_labels == labels
    assert [(r.key, r.operator, r.values) for r in made.match_expressions] == expressions


def test_node_terms() -> None:
    made = node_term("cores>4,cores<16,disk=ssd,metadata.name!=n1")
    assert [(r.key, r.operator, r.values) for r in made.match_expressions] == [
        ("cores", "Gt", ("4",)),
        ("cores", "Lt", ("16",)),
        ("disk", "In", ("ssd",)),
    ]
    assert [(r.key, r.operator, r.values) for r in made.match_fields] == [
        ("metadata.name", "NotIn", ("n1",))
    ]


def test_affinity_has_only_the_stated_terms() -> None:
    assert affinity() == decode("{}", type(affinity()))
    made = affinity(
        nodes="zone in (a,b)",
        prefer_nodes={"disk=ssd": 10},
        near=[term("app=db", ZONE, namespaces=["prod"], namespace_selector="")],
        prefer_apart=[(5, term(None, HOSTNAME))],
    )
    assert untyped(encode(made)) == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 10,
                    "preference": {
                        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]
                    },
                }
            ],
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "topologyKey": ZONE,
                    "namespaces": ["prod"],
                    "namespaceSelector": {},
                }
            ]
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": {"topologyKey": HOSTNAME}}
            ]
        },
    }


def test_spread() -> None:
    assert untyped(encode(spread("app=web", ZONE, max_skew=2, hard=False))) == {
        "maxSkew": 2,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (taint, "gpu", "taint 'gpu': expected KEY[=VALUE]:EFFECT"),
        (taint, "gpu:Never", "taint 'gpu:Never': expected"),
        (toleration, ":NoSchedule", "toleration ':NoSchedule': expected KEY[=VALUE][:EFFECT]"),
        (toleration, "gpu:Never", "toleration 'gpu:Never': expected"),
        (host_port, "http", "host port 'http': expected [IP:]PORT[/PROTOCOL]"),
        (label_selector, "app in web", "selector 'app in web': expected parts such as"),
        (label_selector, "a,,b", "selector 'a,,b': expected parts such as"),
        (label_selector, "cores>4", "label selector 'cores>4': expected no < and >"),
    ],
)
def test_a_text_that_cannot_be_read(read: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(MakeError) as caught:
        read(text)
    assert message in str(caught.value)
