"""Clusters drawn as text."""

import pytest

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.workload import Namespace
from stowplan.testing import DrawError, draw, node, pod
from stowplan.testing.builders import ZONE


def test_a_drawing_equals_the_builders() -> None:
    contents = draw("""
        node  cpu  memory  pods  zone  region  labels          taints
        n1    8    1Gi     3     a     east    disk=ssd,old=   gpu=yes:NoSchedule,x:NoExecute
        n2    -    -       -     -     -       -               -

        pod   on  cpu   labels    tolerations  ports        priority  nvidia.com/gpu
        web   n1  500m  app=web   gpu,x        80,53/UDP    -5        2
        idle  -   -     -         -            -            -         -
    """)
    labels = {"disk": "ssd", "old": ""}
    taints = ["gpu=yes:NoSchedule", "x:NoExecute"]
    first = node(
        "n1", cpu="8", memory="1Gi", pods=3, zone="a", region="east", labels=labels, taints=taints
    )
    assert contents.nodes == {"n1": first, "n2": node("n2")}
    web = pod(
        "web",
        on="n1",
        cpu="500m",
        labels={"app": "web"},
        tolerations=["gpu", "x"],
        ports=[80, "53/UDP"],
        priority=-5,
        resources={"nvidia.com/gpu": "2"},
    )
    assert contents.pods == {"web": web, "idle": pod("idle")}
    assert contents.pending == (pod("idle"),)
    assert contents.table.names == ["n1", "n2"]
    assert contents.table.requested("cpu").tolist() == [500, 0]
    assert contents.table.order.tolist() == [0, 1]


def test_the_other_columns() -> None:
    contents = draw("""
        node  cordoned  images              features
        n1    yes       nginx=1M,tool=2M    Swap,Fast
        n2    no        -                   -

        pod  namespace  nominated  memory  image  node_selector  gates  claims
        a    prod       n1         1Gi     nginx  disk=ssd       later  data,log
    """)
    assert contents.nodes["n1"] == node(
        "n1", cordoned=True, images={"nginx": "1M", "tool": "2M"}, features=["Swap", "Fast"]
    )
    assert contents.pods["a"] == pod(
        "a",
        namespace="prod",
        nominated="n1",
        memory="1Gi",
        image="nginx",
        node_selector={"disk": "ssd"},
        gates=["later"],
        claims=["data", "log"],
    )


def test_tables_may_come_in_any_number_and_order() -> None:
    contents = draw("pod on\na n1\n\nnode\nn1\n\nnode zone\nn2 b")
    assert list(contents.nodes) == ["n1", "n2"]
    assert contents.nodes["n2"].labels[ZONE] == "b"
    assert contents.table.pod_count.tolist() == [1, 0]


def test_an_empty_drawing_is_an_empty_cluster() -> None:
    assert draw("").table.n_nodes == 0


def test_a_snapshot_has_the_other_objects() -> None:
    prod = Namespace(metadata=ObjectMeta(name="prod"))
    snapshot = draw("node\nn1").snapshot([prod])
    assert snapshot.object_store.find(Namespace, "prod") == prod
    assert snapshot.nodes.names == ["n1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes\nn1", "line 1: table of 'nodes'; expected one of node, pod"),
        ("node zone\nn1", "line 2: 1 cell; expected 2 (node zone)"),
        ("node colour\nn1 red", "line 2: column 'colour'; expected one of cpu, memory, pods"),
        ("node\nn1\nn1", "line 3: node 'n1' appears twice"),
        ("node pods\nn1 many", "line 2: pods 'many': expected a whole number"),
        ("node cordoned\nn1 maybe", "line 2: cordoned 'maybe': expected yes or no"),
        ("node taints\nn1 gpu", "line 2: node 'n1': taint 'gpu': expected"),
        ("node images\nn1 nginx=big", "line 2: node 'n1': quantity 'big': "),
        ("node cpu\nn1 much", "line 2: quantity 'much': "),
        ("node\nn1\n\npod on cpu\na n1 much", "line 5: quantity 'much': "),
    ],
)
def test_a_drawing_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(DrawError) as caught:
        draw(text)
    assert f"drawing, {message}" in str(caught.value)
