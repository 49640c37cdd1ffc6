"""In-tree volumes as CSI volumes: handles, zones, and what cannot be translated."""

from typing import Any

import pytest

from stowplan.objects.storage import PersistentVolume
from stowplan.objects.volume import Volume
from stowplan.plugins.volumes.csi_translation import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    TranslationError,
    in_tree_plugin_by_name,
    in_tree_plugin_of,
    translate_in_tree_volume,
    translate_inline_volume,
)
from tests.plugins.volume_cases import pod, terms, volume, within

Tree = dict[str, Any]
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def csi(one: PersistentVolume) -> PersistentVolume:
    plugin = in_tree_plugin_of(one.spec)
    assert plugin is not None
    return translate_in_tree_volume(one, plugin)


@pytest.mark.parametrize(
    ("source", "labels", "driver", "handle"),
    [
        (EBS, {}, "ebs.csi.aws.com", "vol-1"),
        (
            {"awsElasticBlockStore": {"volumeID": "aws://eu-1a/vol-2"}},
            {},
            "ebs.csi.aws.com",
            "vol-2",
        ),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-3"}}, {}, "ebs.csi.aws.com", "vol-3"),
        ({"cinder": {"volumeID": "x"}}, {}, "cinder.csi.openstack.org", "x"),
        ({"portworxVolume": {"volumeID": "y"}}, {}, "pxd.portworx.com", "y"),
        ({"azureDisk": {"diskURI": "/z"}}, {}, "disk.csi.azure.com", "/z"),
        ({"azureDisk": {"diskURI": "/z", "kind": "Managed"}}, {}, "disk.csi.azure.com", "/z"),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {},
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONE: "eu-west-1"},
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/eu-west-1/disks/d",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {BETA_ZONE: "eu-west-1__eu-west-2", ZONE: "us-east-1"},
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/regions/eu-west/disks/d",
        ),
    ],
)
def test_handles(source: Tree, labels: dict[str, str], driver: str, handle: str) -> None:
    found = csi(volume("p", source=source, labels=labels)).spec.csi
    assert found is not None
    assert (found.driver, found.volume_handle) == (driver, handle)


@pytest.mark.parametrize(
    ("source", "labels", "why"),
    [
        (
            {"awsElasticBlockStore": {"volumeID": "aws://a/disk"}},
            {},
            "failed to translate Kubernetes ID to EBS Volume ID "
            "Invalid format for AWS volume (aws://a/disk)",
        ),
        (
            {"azureDisk": {"diskURI": "/z", "kind": "Shared"}},
            {},
            "kind(Shared) is not supported in csi migration",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONE: "eu-west-1__nowhere"},
            "failed to get region from zones: zone in unexpected format, "
            "expected: {locale}-{region}-{zone}, got: nowhere",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {ZONE: "us-east-1__eu-west-1"},
            "failed to get region from zones: "
            "multiple or no regions gotten from zones, got: map[eu-west:{} us-east:{}]",
        ),
    ],
)
def test_what_cannot_be_translated(source: Tree, labels: dict[str, str], why: str) -> None:
    with pytest.raises(TranslationError) as fault:
        csi(volume("p", source=source, labels=labels))
    assert str(fault.value) == why


@pytest.mark.parametrize(
    ("affinity", "labels", "wanted"),
    [
        (None, {}, None),
        (within(ZONE, "a"), {}, terms(f"{EBS_ZONE} In a")),
        (within(BETA_ZONE, "a"), {}, terms(f"{EBS_ZONE} In a")),
        # Labels count only where the affinity says nothing of zones.
        (within(ZONE, "a"), {ZONE: "b"}, terms(f"{EBS_ZONE} In a")),
        (None, {ZONE: "b"}, terms(f"{EBS_ZONE} In b")),
        (None, {BETA_ZONE: " b__a__"}, terms(f"{EBS_ZONE} In a b")),
        (None, {ZONE: "__"}, None),
        (within("disk", "x"), {ZONE: "b"}, terms(f"disk In x and {EBS_ZONE} In b")),
        (
            terms("disk In x", "disk In y"),
            {ZONE: "b"},
            terms(f"disk In x and {EBS_ZONE} In b", f"disk In y and {EBS_ZONE} In b"),
        ),
        # The old region label becomes the new one, but only beside the old zone label.
        (
            terms(f"{BETA_ZONE} In a and {BETA_REGION} In r"),
            {},
            terms(f"{EBS_ZONE} In a and {REGION} In r"),
        ),
        (
            terms(f"{ZONE} In a and {BETA_REGION} In r"),
            {},
            terms(f"{EBS_ZONE} In a and {BETA_REGION} In r"),
        ),
        (terms(f"{ZONE} Exists"), {}, terms(f"{ZONE} Exists")),
    ],
)
def test_zones(affinity: Tree | None, labels: dict[str, str], wanted: Tree | None) -> None:
    found = csi(volume("p", source=EBS, labels=labels, affinity=affinity))
    assert found.spec.node_affinity == volume("p", affinity=wanted).spec.node_affinity


def test_disks_without_zones_keep_their_affinity() -> None:
    one = volume("p", source={"azureDisk": {"diskURI": "/z"}}, affinity=within(ZONE, "a"))
    assert csi(one).spec.node_affinity == one.spec.node_affinity


def test_names() -> None:
    plugin = in_tree_plugin_by_name("kubernetes.io/azure-file")
    assert plugin is not None
    assert not plugin.is_migrated
    assert in_tree_plugin_by_name("csi.example.com") is None
    assert in_tree_plugin_of(volume("p").spec) is None


def test_inline_volumes() -> None:
    def inline(source: Tree) -> Volume:
        return pod(source).spec.volumes[0]

    disk = inline({"gcePersistentDisk": {"pdName": "d"}})
    plugin = in_tree_plugin_of(disk)
    assert plugin is not None
    handle = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"
    assert translate_inline_volume(disk, plugin).volume_handle == handle
    assert in_tree_plugin_of(inline({"hostPath": {"path": "/"}})) is None
