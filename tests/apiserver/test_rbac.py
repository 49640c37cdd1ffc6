"""What stored roles and bindings allow, small tables first."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.bootstrap_roles import default_bindings, default_roles
from stowplan.apiserver.auth.rbac import PolicyRule, RbacAuthorizer, forbidden_by_rbac

ANN = User("ann", groups=("devs", "system:authenticated"))


def rule(line: str) -> dict[str, Any]:
    """`verbs | groups | resources | names`, words parted by blanks; core is the group ""."""
    verbs, groups, resources, *names = (part.split() for part in line.split("|"))
    tree: dict[str, Any] = {
        "verbs": verbs,
        "apiGroups": ["" if group == "core" else group for group in groups],
        "resources": resources,
    }
    if names:
        tree["resourceNames"] = names[0]
    return tree


def bind(rbac: RbacAuthorizer, name: str, role: str, subject: str, namespace: str = "") -> None:
    kind, who = subject.split()
    home, _, who = who.rpartition("/")
    subjects = [{"kind": kind, "name": who, "namespace": home}]
    ref = {"kind": "Role" if role.startswith("local-") else "ClusterRole", "name": role}
    where = "RoleBinding" if namespace else "ClusterRoleBinding"
    rbac.put(where, namespace, name, {"roleRef": ref, "subjects": subjects})


def wanted(text: str, namespace: str = "", name: str = "") -> Attributes:
    """`verb group/resource/subresource`, or `verb /path`."""
    verb, what = text.split()
    if what.startswith("/"):
        return Attributes(verb, path=what)
    group, resource, subresource = (*what.split("/"), "")[:3]
    group = "" if group == "core" else group
    return Attributes(verb, group, "v1", resource, subresource, namespace, name)


@pytest.mark.parametrize(
    ("line", "asked", "allowed"),
    [
        ("get list | core | pods", "get core/pods", True),
        ("get list | core | pods", "watch core/pods", False),
        ("get | core | pods", "get apps/pods", False),
        ("get | core | pods", "get core/pods/status", False),
        ("get | core | pods/status", "get core/pods/status", True),
        ("get | core | pods/status", "get core/pods", False),
        ("get | core | */status", "get core/pods/status", True),
        ("get | core | */status", "get core/status", False),
        ("get | core | */status", "get core/pods/xstatus", False),
        ("* | * | *", "deletecollection apps/deployments/scale", True),
        ("* | * | *", "get /version", False),
        ("get | apps core | pods", "get core/pods", True),
    ],
)
def test_rule(line: str, asked: str, allowed: bool) -> None:
    assert PolicyRule.of(rule(line)).allows(wanted(asked)) is allowed


def test_names_are_exact_and_a_collection_has_none() -> None:
    by_name = PolicyRule.of(rule("get list | core | nodes | n1 n2"))
    assert by_name.allows(wanted("get core/nodes", name="n1"))
    assert not by_name.allows(wanted("get core/nodes", name="n3"))
    assert not by_name.allows(wanted("list core/nodes"))


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/apis/*", "/apis/apps", True),
        ("/apis/*", "/apis", False),
        ("*", "/anything", True),
        ("/a*b", "/a*b", True),
    ],
)
def test_paths(url: str, path: str, allowed: bool) -> None:
    paths = PolicyRule.of({"verbs": ["get"], "nonResourceURLs": [url]})
    assert paths.allows(wanted(f"get {path}")) is allowed


@pytest.mark.parametrize(
    ("subject", "namespace", "who", "reason"),
    [
        ("User ann", "", ANN, 'ClusterRoleBinding "b" of ClusterRole "r" to User "ann"'),
        ("Group devs", "ns", ANN, 'RoleBinding "b/ns" of ClusterRole "r" to Group "devs"'),
        (
            "ServiceAccount robot",
            "ns",
            User("system:serviceaccount:ns:robot"),
            'RoleBinding "b/ns" of ClusterRole "r" to ServiceAccount "robot/ns"',
        ),
        ("ServiceAccount robot", "", User("system:serviceaccount:ns:robot"), None),
        ("ServiceAccount x/robot", "ns", User("system:serviceaccount:ns:robot"), None),
        ("User devs", "", ANN, None),
    ],
)
def test_subjects(subject: str, namespace: str, who: User, reason: str | None) -> None:
    rbac = RbacAuthorizer()
    rbac.put("ClusterRole", "", "r", {"rules": [rule("get | core | pods")]})
    bind(rbac, "b", "r", subject, namespace)
    decision = rbac.authorize(who, wanted("get core/pods", "ns"))
    assert decision.reason == (f"RBAC: allowed by {reason}" if reason else "")
    assert decision.allowed is (reason is not None)


def test_a_role_binding_counts_in_its_namespace_only() -> None:
    rbac = RbacAuthorizer()
    rbac.put("Role", "a", "local-r", {"rules": [rule("get | core | pods")]})
    bind(rbac, "b", "local-r", "User ann", "a")
    assert rbac.authorize(ANN, wanted("get core/pods", "a")).allowed
    assert not rbac.authorize(ANN, wanted("get core/pods", "b")).allowed
    assert not rbac.authorize(ANN, wanted("get core/pods")).allowed


def test_a_missing_role_is_reported() -> None:
    rbac = RbacAuthorizer()
    bind(rbac, "b", "nosuch", "User ann")
    decision = rbac.authorize(ANN, wanted("get core/pods"))
    text = 'RBAC: clusterrole.rbac.authorization.k8s.io "nosuch" not found'
    assert decision == (False, text)
    assert forbidden_by_rbac(ANN, wanted("get core/pods"), text).message.endswith(f"scope: {text}")


def test_changes_are_followed() -> None:
    rbac = RbacAuthorizer()
    asked = wanted("get core/pods")
    steps: list[tuple[bool, str, str, dict[str, Any] | None]] = [
        (False, "ClusterRole", "r", {"rules": [rule("get | core | pods")]}),
        (True, "ClusterRoleBinding", "b", {"roleRef": {"kind": "ClusterRole", "name": "r"}}),
        (False, "ClusterRole", "r", {"rules": [rule("list | core | pods")]}),
        (False, "ClusterRoleBinding", "b", None),
    ]
    for allowed, kind, name, obj in steps:
        if obj and "roleRef" in obj:
            obj["subjects"] = [{"kind": "User", "name": "ann"}]
        rbac.put(kind, "", name, obj)
        assert rbac.authorize(ANN, asked).allowed is allowed
    assert rbac.authorize(User("m", groups=("system:masters",)), asked).allowed


def test_aggregation_and_its_circles() -> None:
    rbac = RbacAuthorizer()

    def aggregate(name: str, label: str, rules: list[Any] | None = None) -> None:
        selector = {"matchLabels": {label: "true"}}
        tree: dict[str, Any] = {"metadata": {"labels": {"ring": "true"}}, "rules": rules or []}
        tree["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        rbac.put("ClusterRole", "", name, tree)

    aggregate("one", "ring", [rule("delete | core | nodes")])
    aggregate("two", "ring")
    leaf = {"metadata": {"labels": {"ring": "true"}}, "rules": [rule("get | core | pods")]}
    rbac.put("ClusterRole", "", "leaf", leaf)
    bind(rbac, "b", "one", "User ann")
    assert rbac.authorize(ANN, wanted("get core/pods")).allowed
    # What an aggregated role says itself is written over by what it selects.
    assert not rbac.authorize(ANN, wanted("delete core/nodes")).allowed


def shipped() -> RbacAuthorizer:
    rbac = RbacAuthorizer()
    for obj in (*default_roles(), *default_bindings()):
        metadata = obj["metadata"]
        rbac.put(obj["kind"], metadata.get("namespace", ""), metadata["name"], obj)
    return rbac


SCHEDULER = User("system:kube-scheduler", groups=("system:authenticated",))


@pytest.mark.parametrize(
    ("who", "asked", "namespace", "name", "allowed"),
    [
        (SCHEDULER, "list core/pods", "", "", True),
        (SCHEDULER, "create core/pods/binding", "ns", "p", True),
        (SCHEDULER, "create core/pods", "ns", "", False),
        (SCHEDULER, "patch core/pods/status", "ns", "p", True),
        (SCHEDULER, "update core/pods", "ns", "p", False),
        (SCHEDULER, "create core/pods/eviction", "ns", "p", False),
        (SCHEDULER, "update core/persistentvolumeclaims", "ns", "c", True),
        (SCHEDULER, "update coordination.k8s.io/leases", "kube-system", "kube-scheduler", True),
        (SCHEDULER, "update coordination.k8s.io/leases", "kube-system", "other", True),
        (SCHEDULER, "update coordination.k8s.io/leases", "default", "other", False),
        (SCHEDULER, "create events.k8s.io/events", "ns", "", True),
        (ANN, "create authorization.k8s.io/selfsubjectaccessreviews", "", "", True),
        (ANN, "get /apis/apps/v1", "", "", True),
        (ANN, "get /metrics", "", "", False),
        (User("x", groups=("system:unauthenticated",)), "get /version", "", "", True),
        (User("x", groups=("system:unauthenticated",)), "get /api", "", "", False),
        (User("x", groups=("system:monitoring",)), "get /metrics", "", "", True),
    ],
)
def test_shipped_roles(who: User, asked: str, namespace: str, name: str, allowed: bool) -> None:
    assert shipped().authorize(who, wanted(asked, namespace, name)).allowed is allowed


def test_view_edit_and_admin_build_on_each_other() -> None:
    rbac = shipped()
    names = {"view": "ann", "edit": "bob", "admin": "eve"}
    for role, name in names.items():
        bind(rbac, role, role, f"User {name}", "ns")
    rights = {
        name: [
            rbac.authorize(User(name), wanted(asked, "ns")).allowed
            for asked in (
                "list core/pods",
                "create core/pods",
                "create rbac.authorization.k8s.io/roles",
                "get core/secrets",
            )
        ]
        for name in names.values()
    }
    assert rights == {
        "ann": [True, False, False, False],
        "bob": [True, True, False, True],
        "eve": [True, True, True, True],
    }


@pytest.mark.parametrize(
    ("asked", "namespace", "name", "text", "details"),
    [
        (
            "list core/pods",
            "au",
            "",
            'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the '
            'namespace "au"',
            {"kind": "pods"},
        ),
        (
            "patch core/pods/status",
            "au",
            "x",
            'pods "x" is forbidden: User "ann" cannot patch resource "pods/status" in API group "" '
            'in the namespace "au"',
            {"kind": "pods", "name": "x"},
        ),
        (
            "list apps/deployments",
            "",
            "",
            'deployments.apps is forbidden: User "ann" cannot list resource "deployments" in API '
            'group "apps" at the cluster scope',
            {"group": "apps", "kind": "deployments"},
        ),
        ("get /metrics", "", "", 'forbidden: User "ann" cannot get path "/metrics"', {}),
    ],
)
def test_refusals(
    asked: str, namespace: str, name: str, text: str, details: dict[str, str]
) -> None:
    error = forbidden_by_rbac(ANN, wanted(asked, namespace, name))
    assert (error.code, error.message, error.details) == (403, text, details)


# Rules add up: whoever gets a binding more loses nothing.

RULES = st.builds(
    lambda verbs, groups, resources, names: {
        "verbs": verbs,
        "apiGroups": groups,
        "resources": resources,
        "resourceNames": names,
    },
    st.lists(st.sampled_from(["get", "list", "*"]), min_size=1, max_size=2),
    st.lists(st.sampled_from(["", "apps", "*"]), min_size=1, max_size=2),
    st.lists(st.sampled_from(["pods", "pods/status", "*/status", "*"]), min_size=1, max_size=2),
    st.lists(st.sampled_from(["p", "q"]), max_size=1),
)
ROLES = st.lists(st.lists(RULES, max_size=3), min_size=1, max_size=4)
ASKED = st.builds(
    Attributes,
    verb=st.sampled_from(["get", "list", "delete"]),
    group=st.sampled_from(["", "apps"]),
    resource=st.sampled_from(["pods", "nodes"]),
    subresource=st.sampled_from(["", "status"]),
    name=st.sampled_from(["", "p", "r"]),
)


def nothing_is_lost(kind: type[RbacAuthorizer], roles: list[list[Any]], asked: Attributes) -> None:
    rbac = kind()
    allowed = False
    for number, rules in enumerate(roles):
        # Later bindings come first in the order of names.
        name = f"r{9 - number}"
        rbac.put("ClusterRole", "", name, {"rules": rules})
        bind(rbac, name, name, "User ann")
        now = rbac.authorize(ANN, asked).allowed
        alone = any(PolicyRule.of(each).allows(asked) for each in rules)
        assert now == (allowed or alone)
        allowed = now


@given(ROLES, ASKED)
def test_rules_add_up(roles: list[list[Any]], asked: Attributes) -> None:
    nothing_is_lost(RbacAuthorizer, roles, asked)


def test_a_first_binding_that_decides_alone_is_caught() -> None:
    class First(RbacAuthorizer):
        """Looks at the first binding of a user and no further."""

        def _decide(self, user: User, wanted: Attributes) -> Any:
            grants = list(self.grants(user, wanted.namespace, []))
            allowed = [g for g in grants if g.source == grants[0].source and g.rule.allows(wanted)]
            return super()._decide(user, wanted) if allowed else msgspec.NODEFAULT

        def authorize(self, user: User, wanted: Attributes) -> Any:
            found = super().authorize(user, wanted)
            return type("V", (), {"allowed": found is not msgspec.NODEFAULT and found.allowed})

    roles = [[rule("get | core | pods")], [rule("list | core | pods")]]
    with pytest.raises(AssertionError):
        nothing_is_lost(First, roles, wanted("get core/pods"))
