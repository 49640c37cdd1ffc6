"""Tokens of service accounts: JSON web tokens, signed and checked by the server itself.

Source: kubernetes v1.36, pkg/serviceaccount (claims.go, jwt.go).

Differs: tokens are signed with a secret of the server (HS256), so that no other server can
check them; the original has a key pair and publishes one half.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import ObjectClient
from stowplan.apis.machinery.timestamps import parse_time
from stowplan.apiserver.auth.static_tokens import AUTHENTICATED
from stowplan.objects.encoding.tree import Tree

DEFAULT_AUDIENCE = "https://kubernetes.default.svc"
ISSUER = "https://kubernetes.default.svc.cluster.local"
INVALID = "invalid bearer token"
LEEWAY_S = 60.0
_BOUND = {"pod": "pods", "secret": "secrets", "node": "nodes"}
_ACCOUNTS = "serviceaccounts"
_EXTRA = "authentication.kubernetes.io"
_INVALIDATED = "service account token has been invalidated"


class InvalidToken(ValueError):
    """A token of a service account that is not accepted, in the original's words."""


@dataclass(frozen=True)
class TokenClaims:
    """What a token says. bound: kind (pod, secret, node) -> (name, uid)."""

    namespace: str
    account: str
    uid: str
    audiences: tuple[str, ...]
    issued: float
    expires: float
    id: str
    bound: tuple[tuple[str, tuple[str, str]], ...] = ()


class ServiceAccountTokens:
    """Issues and checks tokens. audience: of the server itself."""

    def __init__(self, key: bytes, audience: str = DEFAULT_AUDIENCE) -> None:
        self._key = hashlib.sha256(b"service account tokens" + key).digest()
        self.audience = audience

    def issue(self, claims: TokenClaims) -> str:
        """The token of claims."""
        private: Tree = {
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.account, "uid": claims.uid},
        }
        private |= {kind: {"name": name, "uid": uid} for kind, (name, uid) in claims.bound}
        body = {
            "aud": list(claims.audiences),
            "exp": math.floor(claims.expires),
            "iat": math.floor(claims.issued),
            "iss": ISSUER,
            "jti": claims.id,
            "kubernetes.io": private,
            "nbf": math.floor(claims.issued),
            "sub": f"system:serviceaccount:{claims.namespace}:{claims.account}",
        }
        head = _packed({"alg": "HS256", "typ": "JWT"}) + "." + _packed(body)
        return f"{head}.{self._signature(head)}"

    def _signature(self, head: str) -> str:
        return _base64(hmac.new(self._key, head.encode(), hashlib.sha256).digest())

    def claims(self, token: str) -> TokenClaims | None:
        """The claims of a token of ours; None for another text."""
        head, _, signature = token.rpartition(".")
        try:
            genuine = hmac.compare_digest(self._signature(head).encode(), signature.encode())
        except UnicodeEncodeError:
            return None
        if not genuine:
            return None
        body = _unpacked(head.partition(".")[2])
        private = body["kubernetes.io"]
        account = private["serviceaccount"]
        bound = tuple(
            (kind, (private[kind]["name"], private[kind]["uid"]))
            for kind in _BOUND
            if kind in private
        )
        return TokenClaims(
            private["namespace"],
            account["name"],
            account["uid"],
            tuple(body["aud"]),
            body["iat"],
            body["exp"],
            body["jti"],
            bound,
        )

    def owner(
        self, token: str, audiences: Sequence[str], objects: ObjectClient | None, now: float
    ) -> User | None:
        """The user of a token that is meant for one of the audiences; None for another text.

        Raises InvalidToken for one of ours that is not accepted any more.
        """
        claims = self.claims(token)
        if claims is None or objects is None:
            return None
        if now > claims.expires + LEEWAY_S:
            raise InvalidToken("service account token has expired")
        _check_objects(claims, objects, now)
        if not set(claims.audiences) & set(audiences):
            listed = " ".join(json.dumps(one) for one in claims.audiences)
            raise InvalidToken(f"token audiences [{listed}] is invalid for the target audiences")
        return _user(claims)


def _check_objects(claims: TokenClaims, objects: ObjectClient, now: float) -> None:
    """The account and what the token is bound to must still be there. Raises InvalidToken."""
    account = _stored(objects, _ACCOUNTS, claims.namespace, claims.account)
    if account is None:
        raise InvalidToken(f'serviceaccounts "{claims.account}" not found')
    uid = account["metadata"]["uid"]
    if uid != claims.uid:
        text = f"service account UID ({uid}) does not match claim ({claims.uid})"
        raise InvalidToken(text)
    if _is_deleted(account, now):
        text = f"service account {claims.namespace}/{claims.account} has been deleted"
        raise InvalidToken(text)
    kinds = dict(claims.bound)
    for kind, (name, bound_uid) in claims.bound:
        if kind == "node" and "pod" in kinds:
            continue
        namespace = "" if kind == "node" else claims.namespace
        found = _stored(objects, _BOUND[kind], namespace, name)
        if found is None or _is_deleted(found, now):
            raise InvalidToken(_INVALIDATED)
        uid = found["metadata"]["uid"]
        if uid != bound_uid:
            about = f"service account {kind} ref claim ({bound_uid})"
            raise InvalidToken(f"{kind} UID ({uid}) does not match {about}")


def _stored(objects: ObjectClient, path: str, namespace: str, name: str) -> Tree | None:
    resource = objects.registry.by_path(path)
    return None if resource is None else objects.peek(resource, namespace, name)


def _is_deleted(obj: Tree, now: float) -> bool:
    at = obj["metadata"].get("deletionTimestamp")
    return bool(at) and parse_time(at) < now - LEEWAY_S


def _user(claims: TokenClaims) -> User:
    group = "system:serviceaccounts"
    extra = {f"{_EXTRA}/credential-id": (f"JTI={claims.id}",)}
    for kind, (name, uid) in claims.bound:
        if kind in ("pod", "node"):
            extra |= {f"{_EXTRA}/{kind}-name": (name,), f"{_EXTRA}/{kind}-uid": (uid,)}
    return User(
        f"system:serviceaccount:{claims.namespace}:{claims.account}",
        claims.uid,
        (group, f"{group}:{claims.namespace}", AUTHENTICATED),
        extra,
    )


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _packed(value: Tree) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _unpacked(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
