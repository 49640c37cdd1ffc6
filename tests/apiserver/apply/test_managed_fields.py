"""managedFields of in-process writes, and of a server that keeps none."""

import numpy as np

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apiserver.apply.builtin_field_types import type_marks
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer

NOW = 1_790_000_000.0


def server(**options: bool) -> ApiServer:
    made = ApiServer(
        ApiServerOptions(registry=built_in_registry(), **options), np.random.default_rng(1)
    )
    create_bootstrap_objects(made, NOW)
    return made


def test_writes_in_the_process_have_a_manager() -> None:
    cluster = server()
    maps = cluster.registry.find("", "v1", "configmaps")
    assert maps is not None
    new = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    cluster.create(maps, new, NOW, "default")
    cluster.modify(maps, "default", "c", lambda obj: obj["data"].update(b="2"), NOW + 5)
    stored = cluster.get(maps, "default", "c")
    assert stored is not None
    (entry,) = stored["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("kube-controller-manager", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}
    assert entry["time"] == "2026-09-21T14:13:25Z"


def test_a_server_without_them_stores_none() -> None:
    cluster = server(keeps_managed_fields=False)
    namespaces = cluster.registry.find("", "v1", "namespaces")
    assert namespaces is not None
    assert all("managedFields" not in one["metadata"] for one in cluster.list(namespaces))


def test_the_table_of_list_types_names_fields_that_exist() -> None:
    known = set(type_tables.names())
    for name, marks in type_marks().items():
        if name in known:
            assert set(marks.fields) <= set(type_tables.struct(name).fields), name
