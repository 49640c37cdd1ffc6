"""The status of a ResourceClaim: who may write which part, and what is valid.

Every answer is that of kube-apiserver 1.36.2 to the same request.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.rbac import GROUP
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from tests.apiserver.test_rbac import rule

Tree = dict[str, Any]
NOW = 1_800_000_000.0
DRIVER = "gpu.example.com"
RESULT = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}
SELECTOR = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
}
ALLOCATED: Tree = {
    "allocation": {"devices": {"results": [RESULT]}, "nodeSelector": SELECTOR},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}
DEVICE: Tree = {"driver": DRIVER, "pool": "n1", "device": "d0"}
ANN = User("ann", groups=("system:authenticated",))
DRIVER_POD = User(
    "system:serviceaccount:gpu:driver",
    groups=("system:authenticated",),
    extra={"authentication.kubernetes.io/node-name": ("n1",)},
)
ON_BINDING = rule("update | resource.k8s.io | resourceclaims/binding")


def server_of(*rules: Tree, status: Tree | None = None) -> ApiServer:
    """A server with claim c, where all users have these rules."""
    access = TokenRbacAccess(StaticTokens())
    options = ApiServerOptions(registry=built_in_registry(), access=access, observers=(access,))
    server = ApiServer(options, np.random.default_rng(1))
    create(server, GROUP, "ClusterRole", rules=list(rules))
    subject = {"kind": "Group", "apiGroup": GROUP, "name": "system:authenticated"}
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "c"}
    create(server, GROUP, "ClusterRoleBinding", roleRef=reference, subjects=[subject])
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    create(server, "resource.k8s.io", "ResourceClaim", spec={"devices": {"requests": [request]}})
    if status is not None:
        write(server, status, None)
    return server


def create(server: ApiServer, group: str, kind: str, **content: Any) -> None:
    resource = server.registry.by_kind(group, "v1", kind)
    assert resource is not None
    place = "default" if resource.namespaced else ""
    server.create(resource, {"metadata": {"name": "c"}, **content}, NOW, place)


def write(server: ApiServer, status: Tree, user: User | None) -> Tree:
    """Write the status of claim c; returns the stored one. user: None for the administrator."""
    resource = server.registry.by_kind("resource.k8s.io", "v1", "ResourceClaim")
    assert resource is not None
    claim = server.get(resource, "default", "c")
    assert claim is not None
    claim["status"] = copy.deepcopy(status)
    given = () if user is None else (user,)
    stored: Tree = server.update_status(resource, claim, NOW, *given)["status"]
    return stored


def refusal(server: ApiServer, status: Tree, user: User | None = None) -> str:
    """Why the status is refused; "" where it is written."""
    try:
        write(server, status, user)
    except ApiError as refused:
        return refused.message.partition("is invalid: ")[2]
    return ""


def test_allocation_and_reservations_need_the_right_to_bind() -> None:
    text = (
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires "
        'resource="resourceclaims/binding", verb="update" permission: '
        'resourceclaims.resource.k8s.io is forbidden: User "ann" cannot update resource '
        '"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'
    )
    assert refusal(server_of(), ALLOCATED, ANN) == text
    patching = rule("patch | resource.k8s.io | resourceclaims/binding")
    assert refusal(server_of(patching), ALLOCATED, ANN) == text
    assert refusal(server_of(ON_BINDING), ALLOCATED, ANN) == ""
    # What stays as it is needs no right.
    assert refusal(server_of(status=ALLOCATED), ALLOCATED, ANN) == ""


@pytest.mark.parametrize(
    ("user", "verb", "driver", "is_allowed"),
    [
        (ANN, "arbitrary-node:update", DRIVER, True),
        (ANN, "arbitrary-node:update", "net.example.com", False),
        (ANN, "associated-node:update", DRIVER, False),
        (ANN, "update", DRIVER, False),
        (DRIVER_POD, "associated-node:update", DRIVER, True),
        (DRIVER_POD, "arbitrary-node:update", DRIVER, True),
    ],
)
def test_the_status_of_devices_needs_the_right_of_the_driver(
    user: User, verb: str, driver: str, is_allowed: bool
) -> None:
    on_driver = rule(f"{verb} | resource.k8s.io | resourceclaims/driver")
    on_driver["resourceNames"] = [driver]
    found = refusal(
        server_of(on_driver, status=ALLOCATED), {**ALLOCATED, "devices": [DEVICE]}, user
    )
    assert (found == "") == is_allowed
    if not is_allowed:
        assert 'requires resource="resourceclaims/driver", verb="[arbitrary-node:update]"' in found


def test_a_driver_on_another_node_is_not_associated() -> None:
    on_driver = rule("associated-node:update | resource.k8s.io | resourceclaims/driver")
    elsewhere = copy.deepcopy(ALLOCATED)
    fields = elsewhere["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"]
    fields[0]["values"] = ["n2"]
    found = refusal(
        server_of(on_driver, status=elsewhere), {**elsewhere, "devices": [DEVICE]}, DRIVER_POD
    )
    assert "status.devices: Forbidden" in found


def test_the_status_of_devices_goes_with_the_allocation() -> None:
    server = server_of(status={**ALLOCATED, "devices": [DEVICE]})
    assert write(server, {"devices": [DEVICE]}, None) == {}


_SHARED = '{{"Driver":"{}","Pool":"n1","Device":"{}","ShareID":""}}'


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (
            {"device": "d9"},
            f"status.devices[0]: Invalid value: {_SHARED.format(DRIVER, 'd9')}: "
            "must be an allocated device in the claim",
        ),
        (
            {"data": [1]},
            'status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object',
        ),
        (
            {"networkData": {"ips": ["1.2.3"], "interfaceName": "x" * 257}},
            "[status.devices[0].networkData.interfaceName: Too long: may not be more than 256 "
            'bytes, status.devices[0].networkData.ips[0]: Invalid value: "1.2.3": must be a valid '
            "address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)]",
        ),
        (
            {"networkData": {"ips": ["2001:DB8::1/64"]}},
            'status.devices[0].networkData.ips[0]: Invalid value: "2001:DB8::1/64": must be in '
            'canonical form ("2001:db8::1/64")',
        ),
    ],
)
def test_what_a_driver_reports_is_checked(device: Tree, text: str) -> None:
    given = {**ALLOCATED, "devices": [{**DEVICE, **device}]}
    assert refusal(server_of(status=ALLOCATED), given) == text


def test_a_device_is_reported_once() -> None:
    given = {**ALLOCATED, "devices": [DEVICE, DEVICE]}
    text = f"status.devices[1]: Duplicate value: {_SHARED.format(DRIVER, 'd0')}"
    assert refusal(server_of(status=ALLOCATED), given) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"pool": ""}, "status.allocation.devices.results[0].pool: Required value"),
        (
            {"shareID": "not-a-uid"},
            'status.allocation.devices.results[0].shareID: Invalid value: "not-a-uid": '
            "error validating uid: invalid UUID length: 9",
        ),
        (
            {"adminAccess": True},
            "status.allocation.devices.results[0].adminAccess: Forbidden: admin access to devices "
            "requires the `resource.kubernetes.io/admin-access: true` label on the containing "
            "namespace",
        ),
    ],
)
def test_results_are_checked(result: Tree, text: str) -> None:
    given = {"allocation": {"devices": {"results": [{**RESULT, **result}]}}}
    assert refusal(server_of(), given) == text
