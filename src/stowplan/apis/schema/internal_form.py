"""Objects as the original prints them in errors: in its internal types.

The internal types of core have no JSON names, so Go prints its own: first letter large, some
abbreviations whole, every field written, fields of a pod that concern its node in the security
context. Types of meta/v1 inside keep their JSON form.

Source: kubernetes v1.36, pkg/apis/core/types.go; apimachinery v0.36, util/diff.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from stowplan.apis.schema.struct_types import StructField, StructType, ValueType
from stowplan.objects.encoding.tree import Tree

DIFF_LINES_MAX = 2_000
"""Longest diff that is computed whole, in lines of both values.

Differs: of longer ones only a part is printed, since Python's diff takes quadratic time.
"""
_NAMES = {
    "gcePersistentDisk": "GCEPersistentDisk",
    "awsElasticBlockStore": "AWSElasticBlockStore",
    "nfs": "NFS",
    "rbd": "RBD",
    "iscsi": "ISCSI",
    "cephfs": "CephFS",
    "fc": "FC",
    "storageos": "StorageOS",
    "csi": "CSI",
    "uid": "UID",
    "apiVersion": "APIVersion",
    "fsType": "FSType",
    "iqn": "IQN",
    "apiGroup": "APIGroup",
    "dnsPolicy": "DNSPolicy",
    "dnsConfig": "DNSConfig",
    "os": "OS",
    "ip": "IP",
    "seLinuxOptions": "SELinuxOptions",
    "fsGroup": "FSGroup",
    "fsGroupChangePolicy": "FSGroupChangePolicy",
    "seLinuxChangePolicy": "SELinuxChangePolicy",
    "tty": "TTY",
    "httpGet": "HTTPGet",
    "tcpSocket": "TCPSocket",
    "httpHeaders": "HTTPHeaders",
    "grpc": "GRPC",
    "ttlSecondsAfterFinished": "TTLSecondsAfterFinished",
}
_POD_SPEC_FIELDS = (
    "volumes initContainers containers ephemeralContainers restartPolicy "
    "terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector "
    "serviceAccountName automountServiceAccountToken nodeName securityContext "
    "imagePullSecrets hostname subdomain setHostnameAsFQDN affinity schedulerName "
    "tolerations hostAliases priorityClassName priority preemptionPolicy dnsConfig "
    "readinessGates runtimeClassName overhead enableServiceLinks topologySpreadConstraints "
    "os schedulingGates resourceClaims resources hostnameOverride schedulingGroup"
)
_OF_NODE = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_SECURITY_FIELDS = (
    "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups "
    "supplementalGroupsPolicy fsGroup fsGroupChangePolicy sysctls seccompProfile "
    "appArmorProfile seLinuxChangePolicy"
)
_VOLUME_FIELDS = (
    "gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd quobyte iscsi flexVolume "
    "cinder cephfs fc flocker azureFile vsphereVolume azureDisk photonPersistentDisk "
    "portworxVolume scaleIO local storageos csi"
)
_POD_SPEC = _POD_SPEC_FIELDS.split()
_SECURITY = _SECURITY_FIELDS.split()
_ORDERS = {"PersistentVolumeSource": _VOLUME_FIELDS.split()}
"""Types whose fields the original has in another order inside than outside."""


def internal_diff(full_name: str, old: Tree, new: Tree) -> str:
    """A unified diff of two values of a type, printed in their internal form."""
    before, after = (_lines(full_name, one) for one in (old, new))
    if len(before) + len(after) > DIFF_LINES_MAX:
        before, after = _changed_part(before, after)
    lines = list(difflib.unified_diff(before, after, n=3))
    return "".join(lines[2:])


def unified_lines(old: Any, new: Any) -> str:
    """A unified diff of two values as they are, printed as JSON."""
    before, after = (
        [f"{line}\n" for line in json.dumps(one, indent=1, ensure_ascii=False).split("\n")]
        for one in (old, new)
    )
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])


def _changed_part(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """The lines around the first difference, at most DIFF_LINES_MAX."""
    pairs = zip(before, after, strict=False)
    first = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
    start = max(0, first - 3)
    end = start + DIFF_LINES_MAX // 2
    return before[start:end], after[start:end]


def _lines(full_name: str, value: Tree) -> list[str]:
    text = json.dumps(internal_form(full_name, value), indent=1, ensure_ascii=False)
    return [f"{line}\n" for line in text.split("\n")]


def internal_form(full_name: str, value: Tree | None) -> Any:
    """The internal form of a value of a type."""
    from stowplan.apis.schema import type_tables

    return _struct(type_tables.struct(full_name), value)


def _struct(shape: StructType, value: Tree | None) -> Any:
    if value is None:
        return None
    if shape.package == "meta/v1":
        return value
    if shape.name == "PodSpec":
        return _pod_spec(shape, value)
    made: Tree = {}
    for one in (shape.fields[name] for name in _ORDERS.get(shape.name, shape.fields)):
        if one.value.shape is not None and one.value.shape.name == "ObjectMeta":
            made |= _meta(value.get(one.name, {}))
        elif one.name not in ("kind", "apiVersion"):
            made[_name(one.name)] = _field(one, value.get(one.name))
    return made


def _meta(meta: Tree) -> Tree:
    """Metadata keep their JSON form; maps are sorted by key."""
    maps: Tree = {
        name: dict(sorted(meta[name].items())) for name in ("labels", "annotations") if name in meta
    }
    return {**meta, **maps}


def _name(json_name: str) -> str:
    return _NAMES.get(json_name) or json_name[0].upper() + json_name[1:]


def _field(one: StructField, value: Any) -> Any:
    if value is None:
        return None if one.pointer else one.value.zero()
    return _value(one.value, value)


def _value(kind: ValueType, value: Any) -> Any:
    if kind.item is not None and kind.is_list:
        return [_value(kind.item, each) for each in value] if value is not None else None
    if kind.item is not None:
        return {key: _value(kind.item, value[key]) for key in sorted(value)}
    if kind.shape is not None:
        return _struct(kind.shape, value)
    return value


def _pod_spec(shape: StructType, value: Tree) -> Tree:
    made: Tree = {}
    for name in _POD_SPEC:
        if name == "securityContext":
            made["SecurityContext"] = _security(shape, value)
        else:
            made[_name(name)] = _field(shape.fields[name], value.get(name))
    return made


def _security(shape: StructType, value: Tree) -> Tree:
    made: Tree = {}
    for name in _OF_NODE:
        made[_name(name)] = _field(shape.fields[name], value.get(name))
    inner = shape.fields["securityContext"].value.shape
    assert inner is not None
    given = value.get("securityContext") or {}
    for name in _SECURITY:
        made[_name(name)] = _field(inner.fields[name], given.get(name))
    return made
