"""Secret.

Source: kubernetes v1.36, pkg/registry/core/secret, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core.config_map import DATA_BYTES_MAX, validate_still_immutable
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, selectable_fields
from stowplan.apis.machinery.errors import TOO_LONG, Cause, forbidden_field, invalid, required
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.schema.json_parser import InvalidJson, parse_json
from stowplan.apis.validation import field_checks
from stowplan.apis.validation.pem import key_pair_problem
from stowplan.objects.encoding.tree import Tree

TYPES = """
SecretType = string

Secret -- confidential data.
  +PartialObjectMetadata
  immutable bool?
  data {bytes}
  stringData {string}
  type SecretType =Opaque
"""
TLS_TYPE = "kubernetes.io/tls"
_REQUIRED_KEYS = {
    TLS_TYPE: ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}


def _set_defaults(one: Tree) -> None:
    """stringData is merged into data, in base64."""
    texts = one.pop("stringData", None)
    if texts:
        data = one.setdefault("data", {})
        for name, text in texts.items():
            data[name] = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _validate(obj: Tree) -> Iterator[Cause]:
    data = obj.get("data", {})
    size = 0
    for key, value in sorted(data.items()):
        yield from field_checks.config_key(key, f"data[{key}]")
        size += len(base64.b64decode(value or ""))
    if size > DATA_BYTES_MAX:
        yield Cause("data", TOO_LONG, f"Too long: may not be more than {DATA_BYTES_MAX} bytes")
    kind = obj.get("type", "")
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key.startswith(".docker"):
            problem = _json_problem(data[key])
            if problem:
                yield invalid(f"data[{key}]", "<secret contents redacted>", problem)
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not obj["metadata"].get("annotations", {}).get(annotation):
            yield required(f"metadata.annotations[{annotation}]")


def _json_problem(value: str) -> str:
    """Why the text is no JSON object, in Go's words; "" if it is one."""
    try:
        found, _ = parse_json(base64.b64decode(value))
    except InvalidJson as error:
        return str(error)
    if found is None or isinstance(found, dict):
        return ""
    go = {str: "string", bool: "bool", list: "array"}.get(type(found), "number")
    return f"json: cannot unmarshal {go} into Go value of type map[string]interface {{}}"


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The type is immutable; an immutable secret keeps its data."""
    yield from field_checks.immutable(new.get("type", ""), old.get("type", ""), "type")
    if old.get("immutable"):
        yield from validate_still_immutable(new)
        if new.get("data") != old.get("data"):
            yield forbidden_field("data", "field is immutable when `immutable` is set")
    yield from _validate(new)


class SecretStrategy(BuiltinStrategy):
    """Secrets: a certificate and its key that do not belong together are warned of."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        if obj.get("type") == TLS_TYPE:
            data = obj.get("data", {})
            pair = (base64.b64decode(data.get(key) or "") for key in _REQUIRED_KEYS[TLS_TYPE])
            problem = key_pair_problem(*pair)
            if problem:
                yield problem


def _cells(obj: Tree, now: float) -> list[Any]:
    return [len(obj.get("data", ()))]


KIND = KindRegistration(
    kind="Secret",
    types=TYPES,
    defaults={"core/v1.Secret": _set_defaults},
    strategy=SecretStrategy(_validate, _validate_update),
    table=PrintedTable("Name, Type=type, Data, Age", _cells),
    fields=selectable_fields("type"),
)
