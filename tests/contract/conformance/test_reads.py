"""Watches, chunks, tables and discovery, as Kubernetes' own conformance tests ask for them.

Each test restates one of kubernetes v1.36, test/e2e/apimachinery; its name there is the docstring.
"""

from __future__ import annotations

from tests.contract.conformance.conformance_client import (
    CLUSTER_DEFINITIONS,
    JSON,
    MAPS,
    MERGE,
    PODS,
    TABLE,
    THINGS,
    ConformanceClient,
    config_map,
    definition,
    thing,
)

ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def relabel(client: ConformanceClient, name: str, **labels: str | None) -> None:
    client.done("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": labels}}, MERGE)


def test_watchers_see_what_matches_their_selectors() -> None:
    """watch.go: should observe add, update, and delete watch notifications on configmaps"""
    client = ConformanceClient()
    a, b, both = (
        client.watch(MAPS, f"labelSelector={one}") for one in ("l=A", "l=B", "l in (A,B)")
    )
    client.done("POST", MAPS, config_map("a", {"l": "A"}))
    client.done("PATCH", f"{MAPS}/a", {"data": {"n": "1"}}, MERGE)
    client.done("DELETE", f"{MAPS}/a")
    client.done("POST", MAPS, config_map("b", {"l": "B"}))
    client.done("DELETE", f"{MAPS}/b")
    of_a = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    of_b = [("ADDED", "b"), ("DELETED", "b")]
    assert (client.seen(a), client.seen(b), client.seen(both)) == (of_a, of_b, of_a + of_b)


def test_a_watch_from_a_version_begins_after_it() -> None:
    """watch.go: should be able to start watching from a specific resource version"""
    client = ConformanceClient()
    client.done("POST", MAPS, config_map("a"))
    first = client.done("PATCH", f"{MAPS}/a", {"data": {"n": "1"}}, MERGE).version
    client.done("PATCH", f"{MAPS}/a", {"data": {"n": "2"}}, MERGE)
    client.done("DELETE", f"{MAPS}/a")
    events = client.events(client.watch(MAPS, f"resourceVersion={first}"))
    assert [one["type"] for one in events] == ["MODIFIED", "DELETED"]
    assert [one["object"]["data"] for one in events] == [{"n": "2"}] * 2


def test_a_watch_goes_on_where_another_ended() -> None:
    """watch.go: should be able to restart watching from the last resource version observed by the
    previous watch"""
    client = ConformanceClient()
    start = client.send("GET", MAPS).version
    watch = client.watch(MAPS, f"resourceVersion={start}")
    client.done("POST", MAPS, config_map("a"))
    last = client.events(watch)[-1]["object"]["metadata"]["resourceVersion"]
    client.done("PATCH", f"{MAPS}/a", {"data": {"n": "1"}}, MERGE)
    client.done("DELETE", f"{MAPS}/a")
    again = client.seen(client.watch(MAPS, f"resourceVersion={last}"))
    assert again == [("MODIFIED", "a"), ("DELETED", "a")]


def test_an_object_that_no_longer_matches_is_seen_as_deleted() -> None:
    """watch.go: should observe an object deletion if it stops meeting the requirements of the
    selector"""
    client = ConformanceClient()
    watch = client.watch(MAPS, "labelSelector=l=A")
    client.done("POST", MAPS, config_map("a", {"l": "A"}))
    relabel(client, "a", l="B")
    client.done("PATCH", f"{MAPS}/a", {"data": {"n": "1"}}, MERGE)
    relabel(client, "a", l="A")
    client.done("DELETE", f"{MAPS}/a")
    types = [type_ for type_, _ in client.seen(watch)]
    assert types == ["ADDED", "DELETED", "ADDED", "DELETED"]


def test_watches_from_any_version_see_the_same_order() -> None:
    """watch.go: should receive events on concurrent watches in same order"""
    client = ConformanceClient()
    versions = [client.send("GET", MAPS).version]
    for n in range(12):
        made = client.done("POST", MAPS, config_map(f"m{n % 4}-{n}"))
        versions.append(made.version)
        if n % 3 == 2:
            client.done("DELETE", f"{MAPS}/m{n % 4}-{n}")
    streams = [
        [
            one["object"]["metadata"]["resourceVersion"]
            for one in client.events(client.watch(MAPS, f"resourceVersion={version}"))
        ]
        for version in versions
    ]
    longest = streams[0]
    assert len(longest) == 16
    assert all(longest[len(longest) - len(one) :] == one for one in streams)


def test_a_list_comes_in_chunks() -> None:
    """chunking.go: should return chunks of results for list calls"""
    client = ConformanceClient()
    wanted = sorted(f"m{n:02}" for n in range(40))
    for name in reversed(wanted):
        client.done("POST", MAPS, config_map(name))
    found: list[str] = []
    token, versions = "", set()
    while True:
        page = client.done("GET", f"{MAPS}?limit=7&continue={token}")
        found += page.names()
        versions.add(page.version)
        token = page.tree["metadata"].get("continue", "")
        left = page.tree["metadata"].get("remainingItemCount", 0)
        assert left == len(wanted) - len(found)
        if not token:
            break
    assert found == wanted
    assert len(versions) == 1


def test_the_chunks_are_those_of_the_first() -> None:
    """chunking.go: should return chunks of results for list calls (at one resource version)"""
    client = ConformanceClient()
    for name in "abc":
        client.done("POST", MAPS, config_map(name))
    page = client.done("GET", f"{MAPS}?limit=2")
    client.done("POST", MAPS, config_map("d"))
    client.done("DELETE", f"{MAPS}/c")
    rest = client.done("GET", f"{MAPS}?limit=2&continue={page.tree['metadata']['continue']}")
    assert (rest.names(), rest.version) == (["c"], page.version)


def test_a_table_of_a_pod() -> None:
    """table_conversion.go: should return pod details"""
    client = ConformanceClient()
    container = {"name": "c", "image": "i"}
    client.done("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    table = client.send("GET", f"{PODS}/p", accept=TABLE).tree
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [one["name"] for one in table["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    (row,) = table["rows"]
    assert row["cells"][0] == "p"
    assert row["object"]["kind"] == "PartialObjectMetadata"


def test_a_table_comes_in_chunks() -> None:
    """table_conversion.go: should return chunks of table results for list calls"""
    client = ConformanceClient()
    for name in "abc":
        client.done("POST", MAPS, config_map(name))
    page = client.send("GET", f"{MAPS}?limit=2", accept=TABLE).tree
    token = page["metadata"]["continue"]
    rest = client.send("GET", f"{MAPS}?continue={token}", accept=TABLE).tree
    assert [one["cells"][0] for one in page["rows"] + rest["rows"]] == ["a", "b", "c"]
    assert "continue" not in rest["metadata"]


def test_a_table_of_nodes() -> None:
    """table_conversion.go: should return generic metadata details across all namespaces for
    nodes"""
    client = ConformanceClient(nodes=2)
    table = client.send("GET", "/api/v1/nodes", accept=TABLE).tree
    assert len(table["rows"]) == 2
    assert all(len(one["cells"]) == len(table["columnDefinitions"]) for one in table["rows"])
    assert table["metadata"]["resourceVersion"]


def test_no_table_where_nothing_is_stored() -> None:
    """table_conversion.go: should return a 406 for a backend which does not implement metadata"""
    client = ConformanceClient()
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    refused = client.send("POST", path, body, accept=TABLE)
    assert refused.status == 406
    assert refused.message.startswith("only the following media types are accepted: application/")


def test_every_group_names_a_preferred_version() -> None:
    """discovery.go: should validate PreferredVersion for each APIGroup"""
    client = ConformanceClient()
    groups = client.done("GET", "/apis").tree["groups"]
    assert len(groups) > 10
    for group in groups:
        alone = client.done("GET", f"/apis/{group['name']}").tree
        assert group["preferredVersion"] in group["versions"]
        assert alone["preferredVersion"] == group["preferredVersion"]


def test_resources_are_found_by_group_and_version() -> None:
    """discovery.go: should locate the groupVersion and a resource within each APIGroup"""
    client = ConformanceClient()
    wanted = {
        "apps/v1": "deployments", "batch/v1": "jobs", "policy/v1": "poddisruptionbudgets",
        "scheduling.k8s.io/v1": "priorityclasses", "storage.k8s.io/v1": "storageclasses",
        "rbac.authorization.k8s.io/v1": "clusterroles", "coordination.k8s.io/v1": "leases",
        "apiextensions.k8s.io/v1": "customresourcedefinitions",
        "admissionregistration.k8s.io/v1": "validatingwebhookconfigurations",
        "networking.k8s.io/v1": "ingresses", "discovery.k8s.io/v1": "endpointslices",
        "node.k8s.io/v1": "runtimeclasses", "resource.k8s.io/v1": "resourceclaims",
    }  # fmt: skip
    for version, resource in wanted.items():
        page = client.done("GET", f"/apis/{version}").tree
        assert page["groupVersion"] == version
        assert resource in {one["name"] for one in page["resources"]}


def test_discovery_in_one_document() -> None:
    """aggregated_discovery.go: should support raw aggregated discovery endpoint Accept headers"""
    client = ConformanceClient()
    media = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
    for path in ("/api", "/apis"):
        found = client.send("GET", path, accept=f"{media},{JSON}").tree
        assert found["kind"] == "APIGroupDiscoveryList"
        assert found["items"]


def test_custom_kinds_are_in_discovery() -> None:
    """custom_resource_definition.go: should include custom resource definition resources in
    discovery documents; discovery.go: Custom resource should have storage version hash"""
    client = ConformanceClient()
    client.done("POST", CLUSTER_DEFINITIONS, definition(ANY))
    groups = client.done("GET", "/apis").tree["groups"]
    assert "example.com" in {one["name"] for one in groups}
    page = client.done("GET", "/apis/example.com/v1").tree
    (found,) = (one for one in page["resources"] if one["name"] == "things")
    assert (found["kind"], found["namespaced"]) == ("Thing", True)
    assert found["storageVersionHash"]
    client.done("DELETE", f"{CLUSTER_DEFINITIONS}/things.example.com")
    assert client.send("GET", "/apis/example.com/v1").status == 404


def test_custom_kinds_are_in_openapi() -> None:
    """crd_publish_openapi.go: works for CRD with validation schema"""
    client = ConformanceClient()
    size = {"type": "integer", "description": "how big"}
    spec = {"type": "object", "required": ["size"], "properties": {"size": size}}
    client.done(
        "POST", CLUSTER_DEFINITIONS, definition({"type": "object", "properties": {"spec": spec}})
    )
    page = client.done("GET", "/openapi/v3/apis/example.com/v1").tree
    schema = page["components"]["schemas"]["com.example.v1.Thing"]
    assert schema["properties"]["spec"]["properties"]["size"]["description"] == "how big"
    (ids,) = schema["x-kubernetes-group-version-kind"]
    assert ids == {"group": "example.com", "kind": "Thing", "version": "v1"}


def test_custom_kinds_are_selected_by_their_fields() -> None:
    """crd_selectable_fields.go: MUST list and watch custom resources matching the field selector"""
    client = ConformanceClient()
    schema = {
        "type": "object",
        "properties": {"color": {"type": "string"}, "size": {"type": "string"}},
    }
    fields = [{"jsonPath": ".color"}, {"jsonPath": ".size"}]
    client.done("POST", CLUSTER_DEFINITIONS, definition(schema, selectableFields=fields))
    watch = client.watch(THINGS, "fieldSelector=color=blue")
    for name, color, size in (("a", "blue", "L"), ("b", "red", "S"), ("c", "blue", "S")):
        client.done("POST", THINGS, thing(name, color=color, size=size))
    assert client.done("GET", f"{THINGS}?fieldSelector=color=blue").names() == ["a", "c"]
    assert client.done("GET", f"{THINGS}?fieldSelector=color=blue,size=S").names() == ["c"]
    client.done("PATCH", f"{THINGS}/a", {"color": "green"}, MERGE)
    assert client.seen(watch) == [("ADDED", "a"), ("ADDED", "c"), ("DELETED", "a")]
    assert client.send("GET", f"{THINGS}?fieldSelector=spec.none=x").status == 400
