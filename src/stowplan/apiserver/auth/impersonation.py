"""Impersonation: requests on behalf of another user.

The modes of constrained impersonation are tried first (node, service account, any other user; each
needs a permission for the request itself), then the verb `impersonate`. The first error counts.

Source: kube-apiserver v1.36, endpoints/filters/impersonation.
Differs: the mode `associated-node` is missing; it needs tokens that the server issues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, User
from stowplan.apiserver.auth.rbac import (
    MASTERS_GROUP,
    SERVICE_ACCOUNT,
    RbacAuthorizer,
    forbidden_by_rbac,
)
from stowplan.apiserver.auth.static_tokens import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED

_PREFIX = "impersonate-"
USER_HEADER = "impersonate-user"
UID_HEADER = "impersonate-uid"
GROUP_HEADER = "impersonate-group"
EXTRA_HEADER_PREFIX = "impersonate-extra-"
SEPARATOR = "\n"
"""Separates the values of a repeated header; no header value can contain it."""

_NODE = re.compile(r"system:node:([a-z0-9]([-a-z0-9.]*[a-z0-9])?)")
_API = "authentication.k8s.io"


def impersonated_user(headers: Mapping[str, str]) -> User | None:
    """The user of the impersonation headers, or None. Raises ApiError 400 without a name."""
    if _PREFIX not in "\n".join(headers):
        return None
    name, uid = headers.get(USER_HEADER, ""), headers.get(UID_HEADER, "")
    groups = tuple(headers[GROUP_HEADER].split(SEPARATOR)) if GROUP_HEADER in headers else ()
    extra = {
        unquote(header.removeprefix(EXTRA_HEADER_PREFIX)): tuple(value.split(SEPARATOR))
        for header, value in headers.items()
        if header.startswith(EXTRA_HEADER_PREFIX)
    }
    if not name and (uid or groups or extra):
        raise ApiError(
            400,
            "BadRequest",
            f"requested {_go_user_text(uid, groups, extra)} without impersonating a user name",
            headers=(("X-Content-Type-Options", "nosniff"),),
        )
    return User(name, uid, groups, extra) if name else None


def without_impersonation(request: HttpRequest) -> HttpRequest:
    """The request as the one who sends it would make it for themselves."""
    kept = {
        name: value
        for name, value in request.headers.items()
        if not name.startswith("impersonate-")
    }
    if len(kept) == len(request.headers):
        return request
    return msgspec.structs.replace(request, headers=kept)


def _go_user_text(uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]) -> str:
    """The user as the original prints it, with %v of Go."""

    def listed(values: tuple[str, ...]) -> str:
        return "[]string{" + ", ".join(json.dumps(v, ensure_ascii=False) for v in values) + "}"

    given_groups = listed(groups) if groups else "[]string(nil)"
    given_extra = "map[string][]string(nil)"
    if extra:
        pairs = ", ".join(f"{json.dumps(key)}:{listed(extra[key])}" for key in sorted(extra))
        given_extra = f"map[string][]string{{{pairs}}}"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{json.dumps(uid)}, Groups:{given_groups}, '
        f"Extra:{given_extra}}}"
    )


class ImpersonationMode(NamedTuple):
    """A mode of impersonation. name: "" for the verb `impersonate`."""

    name: str

    @property
    def verb(self) -> str:
        """The verb of the permissions."""
        return f"impersonate:{self.name}" if self.name else "impersonate"

    def applies_to(self, wanted: User) -> bool:
        """True if the mode applies to the user."""
        only_name = not (wanted.uid or wanted.groups or wanted.extra)
        is_node = _NODE.fullmatch(wanted.name) is not None
        is_account = _service_account(wanted.name) is not None
        if self.name == "arbitrary-node":
            return only_name and is_node
        if self.name == "serviceaccount":
            return only_name and is_account
        return not self.name or not (is_node or is_account)

    def checks(self, wanted: User, request: Attributes) -> Iterator[Attributes]:
        """The required permissions, in the order of checks."""
        if self.name:
            yield msgspec.structs.replace(
                request, verb=f"impersonate-on:{self.name}:{request.verb}"
            )
        group = _API if self.name else ""
        yield self._name_check(wanted.name, group)
        if wanted.uid:
            yield Attributes(self.verb, group=_API, resource="uids", name=wanted.uid)
        for each in wanted.groups:
            yield Attributes(self.verb, group=group, resource="groups", name=each)
        for key, values in wanted.extra.items():
            for value in values:
                yield Attributes(
                    self.verb, group=_API, resource="userextras", subresource=key, name=value
                )

    def _name_check(self, name: str, group: str) -> Attributes:
        node = _NODE.fullmatch(name)
        if self.name and node:
            return Attributes(self.verb, group=group, resource="nodes", name=node.group(1))
        if account := _service_account(name):
            namespace, name = account
            return Attributes(
                self.verb, group=group, resource="serviceaccounts", namespace=namespace, name=name
            )
        return Attributes(self.verb, group=group, resource="users", name=name)


_MODES = (
    ImpersonationMode("arbitrary-node"),
    ImpersonationMode("serviceaccount"),
    ImpersonationMode("user-info"),
    ImpersonationMode(""),
)


def _service_account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    if not name.startswith(SERVICE_ACCOUNT):
        return None
    namespace, _, name = name.removeprefix(SERVICE_ACCOUNT).partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


def impersonate(asking: User, wanted: User, request: Attributes, rbac: RbacAuthorizer) -> User:
    """The impersonated user. Raises ApiError 403 with the first denial.

    request: attributes of the request that is made as `wanted`.
    """
    first: ApiError | None = None
    for mode in _MODES:
        if not mode.applies_to(wanted):
            continue
        refused = _mode_refusal(mode, asking, wanted, request, rbac)
        if refused is None:
            return _with_implied_groups(mode, wanted)
        first = first or refused
    # The last mode applies to every user, so there is a denial.
    assert first is not None
    raise first


def _mode_refusal(
    mode: ImpersonationMode, asking: User, wanted: User, request: Attributes, rbac: RbacAuthorizer
) -> ApiError | None:
    for check in mode.checks(wanted, request):
        if mode.name and check.resource == "groups" and check.verb == mode.verb:
            if not check.name:
                why = "impersonating the empty string group is not allowed"
                return forbidden_by_rbac(asking, msgspec.structs.replace(check, name=""), why)
            if MASTERS_GROUP in wanted.groups:
                why = "impersonating the system:masters group is not allowed"
                return forbidden_by_rbac(
                    asking, msgspec.structs.replace(check, name=MASTERS_GROUP), why
                )
        decision = rbac.authorize(asking, check)
        if not decision.allowed:
            return forbidden_by_rbac(asking, check, decision.reason)
    return None


def _with_implied_groups(mode: ImpersonationMode, wanted: User) -> User:
    """The user with the groups that its name implies."""
    groups = wanted.groups
    account = _service_account(wanted.name)
    if mode.name == "arbitrary-node":
        groups = ("system:nodes",)
    elif account and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    needed = AUTHENTICATED
    if wanted.name == ANONYMOUS.name or UNAUTHENTICATED in groups:
        needed = UNAUTHENTICATED
    if needed not in groups:
        groups = (*groups, needed)
    return User(wanted.name, wanted.uid, groups, wanted.extra)
