"""Descriptions of fields from the official Python client."""

from __future__ import annotations

import pytest

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apiserver.discovery.openapi_v3 import openapi_document
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.driver import api_field_texts
from stowplan.driver.api_field_texts import client_field_texts, model_texts

BEFORE_37 = '''
class V1Example(object):
    attribute_map = {
        'first_field': 'firstField',
        'name': 'name'
    }

    @property
    def first_field(self):
        """Gets the first_field of this V1Example.  # noqa: E501

        How many of them there are.  # noqa: E501
        Two lines.  # noqa: E501

        :return: The first_field of this V1Example.  # noqa: E501
        :rtype: int
        """
        return self._first_field

    @first_field.setter
    def first_field(self, first_field):
        """Sets the first_field of this V1Example.

        How many of them there are.  # noqa: E501

        :param first_field: The first_field of this V1Example.  # noqa: E501
        """
        self._first_field = first_field

    @property
    def name(self):
        """Gets the name of this V1Example.  # noqa: E501


        :return: The name of this V1Example.  # noqa: E501
        """
        return self._name
'''


def test_models_before_37() -> None:
    assert model_texts(BEFORE_37) == {"firstField": "How many of them there are. Two lines."}


def test_models_of_the_installed_client() -> None:
    texts = client_field_texts("io.k8s.api.core.v1.Taint")
    assert set(texts) == {"", "key", "value", "effect", "timeAdded"}
    assert "NoSchedule, PreferNoSchedule and NoExecute" in texts["effect"]
    assert "Taint" in texts[""]
    assert client_field_texts("io.k8s.api.core.v1.PodDNSConfig")["nameservers"]
    assert client_field_texts("io.k8s.api.resource.v1.ResourceClaim")[""]


@pytest.mark.parametrize("struct", ["Foo", "io.k8s.api.core.v1.NoSuchKind", "com.ex.v1.Foo"])
def test_a_type_that_the_client_does_not_know_has_none(struct: str) -> None:
    assert client_field_texts(struct) == {}


def test_nothing_is_needed_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_field_texts, "_PACKAGE", "no_such_package")
    api_field_texts._models_folder.cache_clear()
    try:
        assert client_field_texts("io.k8s.api.core.v1.Taint") == {}
    finally:
        api_field_texts._models_folder.cache_clear()


def test_they_are_used_where_ours_would_be() -> None:
    registry = built_in_registry(workloads=True)
    nodes = [one for one in registry.all() if one.api_version == "v1" and one.plural == "nodes"]
    schemas = {
        name: openapi_document(nodes, *texts)["components"]["schemas"]
        for name, texts in (("ours", ()), ("theirs", (client_field_texts,)))
    }
    ours, theirs = (
        schemas[name]["io.k8s.api.core.v1.Taint"]["properties"]["effect"]["description"]
        for name in ("ours", "theirs")
    )
    assert ours == "NoSchedule, PreferNoSchedule or NoExecute."
    assert theirs != ours
    assert theirs == client_field_texts("io.k8s.api.core.v1.Taint")["effect"]


DESCRIBED = (
    "core/v1.PodSpec core/v1.Container core/v1.Affinity core/v1.Toleration core/v1.NodeSpec "
    "core/v1.TopologySpreadConstraint core/v1.PodAffinityTerm apps/v1.DeploymentSpec "
    "apps/v1.StatefulSetSpec apps/v1.DaemonSetSpec batch/v1.JobSpec batch/v1.CronJobSpec "
    "resource/v1.ExactDeviceRequest resource/v1.ResourceSliceSpec scheduling/v1.PriorityClass "
    "policy/v1.PodDisruptionBudgetSpec"
)


@pytest.mark.parametrize("name", DESCRIBED.split())
def test_our_own_words_describe_what_scheduling_reads(name: str) -> None:
    struct = type_tables.struct(name)
    missing = {field.name for field in struct.fields.values() if not field.about}
    assert missing <= {"persistentVolumeClaimRetentionPolicy", "nodeAllocatableResourceMappings",
                       "configSource", "externalID", "serviceAccount"}  # fmt: skip


def test_our_own_words_describe_seven_hundred_fields() -> None:
    registry = built_in_registry(workloads=True)
    groups = {
        "",
        "apps",
        "batch",
        "scheduling.k8s.io",
        "resource.k8s.io",
        "policy",
        "storage.k8s.io",
    }
    kinds = [one for one in registry.all() if one.group in groups]
    schemas = openapi_document(kinds)["components"]["schemas"]
    described = {
        (name, field)
        for name, schema in schemas.items()
        for field, printed in (schema.get("properties") or {}).items()
        if printed.get("description")
    }
    assert len(described) >= 700
