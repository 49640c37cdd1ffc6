"""Impersonation: a client that asks as somebody else, if its rights let it.

The modes of constrained impersonation are tried first (as a node, as a service account, as any
other user; each asks for the right to do this very request while impersonating), then the old verb
`impersonate`. The first refusal met is the one told.

Source: kube-apiserver v1.36, endpoints/filters/impersonation.
Differs: the mode `associated-node` is not there; it needs tokens that the server itself gives out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from stowplan.cluster.access import Attributes
from stowplan.cluster.errors import ApiError
from stowplan.cluster.rbac import MASTERS, SERVICE_ACCOUNT, Rbac, refusal
from stowplan.cluster.tokens import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED
from stowplan.cluster.wire import User

USER = "impersonate-user"
UID = "impersonate-uid"
GROUP = "impersonate-group"
EXTRA = "impersonate-extra-"
SEPARATOR = "\n"
"""Between the values of a header that came several times; no header value can contain it."""

_NODE = re.compile(r"system:node:([a-z0-9]([-a-z0-9.]*[a-z0-9])?)")
_API = "authentication.k8s.io"


def wanted_user(headers: Mapping[str, str]) -> User | None:
    """Whom the headers name, as they say it; None if nobody. Raises ApiError 400 without a name."""
    name, uid = headers.get(USER, ""), headers.get(UID, "")
    groups = tuple(headers[GROUP].split(SEPARATOR)) if GROUP in headers else ()
    extra = {
        unquote(header.removeprefix(EXTRA)): tuple(value.split(SEPARATOR))
        for header, value in headers.items()
        if header.startswith(EXTRA)
    }
    if not name and (uid or groups or extra):
        raise ApiError(
            400,
            "BadRequest",
            f"requested {_as_go(uid, groups, extra)} without impersonating a user name",
            headers=(("X-Content-Type-Options", "nosniff"),),
        )
    return User(name, uid, groups, extra) if name else None


def _as_go(uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]) -> str:
    """The user as the original prints it: a value of the language that it is written in."""

    def listed(values: tuple[str, ...]) -> str:
        return "[]string{" + ", ".join(json.dumps(v, ensure_ascii=False) for v in values) + "}"

    told_groups = listed(groups) if groups else "[]string(nil)"
    told_extra = "map[string][]string(nil)"
    if extra:
        pairs = ", ".join(f"{json.dumps(key)}:{listed(extra[key])}" for key in sorted(extra))
        told_extra = f"map[string][]string{{{pairs}}}"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{json.dumps(uid)}, Groups:{told_groups}, '
        f"Extra:{told_extra}}}"
    )


class Mode(NamedTuple):
    """A way to impersonate. name: "" for the old one."""

    name: str

    @property
    def verb(self) -> str:
        """What it takes to impersonate in this way."""
        return f"impersonate:{self.name}" if self.name else "impersonate"

    def suits(self, wanted: User) -> bool:
        """True if this way is meant for such a user."""
        only_name = not (wanted.uid or wanted.groups or wanted.extra)
        is_node = _NODE.fullmatch(wanted.name) is not None
        is_account = _account(wanted.name) is not None
        if self.name == "arbitrary-node":
            return only_name and is_node
        if self.name == "serviceaccount":
            return only_name and is_account
        return not self.name or not (is_node or is_account)

    def checks(self, wanted: User, request: Attributes) -> Iterator[Attributes]:
        """All rights that it takes, in the order in which they are asked for."""
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
        if account := _account(name):
            namespace, name = account
            return Attributes(
                self.verb, group=group, resource="serviceaccounts", namespace=namespace, name=name
            )
        return Attributes(self.verb, group=group, resource="users", name=name)


_MODES = (Mode("arbitrary-node"), Mode("serviceaccount"), Mode("user-info"), Mode(""))


def _account(name: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name."""
    if not name.startswith(SERVICE_ACCOUNT):
        return None
    namespace, _, name = name.removeprefix(SERVICE_ACCOUNT).partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


def impersonate(asking: User, wanted: User, request: Attributes, rbac: Rbac) -> User:
    """Who `asking` is from here on. Raises ApiError 403 with the first refusal met.

    request: what is to be done in the name of `wanted`.
    """
    first: ApiError | None = None
    for mode in _MODES:
        if not mode.suits(wanted):
            continue
        refused = _refused(mode, asking, wanted, request, rbac)
        if refused is None:
            return _completed(mode, wanted)
        first = first or refused
    # The last mode suits everybody, so there was a refusal.
    assert first is not None
    raise first


def _refused(
    mode: Mode, asking: User, wanted: User, request: Attributes, rbac: Rbac
) -> ApiError | None:
    for check in mode.checks(wanted, request):
        if mode.name and check.resource == "groups" and check.verb == mode.verb:
            if not check.name:
                why = "impersonating the empty string group is not allowed"
                return refusal(asking, msgspec.structs.replace(check, name=""), why)
            if MASTERS in wanted.groups:
                why = "impersonating the system:masters group is not allowed"
                return refusal(asking, msgspec.structs.replace(check, name=MASTERS), why)
        verdict = rbac.verdict(asking, check)
        if not verdict.allowed:
            return refusal(asking, check, verdict.reason)
    return None


def _completed(mode: Mode, wanted: User) -> User:
    """The user with the groups that come with the name."""
    groups = wanted.groups
    account = _account(wanted.name)
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
