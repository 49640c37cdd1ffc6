"""CertificateSigningRequest: stored, approved and denied by hand; nothing here issues certificates.

Source: kubernetes v1.36, pkg/registry/certificates, pkg/apis/certificates/validation.

Unproved: the text of a request that cannot be parsed; Go's parser says what is wrong with it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, restore_field, selectable_fields
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import label_problems, subdomain_problems
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy, Subresource
from stowplan.apis.schema.internal_form import unified_lines
from stowplan.apis.validation.pem import CERTIFICATE, pem_blocks
from stowplan.objects.encoding.tree import Tree

TYPES = """
KeyUsage RequestConditionType = string
ExtraValue = [string]

CertificateSigningRequest -- asks a signer for a certificate.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec CertificateSigningRequestSpec!
  status CertificateSigningRequestStatus

CertificateSigningRequestSpec
  request bytes! ~atomic
  signerName string!
  expirationSeconds int32?
  usages [KeyUsage] ~atomic
  username string
  uid string
  groups [string] ~atomic
  extra {ExtraValue}

CertificateSigningRequestStatus
  conditions [CertificateSigningRequestCondition] ~merge:type
  certificate bytes ~atomic

CertificateSigningRequestCondition
  type RequestConditionType!
  status core.ConditionStatus!
  reason string
  message string
  lastUpdateTime Time
  lastTransitionTime Time
"""
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_SECONDS_MIN = 600
_SIGNER_PATH_MAX = 571
_REQUEST_BLOCK = "CERTIFICATE REQUEST"
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection", "encipher only",
    "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment",
    "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing",
    "timestamping",
)  # fmt: skip
_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")
_STATUSES = ("False", "True", "Unknown")
_CONDITIONS = "status.conditions"


def _validate(obj: Tree, old: Tree | None = None) -> Iterator[Cause]:
    """old: what is wrong with the stored request already is accepted."""
    spec, before = obj["spec"], old["spec"] if old is not None else {}
    problem = _request_problem(base64.b64decode(spec["request"] or ""))
    if problem:
        yield invalid("spec.request", spec["request"] or "", problem)
    usages = spec.get("usages", [])
    if not usages:
        yield required("spec.usages")
    for at, usage in enumerate(usages):
        if usage not in _USAGES and usages != before.get("usages"):
            yield not_supported(f"spec.usages[{at}]", usage, _USAGES)
    for at, usage in enumerate(usages):
        if usage in usages[:at] and usages != before.get("usages"):
            yield duplicate(f"spec.usages[{at}]", usage)
    signer = spec["signerName"]
    if signer == LEGACY_SIGNER and before.get("signerName") != signer:
        text = "the legacy signerName is not allowed via this API version"
        yield invalid("spec.signerName", signer, text)
    else:
        yield from _validate_signer(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SECONDS_MIN:
        text = f"may not specify a duration less than {_SECONDS_MIN} seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, text)
    status = obj.get("status", {})
    yield from _validate_conditions(status.get("conditions", []))
    certificate = status.get("certificate")
    if certificate != (old or {}).get("status", {}).get("certificate"):
        problem = _certificate_problem(base64.b64decode(certificate or ""))
        if problem:
            yield invalid("status.certificate", "<certificate data>", problem)


def _request_problem(text: bytes) -> str:
    blocks = pem_blocks(text)
    if not blocks or blocks[0].type != _REQUEST_BLOCK:
        return f"PEM block type must be {_REQUEST_BLOCK}"
    # Imported here, as in `pem`: the library is large, and most servers see no request.
    from cryptography import x509

    try:
        request = x509.load_der_x509_csr(blocks[0].content)
    except ValueError:
        return "asn1: structure error: malformed certificate request"
    return "" if request.is_signature_valid else "x509: signature check failed"


def _certificate_problem(text: bytes) -> str:
    if not text:
        return ""
    from cryptography import x509

    blocks = pem_blocks(text)
    for block in blocks:
        if block.type != CERTIFICATE:
            return f"only CERTIFICATE PEM blocks are allowed, found {json.dumps(block.type)}"
        if block.headers:
            return "no PEM block headers are permitted"
        if not block.content:
            return "found CERTIFICATE PEM block containing 0 certificates"
        try:
            x509.load_der_x509_certificate(block.content)
        except ValueError:
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _validate_signer(name: str, path: str) -> Iterator[Cause]:
    """`domain/path`, both of DNS names."""
    if not name:
        yield required(path)
        return
    parts = name.split("/")
    if len(parts) != 2:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, text)
        return
    host, rest = parts
    for text in subdomain_problems(host):
        yield invalid(path, host, f"validating label {json.dumps(host)}: {text}")
    if len(host.split(".")) < 2:
        yield invalid(path, host, "should be a domain with at least two segments separated by dots")
    for text in [one for part in rest.split(".") for one in label_problems(part)]:
        yield invalid(path, rest, f"validating label {json.dumps(rest)}: {text}")
    if len(name) > _SIGNER_PATH_MAX:
        yield Cause(
            path, "FieldValueTooLong", f"Too long: may not be more than {_SIGNER_PATH_MAX} bytes"
        )


def _validate_conditions(conditions: list[Tree]) -> Iterator[Cause]:
    seen: list[str] = []
    for at, one in enumerate(conditions):
        kind, status, path = one["type"], one["status"], f"{_CONDITIONS}[{at}]"
        if not kind:
            yield required(f"{path}.type")
        allowed = ("True",) if kind in _FINAL else _STATUSES
        if not status:
            yield required(f"{path}.status")
        elif status not in allowed:
            yield not_supported(f"{path}.status", status, allowed)
        if kind in _DECISIONS and any(each in seen for each in _DECISIONS if each != kind):
            text = "Approved and Denied conditions are mutually exclusive"
            yield invalid(_CONDITIONS, kind, text)
        if kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.append(kind)


def _of_type(obj: Tree, kind: str) -> list[Tree]:
    return [one for one in obj.get("status", {}).get("conditions", ()) if one["type"] == kind]


def _validate_update(new: Tree, old: Tree, subresource: str) -> Iterator[Cause]:
    yield from _validate(new, old)
    for kind in _FINAL:
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            text = f'updates may not remove a condition of type "{kind}"'
            yield forbidden_field(_CONDITIONS, text)
    for kind in _DECISIONS if subresource != "approval" else ():
        now, was = _of_type(new, kind), _of_type(old, kind)
        if len(now) > len(was):
            yield forbidden_field(_CONDITIONS, f'updates may not add a condition of type "{kind}"')
        elif len(now) == len(was) and now != was:
            text = f'updates may not modify a condition of type "{kind}"'
            yield forbidden_field(_CONDITIONS, f"{text}\n{unified_lines(was, now)}")
    given, stored = (one.get("status", {}).get("certificate") for one in (new, old))
    if given != stored and subresource != "status":
        text = "updates may not set certificate content"
        yield forbidden_field("status.certificate", text)
    elif given != stored and stored:
        text = "updates may not modify existing certificate content"
        yield forbidden_field("status.certificate", text)


class CertificateSigningRequestStrategy(BuiltinStrategy):
    """Requests: who asks is written into them; they are immutable but for their subresources."""

    def __init__(self) -> None:
        super().__init__(_validate, names=lambda name, prefix: [])

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        spec, user = obj["spec"], call.user
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
        given = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
        spec.update({name: value for name, value in given.items() if value})
        extra = {name: list(values) for name, values in dict(user.extra).items()}
        if extra:
            spec["extra"] = extra
        obj["status"] = {}

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        restore_field(new, old, "status")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return _validate_update(new, old, "")


class _DecisionStrategy(ResourceStrategy):
    """The subresources approval and status."""

    def __init__(self, subresource: str) -> None:
        self._subresource = subresource

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        conditions = new.get("status", {}).get("conditions", [])
        if self._subresource == "status":
            for kind in _DECISIONS:
                _keep(conditions, _of_type(old, kind), kind)
        else:
            new["status"] = {**old.get("status", {}), "conditions": conditions}
            if not conditions:
                del new["status"]["conditions"]
        _set_times(conditions, old, timestamps.format_time(call.now))

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        return _validate_update(new, old, self._subresource)


def _keep(conditions: list[Tree], stored: list[Tree], kind: str) -> None:
    """Keep the stored conditions of a type, if as many are given."""
    places = [at for at, one in enumerate(conditions) if one["type"] == kind]
    if len(places) == len(stored):
        for at, one in zip(places, stored, strict=True):
            conditions[at] = one


def _set_times(conditions: list[Tree], old: Tree, now: str) -> None:
    for one in conditions:
        one["lastUpdateTime"] = one.get("lastUpdateTime") or now
        if not one.get("lastTransitionTime"):
            same = [
                was["lastTransitionTime"]
                for was in _of_type(old, one["type"])
                if was["status"] == one["status"] and was.get("lastTransitionTime")
            ]
            one["lastTransitionTime"] = same[0] if same else now


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, kinds = obj["spec"], {one["type"] for one in obj["status"].get("conditions", ())}
    decided = next((kind for kind in ("Denied", "Approved") if kind in kinds), "Pending")
    status = decided + (",Failed" if "Failed" in kinds else "")
    status += ",Issued" if obj["status"].get("certificate") else ""
    seconds = spec.get("expirationSeconds")
    asked = NONE if seconds is None else timestamps.human_duration(seconds)
    return [spec["signerName"] or NONE, spec.get("username", ""), asked, status]


_VERBS = ("get", "patch", "update")
KIND = KindRegistration(
    group="certificates.k8s.io",
    kind="CertificateSigningRequest",
    types=TYPES,
    namespaced=False,
    strategy=CertificateSigningRequestStrategy(),
    status=_DecisionStrategy("status"),
    short_names=("csr",),
    table=PrintedTable("Name, Age, SignerName, Requestor, RequestedDuration, Condition", _cells),
    fields=selectable_fields("spec.signerName"),
    subresources=(Subresource("approval", _VERBS, _DecisionStrategy("approval")),),
)
