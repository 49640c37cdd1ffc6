"""deploy/ is consistent: its RBAC rules are exactly those that the client's requests need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import yaml
from packaging.requirements import Requirement

from stowplan.assembly.sessions.queue_models import QUEUE_MODELS
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.cli.commands.run import command
from stowplan.client.access_reviews import UserInfo, subject_access_review, token_review
from stowplan.client.resources import RESOURCES, ApiResource, resources_of
from stowplan.config.queue_models.queue_model_choice import KAI, MODEL_SCHEDULER_NAMES
from stowplan.config.session_configuration import SCHEDULER_NAMES
from stowplan.controllers.kueue.queued_job_kinds import JOB_KINDS
from stowplan.driver.live.competing_schedulers import LEASE_NAMESPACE
from stowplan.driver.live.configuration_files import (
    KUBE_SCHEDULER,
    leader_election_config,
    read_configuration_files,
)
from stowplan.driver.live.kueue.competing_kueue import KUEUE_LEASE
from stowplan.driver.live.kueue.kueue_manager import LEASE
from stowplan.driver.live.kueue.replicated_kinds import REPLICATED_KINDS
from stowplan.objects.podgroup import GROUP_API_VERSIONS, VOLCANO_API_VERSION, PodGroup, Queue

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NAMESPACE = "stowplan-system"
NAME = {"app.kubernetes.io/name": "stowplan"}

KEEPS = "x-kubernetes-preserve-unknown-fields"

VOLCANO_ONLY = {
    PodGroup: {"minTaskMember", "networkTopology", "subGroupPolicy"},
    Queue: {"deserved", "guarantee", "parent", "priority", "affinity"},
}
"""Fields of `spec` that only the definitions of Volcano's API group have."""

OPTIONAL = "kueue.yaml"
"""Rights of `run --act`, which are applied by hand."""

Tree = dict[str, Any]
Right = tuple[str, str, str]

KNOWN = {
    ("v1", "Namespace"),
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
}
CLUSTER_WIDE = {
    "Namespace",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
}


def trees() -> list[Tree]:
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    found: list[Tree] = []
    for name in kustomization["resources"]:
        found += [tree for tree in yaml.safe_load_all((DEPLOY / name).read_text()) if tree]
    return found


def one(kind: str, name: str = "stowplan") -> Tree:
    (found,) = [t for t in trees() if t["kind"] == kind and t["metadata"]["name"] == name]
    return found


def rights(rules: list[Tree]) -> Iterator[Right]:
    for rule in rules:
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def needed() -> set[Right]:
    """The rights that the client's requests take, see stowplan.client.requests."""
    found: set[Right] = set()
    owners = resources_of(QUEUE_MODELS[KAI].reads(KaiOptions()))
    for resource in dict.fromkeys((*RESOURCES, *owners)):
        group = resource.api_version.rpartition("/")[0]
        found |= {(group, resource.plural, "list"), (group, resource.plural, "watch")}
    found |= {("", "pods", "get"), ("", "pods", "delete")}
    found |= {("", "pods/binding", "create"), ("", "pods/status", "patch")}
    found |= {("", name, "patch") for name in ("persistentvolumes", "persistentvolumeclaims")}
    # The API server asks for the last one when status.allocation changes.
    claims = ("resourceclaims", "resourceclaims/status", "resourceclaims/binding")
    found |= {("resource.k8s.io", name, "patch") for name in claims}
    found |= {("resource.k8s.io", "resourceclaims", verb) for verb in ("create", "delete")}
    found |= {("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    for version in GROUP_API_VERSIONS:
        group = version.partition("/")[0]
        found |= {(group, name, "patch") for name in ("podgroups", "podgroups/status")}
    found.add(("scheduling.volcano.sh", "queues/status", "patch"))
    found.add(("scheduling.k8s.io", "podgroups/status", "patch"))
    found |= {("scheduling.run.ai", name, "patch") for name in ("podgroups", "podgroups/status")}
    found |= {("scheduling.run.ai", "bindrequests", verb) for verb in ("get", "create", "delete")}
    for request in (token_review("t"), subject_access_review(UserInfo("u"), "/metrics")):
        _, _, group, _, plural = request.path.split("/")
        found.add((group, plural, "create"))
    return found


def test_every_file_is_named_and_every_object_known() -> None:
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    files = {str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*.yaml")}
    named = set(kustomization["resources"])
    assert named | {"kustomization.yaml", OPTIONAL} == files
    assert OPTIONAL not in named
    for tree in trees():
        assert (tree["apiVersion"], tree["kind"]) in KNOWN
        expected = None if tree["kind"] in CLUSTER_WIDE else NAMESPACE
        if tree["metadata"]["name"] == "stowplan-lookout":
            expected = LEASE_NAMESPACE
        assert tree["metadata"].get("namespace") == expected, tree["metadata"]


def test_rights_are_what_requests_take_and_no_more() -> None:
    role = one("ClusterRole")
    given = list(rights(role["rules"]))
    assert len(given) == len(set(given))
    assert set(given) == needed()
    assert not any("*" in right for right in given)


def test_the_lease_may_be_held_and_no_other() -> None:
    role = one("Role", "stowplan-lease")
    assert set(rights(role["rules"])) == {
        ("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")
    }
    named = [rule.get("resourceNames") for rule in role["rules"] if "update" in rule["verbs"]]
    assert named == [["stowplan"]]


def test_rights_of_acting_for_kueue_are_what_its_kinds_need() -> None:
    every = list(yaml.safe_load_all((DEPLOY / OPTIONAL).read_text()))
    cluster, namespaced = (
        next(tree for tree in every if tree["kind"] == kind) for kind in ("ClusterRole", "Role")
    )
    given = set(rights(cluster["rules"]))
    assert not any("*" in right for right in given)
    for kind in REPLICATED_KINDS:
        group = kind.path.rpartition("/")[0]
        for verb in ("list", "watch"):
            assert (group, kind.resource.plural, verb) in given
    watched = {(group, plural) for group, plural, verb in given if verb == "watch"}
    assert watched == {
        (one.path.rpartition("/")[0], one.resource.plural) for one in REPLICATED_KINDS
    }
    for path in (one.path for one in JOB_KINDS):
        group, _, plural = path.rpartition("/")
        assert {(group, plural, "get"), (group, plural, "update")} <= given
        assert (group, f"{plural}/finalizers", "update") in given
    leases = [rule for rule in cluster["rules"] if rule["resources"] == ["leases"]]
    assert [rule["resourceNames"] for rule in leases] == [[KUEUE_LEASE]]
    named = [rule.get("resourceNames") for rule in namespaced["rules"] if "get" in rule["verbs"]]
    assert named == [[LEASE]]


def test_the_leases_of_other_schedulers_may_be_read_only() -> None:
    (rule,) = one("Role", "stowplan-lookout")["rules"]
    assert rule["verbs"] == ["get"]
    models = {name for names in MODEL_SCHEDULER_NAMES.values() for name in names}
    assert set(rule["resourceNames"]) == {KUBE_SCHEDULER, *SCHEDULER_NAMES, *models, "stowplan"}


@pytest.mark.parametrize("kind", ["ClusterRoleBinding", "RoleBinding"])
def test_role_bindings_name_the_service_account_of_the_deployment(kind: str) -> None:
    account = one("ServiceAccount")["metadata"]
    for tree in trees():
        if tree["kind"] == kind:
            (subject,) = tree["subjects"]
            assert (subject["name"], subject["namespace"]) == (account["name"], NAMESPACE)
            one(tree["roleRef"]["kind"], tree["roleRef"]["name"])
    assert one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]


def test_the_deployment_is_careful() -> None:
    spec = one("Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == NAME
    assert pod["securityContext"]["runAsNonRoot"]
    careful = container["securityContext"]
    assert careful["readOnlyRootFilesystem"]
    assert not careful["allowPrivilegeEscalation"]
    assert careful["capabilities"] == {"drop": ["ALL"]}
    assert pod["priorityClassName"] == one("PriorityClass")["metadata"]["name"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_its_arguments_are_those_of_the_command() -> None:
    (container,) = one("Deployment")["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    assert name == "run"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in arguments} <= known
    listen = next(a for a in arguments if a.startswith("--listen="))
    port = int(listen.rpartition(":")[2])
    assert port == container["ports"][0]["containerPort"]
    assert one("Service", "stowplan-metrics")["spec"]["ports"][0]["port"] == port


def test_its_configuration_can_be_read_and_names_the_lease_that_it_may_hold(tmp_path: Path) -> None:
    text = one("ConfigMap")["data"]["scheduler.yaml"]
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    deciders, written = read_configuration_files([str(file)])
    assert list(deciders.configuration.profiles) == ["stowplan"]
    terms = leader_election_config(deciders, written)
    assert terms is not None
    assert (terms.namespace, terms.name) == (NAMESPACE, "stowplan")


def test_selectors_select_the_deployment() -> None:
    assert one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == NAME
    assert one("PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert one("Service", "stowplan-metrics")["spec"]["selector"] == NAME


GROUPS = [resource for resource in RESOURCES if resource.kind in (PodGroup, Queue)]


def definition(resource: ApiResource) -> Tree:
    group = resource.api_version.partition("/")[0]
    return one("CustomResourceDefinition", f"{resource.plural}.{group}")


def fields_read(kind: type[Any]) -> Tree:
    """Field -> the fields in it, {} for none, of a type that is decoded from the API."""
    found: Tree = {}
    for field in msgspec.structs.fields(kind):
        inner = field.type if not get_args(field.type) else get_args(field.type)[0]
        is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        found[field.encode_name] = fields_read(inner) if is_struct else {}
    return found


def lacking(read: Tree, schema: Tree, path: str) -> Iterator[str]:
    properties = schema.get("properties") or schema.get("items", {}).get("properties", {})
    for name, inner in read.items():
        if name not in properties:
            yield f"{path}.{name}"
        else:
            yield from lacking(inner, properties[name], f"{path}.{name}")


@pytest.mark.parametrize("resource", GROUPS, ids=lambda r: f"{r.kind.__name__} {r.api_version}")
def test_definitions_have_the_fields_that_are_read(resource: ApiResource) -> None:
    tree = definition(resource)["spec"]
    (version,) = tree["versions"]
    assert resource.api_version == f"{tree['group']}/{version['name']}"
    assert (tree["scope"] == "Namespaced") == resource.is_namespaced
    assert version["subresources"] == {"status": {}}
    schema = version["schema"]["openAPIV3Schema"]
    read = {name: fields_read(resource.kind)[name] for name in ("spec", "status")}
    volcano_only = VOLCANO_ONLY[resource.kind]
    assert volcano_only <= read["spec"].keys()
    if resource.api_version != VOLCANO_API_VERSION:
        read["spec"] = {name: read["spec"][name] for name in read["spec"].keys() - volcano_only}
        read["status"].pop("allocated", None)
    assert list(lacking(read, schema, "")) == []
    del schema["properties"]["spec"]["properties"]
    assert set(lacking(read, schema, "")) >= {f".spec.{name}" for name in read["spec"]}


def test_definitions_keep_the_fields_of_volcano_that_are_not_read() -> None:
    """Where they take the place of Volcano's own nothing that it reads is dropped."""
    for resource in GROUPS:
        (version,) = definition(resource)["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        keeps = [properties[part].get(KEEPS, False) for part in ("spec", "status")]
        assert keeps == [True, True] or resource.api_version != VOLCANO_API_VERSION


def test_crds_of_a_protected_group_are_marked_unapproved() -> None:
    """An API server refuses others of *.k8s.io."""
    for tree in trees():
        if tree["kind"] == "CustomResourceDefinition" and tree["spec"]["group"].endswith(".k8s.io"):
            approval = tree["metadata"]["annotations"]["api-approved.kubernetes.io"]
            assert approval.startswith("unapproved")


def test_the_image_is_slim_and_runs_as_non_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert all(base.endswith("-slim") for base in bases)
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["stowplan"\]$', text, re.MULTILINE)
    kept = re.search(r"NUMBA_CACHE_DIR=(\S+)", text)
    assert kept is not None
    assert kept[1] in writable_places()
    assert (DEPLOY.parent / "requirements.lock").read_text().count("==") > 10
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (DEPLOY.parent / name).exists(), name


def writable_places() -> list[str]:
    pod = one("Deployment")["spec"]["template"]["spec"]
    empty = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    (container,) = pod["containers"]
    return [
        mount["mountPath"]
        for mount in container["volumeMounts"]
        if mount["name"] in empty and not mount.get("readOnly")
    ]


def test_the_pins_of_the_image_are_those_of_the_lock() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.search(r"grep -o '(.+)' requirements.lock", text)
    assert found is not None
    version = re.search(r"^FROM python:([\d.]+)-slim", text, re.MULTILINE)
    assert version is not None
    lock = (DEPLOY.parent / "requirements.lock").read_text()
    pins = pins_in(lock, found[1])
    assert len(pins) == len(re.findall(r"^\S+==", lock, re.MULTILINE)) > 10
    assert not any("hash" in pin or "\\" in pin for pin in pins)
    assert pinned_twice(pins, version[1]) == []
    # Without what a pin is for, two versions of one package are asked for, and pip finds neither.
    assert "numpy" in pinned_twice(pins_in(lock, "^[^ #]*==[^ ]*"), version[1])


def pins_in(lock: str, pattern: str) -> list[str]:
    return [pin for line in lock.splitlines() for pin in re.findall(pattern, line)]


def pinned_twice(pins: list[str], python: str) -> list[str]:
    given = {"python_version": python, "python_full_version": f"{python}.0"}
    found = [Requirement(pin) for pin in pins]
    names = [one.name for one in found if one.marker is None or one.marker.evaluate(given)]
    return sorted(name for name, times in Counter(names).items() if times > 1)
