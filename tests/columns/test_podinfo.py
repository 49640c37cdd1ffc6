"""What a pod takes is worked out once per template, whatever node its spec names."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.columns import PodInfo
from stowplan.objects.pod import ContainerStatus, PodStatus, ResourceRequirements
from stowplan.objects.pod_templates import PodTemplates
from stowplan.testing import pod


def test_pods_of_a_template_on_several_nodes_share_their_footprint() -> None:
    templates = PodTemplates()
    found = [
        PodInfo.of(templates.intern(pod(f"p{i}", cpu="500m", on=node)))
        for i, node in enumerate(("", "n1", "n2"))
    ]
    assert found[0].footprint.requested["cpu"] == 500
    assert all(one.footprint is found[0].footprint for one in found)


def test_one_that_is_being_resized_has_its_own() -> None:
    templates = PodTemplates()
    plain = templates.intern(pod("a", cpu="500m", on="n1"))
    name = plain.spec.containers[0].name
    running = ContainerStatus(name, ResourceRequirements(requests={"cpu": "800m"}))
    resized = replace(plain, status=PodStatus(container_statuses=(running,)))
    assert PodInfo.of(resized).footprint.requested["cpu"] == 800
    assert PodInfo.of(plain).footprint.requested["cpu"] == 500
