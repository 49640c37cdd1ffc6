"""Tools of the ecosystem, started as their users start them, against `stowplan up`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from tests.contract.up_process import Up, up

Tree = dict[str, Any]
DEFINITION: Tree = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobs.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "jobs", "singular": "job", "kind": "Job"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
HANDLER = """
    import kopf

    @kopf.on.create("example.com", "v1", "jobs")
    def created(spec, name, **_):
        return {"seen": spec["size"] * 2}

    @kopf.on.delete("example.com", "v1", "jobs")
    def deleted(**_):
        pass
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture(scope="module")
def core(cluster: Up) -> Iterator[client.CoreV1Api]:
    api = config.new_client_from_config(str(cluster.kubeconfig))
    yield client.CoreV1Api(api)
    api.close()


def light(cluster: Up) -> Client:
    return Client(KubeConfig.from_file(str(cluster.kubeconfig)), field_manager="light")


def events(found: Client, kind: Any) -> Generator[tuple[str, Any]]:
    """Type and object of what a watch sends; it ends after five minutes."""
    yield from found.watch(kind, namespace="default", server_timeout=300)


def config_map(**data: str) -> Tree:
    meta = {"name": "settings", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def test_the_official_client_applies(core: client.CoreV1Api) -> None:
    def apply(manager: str, *, force: bool | None = None, **data: str) -> Any:
        return core.patch_namespaced_config_map(
            "settings",
            "default",
            config_map(**data),
            field_manager=manager,
            force=force,
            _content_type="application/apply-patch+yaml",
        )

    assert apply("one", a="1", b="1").data == {"a": "1", "b": "1"}
    with pytest.raises(ApiException) as error:
        apply("two", a="2")
    assert error.value.status == 409
    assert '"field":".data.a"' in error.value.body
    assert apply("two", force=True, a="2").data == {"a": "2", "b": "1"}
    assert apply("one").data == {"a": "2"}
    core.delete_namespaced_config_map("settings", "default")


def test_lightkube_applies(cluster: Up) -> None:
    found = light(cluster)
    tree = ConfigMap(metadata=ObjectMeta(name="light", namespace="default"), data={"a": "1"})
    made = found.apply(tree)
    (entry,) = made.metadata.managedFields
    assert (entry.manager, entry.operation) == ("light", "Apply")
    tree.data = {"a": "2"}
    with pytest.raises(ApiError, match='conflict with "light"'):
        found.apply(tree, field_manager="other")
    assert found.apply(tree, field_manager="other", force=True).data == {"a": "2"}
    names = [one.metadata.name for one in found.list(ConfigMap, namespace="default")]
    assert "light" in names
    with contextlib.closing(events(found, ConfigMap)) as seen:
        assert next(seen)[0] == "ADDED"
    found.delete(ConfigMap, "light", namespace="default")
    found.close()


def test_kopf_runs_an_operator(cluster: Up, tmp_path: Path) -> None:
    jobs = create_namespaced_resource("example.com", "v1", "Job", "jobs")
    found = light(cluster)
    core = config.new_client_from_config(str(cluster.kubeconfig))
    client.ApiextensionsV1Api(core).create_custom_resource_definition(DEFINITION)
    core.close()
    handler = tmp_path / "handler.py"
    handler.write_text(textwrap.dedent(HANDLER))
    command = [sys.executable, "-m", "kopf", "run", "--namespace", "default", str(handler)]
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with (tmp_path / "log").open("w") as log:
        operator = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            found.create(jobs(metadata=ObjectMeta(name="a", namespace="default"), spec={"size": 4}))
            with contextlib.closing(events(found, jobs)) as seen:
                one = next(one for _, one in seen if (one.status or {}).get("created"))
            assert one.status["created"] == {"seen": 8}, (tmp_path / "log").read_text()
            assert one.metadata.finalizers == ["kopf.zalando.org/KopfFinalizerMarker"]
            with contextlib.closing(events(found, jobs)) as seen:
                assert next(seen)[0] == "ADDED"
                found.delete(jobs, "a", namespace="default")
                assert any(type_ == "DELETED" for type_, _ in seen)
            assert [one.metadata.name for one in found.list(jobs, namespace="default")] == []
        finally:
            operator.terminate()
            operator.wait(timeout=240)
            found.close()
