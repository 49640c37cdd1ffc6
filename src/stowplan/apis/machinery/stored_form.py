"""The stored form of an object: JSON bytes whose first keys are in a fixed order.

kind, apiVersion and metadata come first, and resourceVersion within the scalars that begin the
metadata. So the head can be replaced, and the version set, without decoding: a
quote inside a JSON text is escaped, so the first `"metadata":` and `"resourceVersion":"` of the
bytes are the keys themselves.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.apis.machinery.resource import Resource
from stowplan.objects.encoding.tree import Tree

METADATA_KEY_ORDER = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels",
    "annotations", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Tree] = msgspec.json.Decoder(dict[str, Any])
_VERSION = b'"resourceVersion":"'
_META = b'"metadata":'

encode = _encoder.encode
decode = _decoder.decode


def encode_stored(resource: Resource, obj: Tree, version: int) -> bytes:
    """The stored bytes of `obj` at `version`; `obj` gets kind, apiVersion and that version too."""
    meta = obj["metadata"]
    meta["resourceVersion"] = str(version)
    ordered = {key: meta[key] for key in METADATA_KEY_ORDER if key in meta}
    if len(ordered) < len(meta):
        ordered |= meta
    obj["kind"], obj["apiVersion"], obj["metadata"] = resource.kind, resource.api_version, ordered
    return encode({"kind": "", "apiVersion": "", "metadata": ordered, **obj})


def with_version(value: bytes, version: int) -> bytes:
    """The same object at another version."""
    start = value.index(_VERSION) + len(_VERSION)
    return b"%b%d%b" % (value[:start], version, value[value.index(b'"', start) :])


def version_of_stored(value: bytes) -> int:
    """The resourceVersion of stored bytes."""
    start = value.index(_VERSION) + len(_VERSION)
    return int(value[start : value.index(b'"', start)])


def encoded_head(resource: Resource) -> bytes:
    """The first bytes of objects of a resource, up to their metadata."""
    return b'{"kind":"%b","apiVersion":"%b",' % (
        resource.kind.encode(),
        resource.api_version.encode(),
    )


def under_current_schema(resource: Resource, value: bytes) -> bytes:
    """Stored bytes under the current schema, which may have changed for custom kinds."""
    return value if resource.reread is None else resource.reread(value)


def as_served(resource: Resource, value: bytes) -> bytes:
    """Stored bytes as the resource serves them, possibly in another version."""
    value = under_current_schema(resource, value)
    if resource.alias is not None:
        return encode(resource.alias.from_stored(decode(value)))
    start = encoded_head(resource)
    return value if value.startswith(start) else start + value[value.index(_META) :]


def as_list_item(resource: Resource, value: bytes) -> bytes:
    """Stored bytes as an item of a list; items of built-in kinds have no kind and apiVersion."""
    if resource.custom:
        return as_served(resource, value)
    if resource.alias is not None:
        value = as_served(resource, value)
    return b"{" + value[value.index(_META) :]


def list_body(resource: Resource, head: bytes, values: list[bytes]) -> bytes:
    """A list of stored bytes. head: the encoded list without its items. values: are used up, so
    that what is made of them does not lie beside them in memory."""
    if resource.custom or resource.alias is not None or resource.reread is not None:
        items = b",".join([as_list_item(resource, value) for value in values])
        return b'%b,"items":[%b]}' % (head[:-1], items)
    head = head[:-1] + b',"items":['
    if not values:
        return head + b"]}"
    for at, value in enumerate(values):
        # As `as_list_item`, without the bracket.
        values[at] = value[value.index(_META) :]
    values[0] = head + b"{" + values[0]
    values[-1] += b"]}"
    return b",{".join(values)


def as_stored_tree(resource: Resource, obj: Tree) -> Tree:
    """A decoded tree as it is stored (`resource.ResourceAlias`)."""
    return obj if resource.alias is None else resource.alias.to_stored(obj)


def as_served_tree(resource: Resource, obj: Tree) -> Tree:
    """A stored tree as it is served (`resource.ResourceAlias`)."""
    if resource.custom and obj.get("apiVersion") != resource.api_version:
        return {**obj, "apiVersion": resource.api_version}
    return obj if resource.alias is None else resource.alias.from_stored(obj)
