"""Bad changes: what names nothing, contradicts, or exists already is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.forecast.what_if.questions import what_if
from stowplan.inputs.input_error import InputError
from tests.insight.test_what_if import asked, cluster, deployment, node, pod, queue, write

OBJECTS = [
    node("n1"),
    node("n2", zone="c"),
    pod("w", on="n2", owner="web"),
    deployment("api", 1),
    queue("q", 1),
]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([("cordon", "n9")], '--cordon n9: nodes "n9" not found'),
        ([("cordon", "n11")], "--cordon n11: nodes \"n11\" not found (did you mean 'n1'?)"),
        ([("drain", "zone-x")], "--drain zone-x: no node is named so"),
        ([("drain", "a=b=c=(")], "--drain a=b=c=(: "),
        (
            [("remove-node", "n2"), ("cordon", "n2")],
            '--cordon n2: contradicts --remove-node n2: node "n2" is removed',
        ),
        ([("drain", "c"), ("remove-node", "n2")], "--drain c: contradicts --remove-node n2"),
        ([("remove-node", "n2"), ("remove-node", "n2")], 'node "n2" is removed twice'),
        ([("label", "n1=a=1"), ("label", "n1=a=2")], "--label n1=a=2: contradicts --label n1=a=1"),
        (
            [("scale", "deploy/api=1"), ("scale", "deploy/api=2")],
            "contradicts --scale deploy/api=1",
        ),
        ([("scale", "deploy/api=1"), ("delete", "deploy/api")], "contradicts --scale deploy/api=1"),
        ([("scale", "deploy/nope=1")], 'deployments.apps "nope" not found in namespace "default"'),
        (
            [("scale", "shop/deploy/api=1")],
            'not found in namespace "shop" (did you mean "default/deployment/api"?)',
        ),
        ([("scale", "ds/x=1")], "cannot scale a DaemonSet"),
        ([("scale", "deploy/api=-1")], "expected a whole number from 0 to 9999999"),
        (
            [("scale", "deplyo/api=1")],
            "doesn't have a resource type \"deplyo\" (did you mean 'deploy'?)",
        ),
        ([("add-nodes", "x=1")], "no node is of pool 'x': expected one of p"),
        ([("add-nodes", "p=0")], "expected a whole number from 1 to 9999999"),
        ([("add-nodes", "p=99999999")], "expected a whole number from 1 to 9999999"),
        ([("taint", "n1=a=b:Nope")], "invalid taint effect: 'Nope'"),
        ([("taint", "n1=a-")], 'taint "a" not found on node n1'),
        ([("label", "n1=a b=c")], "--label n1=a b=c: "),
        ([("label", "n1=gone-")], 'label "gone" not found on node n1'),
        ([("queue", "x.weight=1")], 'queues "x" not found'),
        ([("queue", "q.weight=x")], "invalid weight 'x'"),
        ([("queue", "q.size=1")], "expected NAME.weight=N"),
        ([("queue", "q.capability.cpu=-1")], "expected at least 0"),
        ([("priority", "pod/w=nope")], "expected a PriorityClass"),
        ([("priority", "pod/w=99999999999")], "expected a PriorityClass"),
        ([("delete", "node/n1")], "use --remove-node n1"),
        ([("delete", "pod/nope")], 'pods "nope" not found'),
        ([("drian", "c")], "changes: [0]: Invalid value: 'drian': expected one of"),
        ([{"drain": 5}], "[0].drain: Invalid value: 5: expected a text: ZONE|NODE|SELECTOR"),
        ([{"drain": ""}], "expected a text"),
    ],
)
def test_bad_changes_are_one_clear_error(tmp_path: Path, changes: list[Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        what_if(cluster(tmp_path, *OBJECTS), changes)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_submitted_object_that_exists_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, deployment("api", 3), name="again.json")
    with pytest.raises(InputError, match="Deployment default/api: already exists in the cluster"):
        asked(tmp_path, OBJECTS, ("submit", str(file)))
    file = write(tmp_path, pod("w"), name="again.json")
    with pytest.raises(InputError, match="Pod default/w: already exists in the cluster"):
        asked(tmp_path, OBJECTS, ("submit", str(file)))
    file = write(tmp_path, node("n3"), name="again.json")
    with pytest.raises(InputError, match="use --add-nodes for nodes"):
        asked(tmp_path, OBJECTS, ("submit", str(file)))


def test_a_preview_is_of_a_pending_pod(tmp_path: Path) -> None:
    one = cluster(tmp_path, *OBJECTS)
    with pytest.raises(InputError, match="pod default/w: on node n2: expected a pending pod"):
        one.preempt_preview("default/w")
    with pytest.raises(InputError, match="expected a pending pod, or manifests of new pods"):
        one.preempt_preview()
