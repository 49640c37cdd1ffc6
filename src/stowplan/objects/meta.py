"""What every Kubernetes object carries: names, labels, owners, times."""

from __future__ import annotations

import datetime
from typing import Annotated

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of every Kubernetes value: frozen, compared by content, camelCase on the wire.

    Fields that scheduling does not read are left out; decoding ignores them.
    """


Time = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
"""A moment. RFC 3339 names its zone; without one it would depend on where the program runs."""


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


class Object(Value, frozen=True):
    """Base of the values that have an identity: kind by class, name and namespace by metadata."""

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
    """An object that lives in a namespace."""

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, `default` where it is absent (as kubectl would send it)."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if it has one."""
        return next((o for o in self.metadata.owner_references if o.controller), None)
