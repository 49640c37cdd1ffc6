"""Asking as somebody else: who may, who one is then, and the first refusal that is told."""

from collections.abc import Mapping

import pytest

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.impersonation import SEPARATOR, impersonate, impersonated_user
from stowplan.apiserver.auth.rbac import RbacAuthorizer

MASTER = User("root", groups=("system:masters",))
ANN = User("ann", groups=("system:authenticated",))
LIST = Attributes("list", "", "v1", "pods", "", "au")


def become(asking: User, headers: Mapping[str, str], rbac: RbacAuthorizer | None = None) -> User:
    wanted = impersonated_user(headers)
    assert wanted is not None
    return impersonate(asking, wanted, LIST, rbac or RbacAuthorizer())


def granted(*rules: str) -> RbacAuthorizer:
    """Rights of ann: `verb group/resource[/subresource] [names]`."""
    listed = []
    for line in rules:
        verb, what, *names = line.split()
        group, resource = what.split("/", 1)
        listed.append(
            {"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names}
        )
    rbac = RbacAuthorizer()
    rbac.put("ClusterRole", "", "r", {"rules": listed})
    subjects = [{"kind": "User", "name": "ann"}]
    ref = {"kind": "ClusterRole", "name": "r"}
    rbac.put("ClusterRoleBinding", "", "b", {"roleRef": ref, "subjects": subjects})
    return rbac


def test_no_headers_no_impersonation() -> None:
    assert impersonated_user({"authorization": "x"}) is None


@pytest.mark.parametrize(
    ("headers", "printed"),
    [
        (
            {"impersonate-group": "system:masters"},
            'UID:"", Groups:[]string{"system:masters"}, Extra:map[string][]string(nil)',
        ),
        (
            {"impersonate-uid": "7"},
            'UID:"7", Groups:[]string(nil), Extra:map[string][]string(nil)',
        ),
        (
            {"impersonate-extra-b%2fc": f"1{SEPARATOR}2", "impersonate-extra-a": "x"},
            'UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"x"}, '
            '"b/c":[]string{"1", "2"}}',
        ),
    ],
)
def test_a_name_is_needed(headers: dict[str, str], printed: str) -> None:
    with pytest.raises(ApiError) as refused:
        impersonated_user(headers)
    text = f'requested &user.DefaultInfo{{Name:"", {printed}}} without impersonating a user name'
    assert (refused.value.code, refused.value.message) == (400, text)


@pytest.mark.parametrize(
    ("headers", "name", "groups"),
    [
        ({"impersonate-user": "bob"}, "bob", ("system:authenticated",)),
        (
            {"impersonate-user": "x", "impersonate-group": f"a{SEPARATOR}system:masters"},
            "x",
            ("a", "system:masters", "system:authenticated"),
        ),
        (
            {"impersonate-user": "system:node:n1"},
            "system:node:n1",
            ("system:nodes", "system:authenticated"),
        ),
        (
            {"impersonate-user": "system:serviceaccount:ns:sa"},
            "system:serviceaccount:ns:sa",
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        ({"impersonate-user": "system:anonymous"}, "system:anonymous", ("system:unauthenticated",)),
        (
            {"impersonate-user": "x", "impersonate-group": "system:unauthenticated"},
            "x",
            ("system:unauthenticated",),
        ),
    ],
)
def test_system_masters_may_impersonate_every_user(
    headers: dict[str, str], name: str, groups: tuple[str, ...]
) -> None:
    user = become(MASTER, headers)
    assert (user.name, user.groups) == (name, groups)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (
            {"impersonate-user": "admin"},
            'pods is forbidden: User "ann" cannot impersonate-on:user-info:list resource "pods" in '
            'API group "" in the namespace "au"',
        ),
        (
            {"impersonate-user": "system:serviceaccount:ns:sa"},
            'pods is forbidden: User "ann" cannot impersonate-on:serviceaccount:list resource '
            '"pods" in API group "" in the namespace "au"',
        ),
        (
            {"impersonate-user": "system:node:n1"},
            'pods is forbidden: User "ann" cannot impersonate-on:arbitrary-node:list resource '
            '"pods" in API group "" in the namespace "au"',
        ),
        (
            {"impersonate-user": "system:node:n1", "impersonate-group": "g"},
            'users "system:node:n1" is forbidden: User "ann" cannot impersonate resource "users" '
            'in API group "" at the cluster scope',
        ),
    ],
)
def test_the_first_refusal_is_reported(headers: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as refused:
        become(ANN, headers)
    assert (refused.value.code, refused.value.message) == (403, text)


def test_the_old_verb_still_suffices() -> None:
    headers = {"impersonate-user": "bob", "impersonate-group": "g"}
    only_user = granted("impersonate /users bob")
    with pytest.raises(ApiError):
        become(ANN, headers, only_user)
    assert become(ANN, {"impersonate-user": "bob"}, only_user).name == "bob"
    both = granted("impersonate /users bob", "impersonate /groups g")
    assert become(ANN, headers, both).groups == ("g", "system:authenticated")


def test_constrained_rights_cover_one_kind_of_request() -> None:
    api = "authentication.k8s.io"
    rights = ("impersonate-on:user-info:list /pods", f"impersonate:user-info {api}/users bob")
    assert become(ANN, {"impersonate-user": "bob"}, granted(*rights)).name == "bob"
    with pytest.raises(ApiError):
        become(ANN, {"impersonate-user": "eve"}, granted(*rights))
    with pytest.raises(ApiError):
        become(ANN, {"impersonate-user": "bob"}, granted(rights[1]))


def test_constrained_rights_never_give_masters() -> None:
    api = "authentication.k8s.io"
    rights = granted(
        "impersonate-on:user-info:list /pods",
        f"impersonate:user-info {api}/users",
        f"impersonate:user-info {api}/groups",
    )
    headers = {"impersonate-user": "bob", "impersonate-group": "g"}
    assert become(ANN, headers, rights).groups == ("g", "system:authenticated")
    with pytest.raises(ApiError) as refused:
        become(ANN, headers | {"impersonate-group": "system:masters"}, rights)
    assert "impersonating the system:masters group is not allowed" in refused.value.message


def test_extras_are_asked_for_one_by_one() -> None:
    headers = {"impersonate-user": "bob", "impersonate-extra-scopes": "view"}
    rights = ["impersonate /users bob"]
    with pytest.raises(ApiError):
        become(ANN, headers, granted(*rights))
    rights.append("impersonate authentication.k8s.io/userextras/scopes view")
    assert become(ANN, headers, granted(*rights)).extra == {"scopes": ("view",)}
