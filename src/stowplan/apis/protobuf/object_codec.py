"""Objects of the built-in kinds as protobuf: which message a kind has, lists, watch events.

Source: k8s.io/apimachinery: runtime/serializer/protobuf, pkg/apis/meta/v1; field numbers of
meta/v1 as in `field_numbers`.
"""

from __future__ import annotations

from functools import cache

from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.protobuf.codec import (
    KeptMessages,
    decode_message,
    encode_message,
    envelope,
    opened,
)
from stowplan.apis.protobuf.message_types import MessageTypes
from stowplan.apis.protobuf.wire_format import WireError, bytes_field
from stowplan.apis.schema import type_tables
from stowplan.apis.schema.struct_types import StructType
from stowplan.objects.encoding.tree import Tree

_META_TYPES = """
ShardInfo
  selector string!

ListMeta
  selfLink string
  resourceVersion string -- version of the list; a watch goes on from it.
  continue string -- token for the next page.
  remainingItemCount int64? -- objects after this page.
  shardInfo ShardInfo?

Status
  kind string
  apiVersion string
  metadata ListMeta
  status string
  message string
  reason string
  details StatusDetails?
  code int32

StatusDetails
  name string
  group string
  kind string
  causes [StatusCause]
  uid UID
  retryAfterSeconds int32

StatusCause
  reason string
  message string
  field string

PartialObjectMetadataList
  kind string
  apiVersion string
  metadata ListMeta
  items [PartialObjectMetadata]!

APIVersions
  kind string
  apiVersion string
  versions [string]!
  serverAddressByClientCIDRs [ServerAddressByClientCIDR]!

ServerAddressByClientCIDR
  clientCIDR string!
  serverAddress string!

APIGroupList
  kind string
  apiVersion string
  groups [APIGroup]!

APIGroup
  kind string
  apiVersion string
  name string!
  versions [GroupVersionForDiscovery]!
  preferredVersion GroupVersionForDiscovery?
  serverAddressByClientCIDRs [ServerAddressByClientCIDR]

GroupVersionForDiscovery
  groupVersion string!
  version string!

APIResourceList
  kind string
  apiVersion string
  groupVersion string!
  resources [APIResource]!

Verbs = [string]

APIResource
  name string!
  singularName string!
  namespaced bool!
  group string
  version string
  kind string!
  verbs Verbs!
  shortNames [string]
  categories [string]
  storageVersionHash string
"""
_DISCOVERY_TYPES = """
APIGroupDiscoveryList
  kind string
  apiVersion string
  metadata ListMeta
  items [APIGroupDiscovery]!

APIGroupDiscovery
  kind string
  apiVersion string
  metadata ObjectMeta
  versions [APIVersionDiscovery]

APIVersionDiscovery
  version string!
  resources [APIResourceDiscovery]
  freshness string

APIResourceDiscovery
  resource string!
  responseKind GroupVersionKind?
  scope string!
  singularResource string!
  verbs [string]!
  shortNames [string]
  categories [string]
  subresources [APISubresourceDiscovery]

APISubresourceDiscovery
  subresource string!
  responseKind GroupVersionKind?
  acceptedTypes [GroupVersionKind]
  verbs [string]!

GroupVersionKind
  group string!
  version string!
  kind string!
"""
_LIST = """
{kind}List
  kind string
  apiVersion string
  metadata ListMeta
  items [{kind}]!
"""
_META_KINDS = frozenset(
    ("APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Status")
)
"""Kinds of meta/v1 that have the version of another group, or none."""
_ENTRY = "meta/v1.ManagedFieldsEntry"
_NO_MESSAGES = frozenset(("apiextensions", "metrics"))
"""Groups whose messages are not known here.

Differs: the original has them; definitions of custom kinds are answered as JSON.
"""


class ObjectCodec:
    """Encodes and decodes objects by their kind."""

    def __init__(self) -> None:
        self._tables = type_tables.extended()
        self._tables.read("meta/v1", _META_TYPES)
        self._tables.read("apidiscovery/v2", _DISCOVERY_TYPES)
        self._types = MessageTypes(self._tables)
        self._entries = KeptMessages(self._tables.struct(_ENTRY))
        self._shapes: dict[tuple[str, str], StructType | None] = {}

    def has_messages(self, api_version: str, kind: str) -> bool:
        """Whether objects of a kind can be written as protobuf."""
        return self._shape(api_version, kind) is not None

    def encode(self, tree: Tree) -> bytes:
        """An object with its envelope. Raises WireError for a kind without messages."""
        version, kind = tree.get("apiVersion", ""), tree.get("kind", "")
        shape = self._shape(version, kind)
        if shape is None:
            raise WireError(f"{version} {kind} has no message")
        return envelope(version, kind, encode_message(self._types, shape, tree))

    def decode(self, body: bytes) -> Tree:
        """The object of a body; of a kind that is not known, only apiVersion and kind. Raises
        WireError."""
        return self._decoded(body, None)

    def as_json(self, body: bytes) -> bytes:
        """The same as JSON. Entries of managedFields are kept: clients send back those that they
        have read. Raises WireError."""
        return encode(self._decoded(body, self._entries))

    def _decoded(self, body: bytes, kept: KeptMessages | None) -> Tree:
        version, kind, message = opened(body)
        tree: Tree = {"kind": kind, "apiVersion": version}
        shape = self._shape(version, kind)
        if shape is not None:
            tree |= decode_message(self._types, shape, message, kept)
        return tree

    def _shape(self, api_version: str, kind: str) -> StructType | None:
        key = api_version, kind
        if key not in self._shapes:
            self._shapes[key] = self._found_shape(api_version, kind)
        return self._shapes[key]

    def _found_shape(self, api_version: str, kind: str) -> StructType | None:
        if kind in _META_KINDS:
            return self._tables.struct(f"meta/v1.{kind}")
        group, _, version = api_version.rpartition("/")
        home = group.partition(".")[0] or "core"
        is_built_in = "." not in group or group.endswith(".k8s.io")
        if home in _NO_MESSAGES or not is_built_in:
            return None
        full, known = f"{home}/{version}.{kind}", set(self._tables.names())
        if full not in known and full.removesuffix("List") in known and kind.endswith("List"):
            self._tables.read(f"{home}/{version}", _LIST.format(kind=kind.removesuffix("List")))
            return self._tables.struct(full)
        return self._tables.struct(full) if full in known else None


@cache
def object_codec() -> ObjectCodec:
    """The codec of all kinds that are registered when it is first asked for."""
    return ObjectCodec()


def watch_frame(kind: str, event_object: bytes) -> bytes:
    """One event of a stream: its length in four bytes, then a WatchEvent. event_object: with its
    envelope."""
    event = bytes_field(1, kind.encode()) + bytes_field(2, bytes_field(1, event_object))
    return len(event).to_bytes(4, "big") + event
