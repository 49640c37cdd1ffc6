"""Request bodies: decoded to a canonical tree of the kind of the path.

Source: apiserver v0.36, endpoints/handlers (create, update, delete, rest); texts as recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery.errors import (
    ApiError,
    BodyDecodeError,
    bad_request,
    invalid,
    invalid_object,
    not_supported,
)
from stowplan.apis.machinery.go_format import not_an_object_text, unmarshal_text
from stowplan.apis.machinery.object_meta import META_GROUP
from stowplan.apis.machinery.resource import Resource, ResourceRegistry, ResourceSchema
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.protobuf.codec import MAGIC
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apis.protobuf.wire_format import WireError
from stowplan.apis.schema.json_parser import LONG_BYTES, InvalidJson, parse_json
from stowplan.apis.validation.field_checks import dry_run_causes
from stowplan.apiserver.http.negotiation import (
    JSON,
    PROTOBUF,
    YAML,
)
from stowplan.apiserver.http.request_options import QueryParameters
from stowplan.apiserver.http.tables import internal_group
from stowplan.apiserver.http.yaml_body import YamlBodyError, read_yaml, warning_lines
from stowplan.apiserver.storage.entry_patterns import EntriesText, without_known
from stowplan.apiserver.storage.object_parts import drop_known, drop_mark
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

SUMMARY_MAX = 30
SCHEME_SOURCE = "pkg/api/legacyscheme/scheme.go:30"
META_SCHEME_SOURCE = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"
OLD_KIND_VERSIONS = {("Eviction", "policy/v1beta1")}
"""Versions of bodies that are accepted though no longer served."""
META_KINDS = frozenset(
    (
        "CreateOptions", "DeleteOptions", "GetOptions", "List", "ListOptions", "PatchOptions",
        "Status", "UpdateOptions", "WatchEvent",
    )
)  # fmt: skip
"""Kinds that every group of the original has."""
KINDS_NOT_SERVED: dict[str, tuple[str, ...]] = {
    "v1": (
        "Binding", "ComponentStatus", "NodeProxyOptions", "PodAttachOptions", "PodExecOptions",
        "PodLogOptions", "PodPortForwardOptions", "PodProxyOptions", "PodStatusResult",
        "RangeAllocation", "SerializedReference", "ServiceProxyOptions",
    ),
    "admissionregistration.k8s.io/v1": (
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    ),
    "apiregistration.k8s.io/v1": ("APIService",),
    "autoscaling/v1": ("HorizontalPodAutoscaler", "Scale"),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "certificates.k8s.io/v1": ("CertificateSigningRequest",),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "flowcontrol.apiserver.k8s.io/v1": ("FlowSchema", "PriorityLevelConfiguration"),
    "networking.k8s.io/v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "policy/v1": ("Eviction",),
}  # fmt: skip
"""Kinds of the original that are not served: a body of one is of the wrong kind, not unknown."""
PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")


def inline_bytes_max(media: str) -> int:
    """The length of the longest body that is decoded in the server's own thread."""
    # Other forms than JSON take ten times as long.
    return LONG_BYTES if media == JSON else LONG_BYTES // 8


def body_too_large(bytes_max: int) -> ApiError:
    """413 of a body over the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {bytes_max}")


def _body_summary(raw: bytes) -> str:
    """The beginning of a body as errors print it."""
    if not raw:
        return "<empty>"
    cut = raw[:SUMMARY_MAX]
    text = cut.decode("utf-8", errors="replace") if raw[:1] == b"{" else cut.hex()
    return f"{text} ..." if len(raw) > SUMMARY_MAX else text


def decode_tree(raw: bytes, media: str) -> tuple[Tree, list[str]]:
    """The tree of a body and the texts of duplicate keys.

    Raises YamlBodyError, ApiError 413, 415.
    """
    if media == PROTOBUF:
        raise YamlBodyError(_unreadable_protobuf(raw))
    if media == YAML and raw[:1] not in (b"{", b"["):
        tree, repeated = read_yaml(raw)
    else:
        try:
            tree, repeated = parse_json(raw)
        except InvalidJson as error:
            raise YamlBodyError(f"couldn't get version/kind; json parse error: {error}") from None
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise YamlBodyError(not_an_object_text(tree))
    for key in ("apiVersion", "kind"):
        value = tree.get(key)
        if value is None:
            tree.pop(key, None)
        elif not isinstance(value, str):
            why = unmarshal_text(value, f"Go struct field .{key} of type string")
            raise YamlBodyError(f"couldn't get version/kind; json parse error: {why}")
    return tree, repeated


def _decode_rest(raw: bytes, known: EntriesText) -> tuple[Tree, list[str]] | None:
    """As `decode_tree`, without managedFields that are the stored ones; None for other bodies."""
    less = without_known(raw, known)
    if less is None:
        return None
    try:
        tree, repeated = decode_tree(less, JSON)
    except (YamlBodyError, ApiError):
        # The error of the whole body is another one.
        return None
    return (tree, repeated) if not repeated and drop_mark(tree) else None


def body_as_json(raw: bytes, media: str) -> tuple[bytes, str]:
    """A body and its media type; protobuf is converted to JSON, if it can be read."""
    if media == PROTOBUF:
        try:
            return object_codec().as_json(raw), JSON
        except WireError:
            # The error is that of all protobuf bodies.
            return raw, media
    return raw, media


def _unreadable_protobuf(raw: bytes) -> str:
    if not raw:
        return "empty data"
    if raw.startswith(MAGIC):
        try:
            object_codec().decode(raw)
        except WireError as error:
            return str(error)
    prefix = "[107 56 115 0]"
    return f"provided data does not appear to be a protobuf message, expected prefix {prefix}"


def decode_object(
    raw: bytes,
    media: str,
    resource: Resource,
    registry: ResourceRegistry,
    mode: str,
    known: EntriesText | None = None,
) -> tuple[Tree, list[str]]:
    """The object of a create or update, and warnings. Raises ApiError 400, 415.

    known: managedFields that are left out, as if not sent.
    """
    if media == YAML or len(raw) > inline_bytes_max(media):
        # The stored object may change while another thread decodes the body.
        known = None
    return decode_kind(raw, media, resource, resource.schema, registry, mode, known=known)


def decode_kind(
    raw: bytes,
    media: str,
    wanted: Resource,
    schema: ResourceSchema,
    registry: ResourceRegistry,
    mode: str,
    kind: str = "",
    api_version: str = "",
    known: EntriesText | None = None,
) -> tuple[Tree, list[str]]:
    """As `decode_object`, for a body of another kind than the path (`kind`, `api_version`)."""
    kind = kind or wanted.kind
    raw, media = body_as_json(raw, media)
    try:
        # Protobuf that cannot be read is no JSON.
        rest = _decode_rest(raw, known) if known is not None and media == JSON else None
        tree, repeated = rest or decode_tree(raw, media)
    except YamlBodyError as error:
        text = f"the object provided is unrecognized (must be of type {kind}): {error}"
        raise bad_request(f"{text} ({_body_summary(raw)})") from None
    api_version = api_version or wanted.api_version
    _check_kind(tree, wanted, registry, kind, api_version)
    if known is not None and rest is None:
        drop_known(tree, known)
    named = tree.get("kind") or kind
    version = (tree.get("apiVersion") or api_version).rpartition("/")[2]
    prefix = f'{named} in version "{version}" cannot be handled as a {kind}: '
    try:
        decoded, strict = schema.decode(tree, repeated, mode)
    except BodyDecodeError as error:
        raise bad_request(prefix + str(error)) from None
    if strict and mode == "Strict":
        raise bad_request(f"{prefix}strict decoding error: {', '.join(strict)}")
    strict = [line for text in strict for line in warning_lines(text)]
    decoded["kind"], decoded["apiVersion"] = kind, api_version
    schema.default(decoded)
    return decoded, strict if mode == "Warn" else []


def _check_kind(
    tree: Tree, wanted: Resource, registry: ResourceRegistry, kind: str, api_version: str
) -> None:
    """Raises ApiError 400 for a body of another kind or version."""
    got_kind, got_version = tree.get("kind", ""), tree.get("apiVersion", "")
    if wanted.custom and kind == wanted.kind:
        _check_custom(tree, kind, api_version)
        return
    text = kind_mismatch(tree, wanted, registry, kind, api_version)
    got_kind, got_version = got_kind or kind, got_version or api_version
    if text:
        version = got_version.rpartition("/")[2]
        raise bad_request(
            f'{got_kind} in version "{version}" cannot be handled as a {kind}: {text}'
        )
    if got_version != api_version and (got_kind, got_version) not in OLD_KIND_VERSIONS:
        raise _other_version(got_version, api_version)


def kind_check(resource: Resource, registry: ResourceRegistry) -> Callable[[Tree], str]:
    """What finds trees of another kind; `kind_mismatch`, or nothing for custom kinds."""
    if resource.custom:
        return lambda tree: ""
    return lambda tree: kind_mismatch(tree, resource, registry)


def kind_mismatch(
    tree: Tree, wanted: Resource, registry: ResourceRegistry, kind: str = "", api_version: str = ""
) -> str:
    """The error text of a tree whose kind or apiVersion is not that of the path; "" if it is."""
    kind, api_version = kind or wanted.kind, api_version or wanted.api_version
    got_kind = tree.get("kind") or kind
    got_version = tree.get("apiVersion") or api_version
    if not isinstance(got_kind, str) or not isinstance(got_version, str):
        # The decoder raises the error.
        return ""
    if (got_kind, got_version) == (kind, api_version) or (
        got_kind,
        got_version,
    ) in OLD_KIND_VERSIONS:
        return ""
    group, _, version = got_version.rpartition("/")
    single = got_kind.removesuffix("List")
    known = registry.by_kind(group, version, single)
    served = known is not None and not known.custom
    if not served and not _is_known(got_kind, single, got_version, registry):
        text = f'no kind "{got_kind}" is registered for version "{got_version}" in scheme'
        return f'{text} "{SCHEME_SOURCE}"'
    if got_kind == kind:
        return ""
    ours = f"{internal_group(api_version.rpartition('/')[0])}.{kind}"
    return f"converting ({version}.{got_kind}) to ({ours}): unknown conversion"


def _is_known(kind: str, single: str, api_version: str, registry: ResourceRegistry) -> bool:
    """True for a kind of the original that is not served here."""
    group, _, version = api_version.rpartition("/")
    if kind in META_KINDS:
        return registry.has_group(group, version) or api_version in KINDS_NOT_SERVED
    return single in KINDS_NOT_SERVED.get(api_version, ())


def _other_version(got: str, wanted: str) -> ApiError:
    text = f"the API version in the data ({got}) does not match the expected API version ({wanted})"
    return bad_request(text)


def _check_custom(tree: Tree, kind: str, api_version: str) -> None:
    got_kind, got_version = tree.get("kind", ""), tree.get("apiVersion", "")
    if not got_kind:
        printed = f"Object 'Kind' is missing in '{encode(tree).decode()}'"
        text = f"the object provided is unrecognized (must be of type {kind}): {printed}"
        raise bad_request(text)
    if got_version != api_version:
        raise _other_version(got_version, api_version)
    if got_kind != kind:
        name = (tree.get("metadata") or {}).get("name", "")
        cause = invalid("kind", got_kind, f"must be {kind}")
        raise invalid_object(api_version.rpartition("/")[0], got_kind, name, [cause])


def decode_delete_options(
    raw: bytes, media: str, query: QueryParameters
) -> tuple[DeleteOptions, bool, bool | None]:
    """DeleteOptions of a body, or of the query where there is none; dryRun; orphanDependents.

    Raises ApiError 400, 415, 422.
    """
    if raw:
        tree = _deletion_tree(raw, media)
    else:
        tree = {
            "gracePeriodSeconds": query.number("gracePeriodSeconds"),
            "propagationPolicy": query.text("propagationPolicy") or None,
            "orphanDependents": query.flag("orphanDependents"),
            "dryRun": query.all("dryRun"),
        }
    orphan = tree.get("orphanDependents")
    policy = tree.get("propagationPolicy")
    causes = []
    if orphan is not None and policy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(invalid("propagationPolicy", policy, text))
    if policy is not None and policy not in PROPAGATION_POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*PROPAGATION_POLICIES, "nil")))
    dry_run = tree.get("dryRun") or []
    causes += dry_run_causes(dry_run)
    if causes:
        raise invalid_object(META_GROUP, "DeleteOptions", "", causes)
    conditions = tree.get("preconditions") or {}
    delete_options = DeleteOptions(
        tree.get("gracePeriodSeconds"),
        policy or {None: "", True: "Orphan", False: "Background"}[orphan],
        conditions.get("uid") or "",
        conditions.get("resourceVersion") or "",
    )
    return delete_options, bool(dry_run), orphan


_DELETION_TYPES: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "DeleteOptions.gracePeriodSeconds of type int64"),
    "propagationPolicy": (str, "DeleteOptions.propagationPolicy of type v1.DeletionPropagation"),
    "orphanDependents": (bool, "DeleteOptions.orphanDependents of type bool"),
    "dryRun": (list, "DeleteOptions.dryRun of type []string"),
    "preconditions": (dict, "DeleteOptions.preconditions of type v1.Preconditions"),
}


def _deletion_tree(raw: bytes, media: str) -> Tree:
    raw, media = body_as_json(raw, media)
    try:
        tree, _ = decode_tree(raw, media)
    except YamlBodyError as error:
        raise bad_request(str(error)) from None
    kind = tree.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        version = tree.get("apiVersion") or "meta.k8s.io/v1"
        text = f'no kind "{kind}" is registered for version "{version}" in scheme'
        raise bad_request(f'{text} "{META_SCHEME_SOURCE}"')
    for key, (type_, place) in _DELETION_TYPES.items():
        value = tree.get(key)
        wrong = type_ is int and isinstance(value, bool)
        if value is not None and (wrong or not isinstance(value, type_)):
            raise _wrong_type(value, place)
    conditions: dict[str, Any] = tree.get("preconditions") or {}
    for key, value in conditions.items():
        if key in ("uid", "resourceVersion") and value is not None and not isinstance(value, str):
            kind = "types.UID" if key == "uid" else "string"
            raise _wrong_type(value, f"Preconditions.preconditions.{key} of type {kind}")
    for value in tree.get("dryRun") or ():
        if not isinstance(value, str):
            raise _wrong_type(value, "DeleteOptions.dryRun of type string")
    return tree


def _wrong_type(value: Any, place: str) -> ApiError:
    return bad_request(unmarshal_text(value, f"Go struct field {place}"))


def canonical_object(resource: Resource, obj: Tree, *, strict: bool = False) -> Tree:
    """An object from within the process as a request would give it. strict: unknown fields are
    refused. Raises BodyDecodeError."""
    head: Tree = {"kind": resource.kind, "apiVersion": resource.api_version}
    mode = "Strict" if strict else "Ignore"
    filled, unknown = resource.schema.decode({**obj, **head}, (), mode)
    if unknown and strict:
        raise BodyDecodeError(f"strict decoding error: {', '.join(unknown)}")
    filled.update(head)
    filled.setdefault("metadata", {})
    resource.schema.default(filled)
    return filled
