"""Metadata of Kubernetes objects: names, labels, owners, times."""

from __future__ import annotations

import datetime
from typing import Annotated

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of Kubernetes values: immutable, compared by content, camelCase in JSON.

    Fields that scheduling does not read are left out; decoding ignores them.
    """


Time = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
"""A timestamp with a zone, as RFC 3339 has it; without one it would depend on the local zone."""


class OwnerReference(Value, frozen=True):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Value, frozen=True):
    """`metadata` of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str = ""
    generate_name: str = ""
    finalizers: tuple[str, ...] = ()


class Object(Value, frozen=True):
    """Base of objects with an identity: kind by class, name and namespace by metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """`metadata.labels`; never mutate it, the value is shared."""
        return self.metadata.labels


class NamespacedObject(Object, frozen=True):
    """A namespaced object."""

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, `default` where absent, as kubectl sends it."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        meta = self.metadata
        return f"{meta.namespace or 'default'}/{meta.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The controlling owner, if any."""
        for owner in self.metadata.owner_references:
            if owner.controller:
                return owner
        return None
