"""Who grants rights must have them, or the right to grant them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.auth.escalation_check import EscalationCheck, compact_rules, rule_text
from stowplan.apiserver.auth.rbac import GROUP, MASTERS_GROUP, PolicyRule, covers_path
from stowplan.apiserver.auth.rule_coverage import OwnerRules
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from tests.apiserver.test_rbac import ASKED, RULES, rule

NOW = 1_800_000_000.0
ANN = User("ann", groups=("devs", "system:authenticated"))
Tree = dict[str, Any]


@pytest.fixture
def server() -> ApiServer:
    """ann may read pods and write roles and bindings everywhere."""
    access = TokenRbacAccess(StaticTokens())
    options = ApiServerOptions(
        registry=built_in_registry(),
        access=access,
        admission=(EscalationCheck(),),
        observers=(access,),
    )
    made = ApiServer(options, np.random.default_rng(1))
    create_bootstrap_objects(made, NOW)
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


def test_the_refusal_of_a_rule_of_many_permissions_is_bounded(server: ApiServer) -> None:
    names = [f"x{n}" for n in range(2000)]
    wide = {"verbs": names, "apiGroups": names, "resources": names, "resourceNames": names}
    error = refused(server, "ClusterRole", "r", rules=[wide])
    assert error.code == 403
    assert "RBAC permissions not currently held" in error.message
    assert len(error.message) < 100_000


@pytest.mark.parametrize("verb", ["escalate", "bind"])
def test_the_verbs_that_allow_it(server: ApiServer, verb: str) -> None:
    allow(server, f"{verb} | {GROUP} | clusterroles | r edit")
    if verb == "escalate":
        put(server, "ClusterRole", "r", rules=[rule("get | core | pods")])
        put(server, "ClusterRole", "other", rules=[rule("get | core | pods")])
        change(server, "r", ANN, rules=[rule("* | * | *")])
        with pytest.raises(ApiError):
            change(server, "other", ANN, rules=[rule("* | * | *")])
        # A POST has no name in its path.
        server.delete(kind_of(server, "ClusterRole"), "", "r", NOW)
        assert refused(server, "ClusterRole", "r", rules=[rule("* | * | *")]).code == 403
        allow(server, f"{verb} | {GROUP} | clusterroles")
        put(server, "ClusterRole", "r", ANN, rules=[rule("* | * | *")])
    else:
        put(server, "RoleBinding", "b", ANN, **bound("edit", "bob"))
        assert refused(server, "RoleBinding", "c", **bound("admin", "bob")).code == 403


def allow(server: ApiServer, line: str) -> None:
    name = f"allowing-{server.version}"
    put(server, "ClusterRole", name, rules=[rule(line)])
    put(server, "ClusterRoleBinding", name, **bound(name, "ann"))


def kind_of(server: ApiServer, kind: str) -> Resource:
    resource = server.registry.by_kind(GROUP, "v1", kind)
    assert resource is not None
    return resource


def change(
    server: ApiServer, name: str, user: User, kind: str = "ClusterRole", **more: Any
) -> None:
    """Update a stored object; `metadata` in `more` is merged, None takes a field out."""
    resource = kind_of(server, kind)
    obj = server.get(resource, "default" if resource.namespaced else "", name)
    assert obj is not None
    obj["metadata"] |= more.pop("metadata", {})
    obj |= more
    server.update(resource, {k: v for k, v in obj.items() if v is not None}, NOW, user=user)


# The decision table of the original: who x what is changed. `held` holds the rights of the role,
# `all` every right; `masters` is not asked.

OWN = [rule("get list | core | pods")]
STRONG = [rule("get | core | secrets")]
SELECTORS = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
VIEW = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
USERS = ("nothing", "held", "escalate", "all", "masters")
TABLE: dict[str, tuple[Tree, Tree, str]] = {
    "labels of a held role": ({"rules": OWN}, {"metadata": {"labels": VIEW}}, "-++++"),
    "labels of another role": ({"rules": STRONG}, {"metadata": {"labels": VIEW}}, "--+++"),
    "annotations of another role": (
        {"rules": STRONG},
        {"metadata": {"annotations": {"a": "b"}}},
        "--+++",
    ),
    "rules to held ones": ({"rules": STRONG}, {"rules": OWN}, "-++++"),
    "rules to others": ({"rules": OWN}, {"rules": STRONG}, "--+++"),
    "fewer rules": ({"rules": STRONG + OWN}, {"rules": []}, "+++++"),
    "aggregation added": ({"rules": []}, {"aggregationRule": SELECTORS}, "--+++"),
    "aggregation removed": (
        {"aggregationRule": SELECTORS, "rules": []},
        {"aggregationRule": None},
        "--+++",
    ),
    "labels of an aggregated role": (
        {"aggregationRule": SELECTORS, "rules": []},
        {"metadata": {"labels": VIEW}},
        "--+++",
    ),
    "owners of another role": (
        {"rules": STRONG},
        {"metadata": {"ownerReferences": [OWNER]}},
        "+++++",
    ),
    "finalizers of an aggregated role": (
        {"aggregationRule": SELECTORS, "rules": []},
        {"metadata": {"finalizers": ["a.b/c"]}},
        "+++++",
    ),
    "nothing": ({"rules": STRONG}, {}, "+++++"),
}


@pytest.mark.parametrize("what", TABLE)
@pytest.mark.parametrize("who", USERS)
def test_who_may_change_a_role(who: str, what: str) -> None:
    first, then, allowed = TABLE[what]
    server = small(who)
    put(server, "ClusterRole", "r", **first)
    user = User(who, groups=(MASTERS_GROUP,) if who == "masters" else ())
    if allowed[USERS.index(who)] == "+":
        change(server, "r", user, **then)
        return
    with pytest.raises(ApiError) as error:
        change(server, "r", user, **then)
    assert error.value.code == 403
    if who == "held" and "aggregat" in what:
        assert error.value.message.endswith(
            "must have cluster-admin privileges to use the aggregationRule"
        )


def small(who: str) -> ApiServer:
    """A server whose only user but administrators may write roles, and what `who` stands for."""
    access = TokenRbacAccess(StaticTokens())
    options = ApiServerOptions(
        registry=built_in_registry(),
        access=access,
        admission=(EscalationCheck(),),
        observers=(access,),
    )
    server = ApiServer(options, np.random.default_rng(1))
    lines = {
        "held": ["get list | core | pods"],
        "escalate": [f"escalate | {GROUP} | clusterroles"],
        "all": ["* | * | *"],
    }.get(who, [])
    rules = [rule(line) for line in lines]
    if who == "all":
        rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    put(server, "ClusterRole", "mine", rules=rules)
    put(server, "ClusterRoleBinding", "mine", **bound("mine", who))
    return server


BINDING = {
    "labels": ({"metadata": {"labels": {"a": "b"}}}, False),
    "subjects": ({"subjects": [{"kind": "User", "apiGroup": GROUP, "name": "ann"}]}, False),
    "owners": ({"metadata": {"ownerReferences": [OWNER]}}, True),
    "another role": ({"roleRef": bound("edit", "ann")["roleRef"]}, False),
}


@pytest.mark.parametrize("what", BINDING)
@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_who_may_change_a_binding(server: ApiServer, kind: str, what: str) -> None:
    then, other_role = BINDING[what]
    put(server, kind, "b", **bound("cluster-admin", "bob"))
    if other_role:
        change(server, "b", ANN, kind, **then)
    else:
        with pytest.raises(ApiError) as error:
            change(server, "b", ANN, kind, **then)
        assert error.value.code == 403
    if what in ("labels", "subjects"):
        allow(server, f"bind | {GROUP} | clusterroles | cluster-admin")
        change(server, "b", ANN, kind, **then)


def test_a_label_does_not_grant_administrator_rights() -> None:
    server = small("held")
    create_bootstrap_objects(server, NOW)
    with pytest.raises(ApiError) as error:
        change(server, "cluster-admin", User("held"), metadata={"labels": VIEW})
    assert error.value.code == 403
    with pytest.raises(ApiError) as error:
        change(server, "view", User("held"), aggregationRule=None, rules=[])
    assert error.value.code == 403


def test_unresolved_roles_are_reported(server: ApiServer) -> None:
    put(server, "ClusterRoleBinding", "lost", **bound("nosuch", "ann"))
    error = refused(server, "ClusterRole", "r", rules=[rule("get | core | secrets")])
    assert error.message.endswith(
        '\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}; resolution errors: '
        f'[clusterrole.{GROUP} "nosuch" not found]'
    )


def test_a_rule_of_a_thousand_million_rights_is_read_in_one_pass(server: ApiServer) -> None:
    names = [f"x{number}" for number in range(1000)]
    many = {"verbs": names, "apiGroups": names, "resources": names}
    error = refused(server, "ClusterRole", "r", rules=[many] * 1000)
    assert error.code == 403
    assert len(error.message) < 100_000


def test_watched_and_compacted() -> None:
    rules = [
        PolicyRule(("get",), ("",), ("pods",), ("x",)),
        PolicyRule(("list",), ("",), ("pods",), ("x",)),
    ]
    (one,) = compact_rules(rules)
    assert rule_text(one) == (
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get" "list"]}'
    )


# What is missing: the same as looking at every right, and sound.


def parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """The rule as rules of one verb, group, resource and name each."""
    for verb in rule.verbs:
        for url in rule.urls:
            yield PolicyRule((verb,), urls=(url,))
        for group, resource in product(rule.groups, rule.resources):
            for name in rule.names or ("",):
                yield PolicyRule((verb,), (group,), (resource,), (name,) if name else ())


def covers(mine: PolicyRule, part: PolicyRule) -> bool:
    """True if a rule that is held allows all that a `part` would."""
    if not holds(mine.verbs, part.verbs):
        return False
    if part.urls:
        return any(covers_path(own, part.urls[0]) for own in mine.urls)
    (resource,) = part.resources
    _, _, subresource = resource.partition("/")
    return (
        holds(mine.groups, part.groups)
        and (
            holds(mine.resources, part.resources)
            or (bool(subresource) and f"*/{subresource}" in mine.resources)
        )
        and (not mine.names or (bool(part.names) and set(part.names) <= set(mine.names)))
    )


def holds(mine: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return "*" in mine or set(wanted) <= set(mine)


def same_as_every_right(kind: Any, mine: list[Tree], granted: Tree) -> None:
    held, rule = [PolicyRule.of(each) for each in mine], PolicyRule.of(granted)
    wanted = {part for part in parts(rule) if not any(covers(each, part) for each in held)}
    assert set(kind(held).missing(rule)) == wanted


@given(st.lists(RULES, max_size=4), RULES)
def test_what_is_missing(mine: list[Tree], granted: Tree) -> None:
    same_as_every_right(OwnerRules, mine, granted)


def sound(kind: Any, mine: Tree, given_: Tree, asked: Any) -> None:
    held, granted = PolicyRule.of(mine), PolicyRule.of(given_)
    if not list(kind([held]).missing(granted)) and granted.allows(asked):
        assert held.allows(asked)


@given(RULES, RULES, ASKED)
def test_covering_is_sound(mine: Tree, granted: Tree, asked: Any) -> None:
    sound(OwnerRules, mine, granted, asked)


def test_covering_that_forgets_names_is_caught() -> None:
    class Forgetful(OwnerRules):
        def _name(self, value: str) -> int:
            return -1

    asked = Attributes("get", "", "v1", "pods", "", "", "q")
    with pytest.raises(AssertionError):
        sound(Forgetful, rule("get | core | pods | p"), rule("get | core | pods"), asked)
    with pytest.raises(AssertionError):
        same_as_every_right(Forgetful, [rule("get | core | pods | p")], rule("get | core | pods"))


def test_paths() -> None:
    held = OwnerRules([PolicyRule(("get",), urls=("/metrics/*", "/healthz"))])
    asked = PolicyRule(("get", "post"), urls=("/healthz", "/metrics/a", "/metrics/*", "/metrics"))
    assert [(rule.verbs[0], rule.urls[0]) for rule in held.missing(asked)] == [
        ("get", "/metrics"),
        ("post", "/healthz"),
        ("post", "/metrics/a"),
        ("post", "/metrics/*"),
        ("post", "/metrics"),
    ]
