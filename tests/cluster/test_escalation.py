"""Who grants rights must have them, or the right to grant them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from stowplan.cluster.access import Attributes
from stowplan.cluster.beginning import begin
from stowplan.cluster.errors import ApiError
from stowplan.cluster.escalation import NoEscalation, compacted, covers, parts, shown
from stowplan.cluster.guard import Guard
from stowplan.cluster.options import Options
from stowplan.cluster.rbac import GROUP, Rule
from stowplan.cluster.registry import built_in
from stowplan.cluster.server import ApiServer
from stowplan.cluster.tokens import Tokens
from stowplan.cluster.wire import User
from tests.cluster.test_rbac import ASKED, RULES, rule

NOW = 1_800_000_000.0
ANN = User("ann", groups=("devs", "system:authenticated"))
Tree = dict[str, Any]


@pytest.fixture
def server() -> ApiServer:
    """ann may read pods and write roles and bindings everywhere."""
    guard = Guard(Tokens())
    options = Options(
        registry=built_in(), access=guard, admission=(NoEscalation(),), observers=(guard,)
    )
    made = ApiServer(options, np.random.default_rng(1))
    begin(made, NOW)
    kinds = "clusterroles clusterrolebindings roles rolebindings"
    rules = [rule("get list | core | pods"), rule(f"create update | {GROUP} | {kinds}")]
    put(made, "ClusterRole", "writer", rules=rules)
    put(made, "ClusterRoleBinding", "writer", **bound("writer", "ann"))
    return made


def bound(role: str, name: str) -> Tree:
    return {
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": GROUP, "name": name}],
    }


def put(server: ApiServer, kind: str, name: str, user: User | None = None, **more: Any) -> Tree:
    resource = server.registry.by_kind(GROUP, "v1", kind)
    assert resource is not None
    obj = {"metadata": {"name": name}, **more}
    space = "default" if resource.namespaced else ""
    if user is None:
        return server.create(resource, obj, NOW, space)
    return server.create(resource, obj, NOW, space, user)


def refused(server: ApiServer, kind: str, name: str, **more: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        put(server, kind, name, ANN, **more)
    return error.value


def test_what_is_held_can_be_granted(server: ApiServer) -> None:
    put(server, "ClusterRole", "r", ANN, rules=[rule("get | core | pods")])
    put(server, "RoleBinding", "b", ANN, **bound("r", "bob"))
    put(server, "ClusterRoleBinding", "c", ANN, **bound("writer", "bob"))


def test_what_is_not_held_cannot(server: ApiServer) -> None:
    error = refused(server, "ClusterRole", "r", rules=[rule("get delete watch | core | pods")])
    assert error.code == 403
    assert error.message == (
        'clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "ann" (groups=["devs" '
        '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}'
    )
    assert refused(server, "ClusterRoleBinding", "b", **bound("cluster-admin", "ann")).code == 403
    assert refused(server, "RoleBinding", "b", **bound("edit", "ann")).code == 403
    assert refused(server, "RoleBinding", "b", **bound("nosuch", "ann")).code == 404
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    assert refused(server, "ClusterRole", "r", aggregationRule=selectors).code == 403


def test_rules_of_too_many_permissions_are_not_compared(server: ApiServer) -> None:
    names = [f"x{n}" for n in range(2000)]
    wide = {"verbs": names, "apiGroups": names, "resources": names, "resourceNames": names}
    error = refused(server, "ClusterRole", "r", rules=[wide])
    assert error.code == 403
    assert "the rules come to more than 10000 permissions" in error.message


@pytest.mark.parametrize("verb", ["escalate", "bind"])
def test_the_verbs_that_allow_it(server: ApiServer, verb: str) -> None:
    rules = [rule(f"{verb} | {GROUP} | clusterroles | r edit")]
    put(server, "ClusterRole", "allowing", rules=rules)
    put(server, "ClusterRoleBinding", "allowing", **bound("allowing", "ann"))
    if verb == "escalate":
        put(server, "ClusterRole", "r", ANN, rules=[rule("* | * | *")])
        assert refused(server, "ClusterRole", "other", rules=[rule("* | * | *")]).code == 403
    else:
        put(server, "RoleBinding", "b", ANN, **bound("edit", "bob"))
        assert refused(server, "RoleBinding", "c", **bound("admin", "bob")).code == 403


def test_labels_of_a_strong_role_may_be_changed(server: ApiServer) -> None:
    resource = server.registry.by_kind(GROUP, "v1", "ClusterRole")
    assert resource is not None
    role = server.get(resource, "", "cluster-admin")
    assert role is not None
    role["metadata"]["labels"]["a"] = "b"
    server.update(resource, role, NOW, user=ANN)
    role = server.get(resource, "", "cluster-admin")
    assert role is not None
    role["rules"] = role["rules"][:1]
    with pytest.raises(ApiError):
        server.update(resource, role, NOW, user=ANN)


def test_shown_and_compacted() -> None:
    rules = [Rule(("get",), ("",), ("pods",), ("x",)), Rule(("list",), ("",), ("pods",), ("x",))]
    (one,) = compacted(rules)
    assert shown(one) == (
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get" "list"]}'
    )


# Covering is sound: what the parts of a rule allow, the rules that cover them allow as well.


def sound(cover: Any, mine: Tree, given_: Tree, asked: Any) -> None:
    held, granted = Rule.of(mine), Rule.of(given_)
    if all(cover(held, part) for part in parts(granted)) and granted.allows(asked):
        assert held.allows(asked)


@given(RULES, RULES, ASKED)
def test_covering_is_sound(mine: Tree, granted: Tree, asked: Any) -> None:
    sound(covers, mine, granted, asked)


def test_covering_that_forgets_names_is_caught() -> None:
    def forgetful(mine: Rule, part: Rule) -> bool:
        return covers(Rule(mine.verbs, mine.groups, mine.resources, (), mine.urls), part)

    with pytest.raises(AssertionError):
        sound(
            forgetful,
            rule("get | core | pods | p"),
            rule("get | core | pods"),
            Attributes("get", "", "v1", "pods", "", "", "q"),
        )
