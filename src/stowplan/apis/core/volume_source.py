"""Validation of the volumes of pods.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go. Types whose drivers Kubernetes
has removed (glusterfs, flocker, quobyte) are only checked for required fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from stowplan.apis.core.volume_claim_spec import volume_claim_spec
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

Check = Callable[[Tree, str], Iterator[Cause]]

HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
)  # fmt: skip
_FIELDS_OF_VOLUMES = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_FIELDS_OF_ENV = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
_KNOWN_LABELS = frozenset(_FIELDS_OF_ENV) | frozenset(_FIELDS_OF_VOLUMES) | {"spec.restartPolicy"}
_RESOURCES = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu",
    "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_MORE_THAN_ONE = "may not specify more than 1 volume type"


def volumes(given: list[Tree], pod_name: str, path: str) -> tuple[dict[str, Tree], list[Cause]]:
    """The valid volumes by name, and the causes of the others."""
    found: list[Cause] = []
    known: dict[str, Tree] = {}
    made = {f"{pod_name}-{one['name']}" for one in given if pod_name and "ephemeral" in one}
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        name = one["name"]
        wrong = list(_source(one, here))
        if not name:
            wrong.append(required(f"{here}.name"))
        else:
            wrong += field_checks.dns_label(name, f"{here}.name")
        if name in known:
            wrong.append(duplicate(f"{here}.name", name))
        if wrong:
            found += wrong
        else:
            known[name] = one
        claim = one.get("persistentVolumeClaim")
        if claim is not None and claim["claimName"] in made:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(
                invalid(f"{here}.persistentVolumeClaim.claimName", claim["claimName"], text)
            )
    return known, found


def _source(one: Tree, path: str) -> Iterator[Cause]:
    """The source of a volume, checked in the original's order of types."""
    first = True
    for name, check in _SOURCES.items():
        source = one.get(name)
        if source is None:
            continue
        if not first:
            yield forbidden_field(f"{path}.{name}", _MORE_THAN_ONE)
            continue
        first = False
        yield from check(source, f"{path}.{name}")
    if first:
        yield required(path, "must specify a volume type")


def _empty_dir(one: Tree, path: str) -> Iterator[Cause]:
    limit = one.get("sizeLimit")
    if limit is not None and canonical_quantity.is_negative(limit):
        yield forbidden_field(
            f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"
        )


def host_path(one: Tree, path: str) -> Iterator[Cause]:
    """A hostPath volume."""
    if not one["path"]:
        yield required(f"{path}.path")
        return
    yield from field_checks.path_without_backsteps(one["path"], f"{path}.path")
    yield from field_checks.one_of(one["type"], HOST_PATH_TYPES, f"{path}.type")


def _needs(*names: str) -> Check:

    def check(one: Tree, path: str) -> Iterator[Cause]:
        for name in names:
            if not one.get(name):
                yield required(f"{path}.{name}")

    return check


def _git_repo(one: Tree, path: str) -> Iterator[Cause]:
    if not one["repository"]:
        yield required(f"{path}.repository")
    yield from field_checks.local_descending_path(one.get("directory", ""), f"{path}.directory")


def nfs(one: Tree, path: str) -> Iterator[Cause]:
    """An nfs volume."""
    yield from _needs("server", "path")(one, path)
    if not one["path"].startswith("/"):
        yield invalid(f"{path}.path", one["path"], "must be an absolute path")


def _items_of(name: str) -> Check:
    """The check of a volume of files. name: the field with the name of their source."""

    def check(one: Tree, path: str) -> Iterator[Cause]:
        yield from _needs(name)(one, path)
        yield from field_checks.file_mode(one.get("defaultMode"), f"{path}.defaultMode")
        for at, item in enumerate(one.get("items", ())):
            yield from _key_to_path(item, f"{path}.items[{at}]")

    return check


def _key_to_path(one: Tree, path: str) -> Iterator[Cause]:
    yield from _needs("key", "path")(one, path)
    yield from field_checks.local_non_reserved_path(one["path"], f"{path}.path")
    yield from field_checks.file_mode(one.get("mode"), f"{path}.mode")


def _downward(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.file_mode(one.get("defaultMode"), f"{path}.defaultMode")
    for item in one.get("items", ()):
        # The original does not index these.
        yield from _downward_file(item, path)


def _downward_file(one: Tree, path: str) -> Iterator[Cause]:
    if not one["path"]:
        yield required(f"{path}.path")
    yield from field_checks.local_non_reserved_path(one["path"], f"{path}.path")
    field, resource = one.get("fieldRef"), one.get("resourceFieldRef")
    if field is not None:
        yield from field_reference(field, _FIELDS_OF_VOLUMES, f"{path}.fieldRef")
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", text)
    elif resource is not None:
        yield from resource_reference(resource, f"{path}.resourceFieldRef", in_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from field_checks.file_mode(one.get("mode"), f"{path}.mode")


def env_field_reference(one: Tree, path: str) -> Iterator[Cause]:
    """A fieldRef of an environment variable."""
    yield from field_reference(one, _FIELDS_OF_ENV, path)


def field_reference(one: Tree, allowed: tuple[str, ...], path: str) -> Iterator[Cause]:
    """A fieldRef of a downward API volume."""
    field = one["fieldPath"]
    if not field:
        yield required(f"{path}.fieldPath")
        return
    base, bracket, rest = field.partition("[")
    if bracket and rest.startswith("'") and rest.endswith("']"):
        key = rest[1:-2]
        if base == "metadata.annotations":
            yield from field_checks.qualified_name(key.lower(), path)
        elif base == "metadata.labels":
            yield from field_checks.qualified_name(key, path)
        else:
            text = f"error converting fieldPath: field label does not support subscript: {field}"
            yield invalid(f"{path}.fieldPath", field, text)
    elif field not in _KNOWN_LABELS:
        text = f"error converting fieldPath: field label not supported: {field}"
        yield invalid(f"{path}.fieldPath", field, text)
    elif field not in allowed:
        yield not_supported(f"{path}.fieldPath", field, allowed)


def resource_reference(one: Tree, path: str, in_volume: bool = False) -> Iterator[Cause]:
    """A resourceFieldRef."""
    name = one["resource"]
    huge = name.startswith(("requests.hugepages-", "limits.hugepages-"))
    if in_volume and not one.get("containerName"):
        yield required(f"{path}.containerName")
    elif not name:
        yield required(f"{path}.resource")
    elif name not in _RESOURCES and not huge:
        yield not_supported(f"{path}.resource", name, _RESOURCES)
    divisor = one["divisor"]
    if canonical_quantity.is_zero(divisor):
        return
    what = name.partition(".")[2]
    if what == "cpu" and divisor not in ("1m", "1"):
        text = "only divisor's values 1m and 1 are supported with the cpu resource"
        yield invalid(f"{path}.divisor", name, text)
    unit_of = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(what)
    if huge:
        unit_of = "hugepages"
    if unit_of and divisor not in _UNITS:
        text = (
            f"only divisor's values {', '.join(_UNITS)} are supported with the {unit_of} resource"
        )
        yield invalid(f"{path}.divisor", name, text)


def _projected(one: Tree, path: str) -> Iterator[Cause]:
    mode = one.get("defaultMode")
    yield from field_checks.file_mode(mode, f"{path}.defaultMode")
    seen: set[str] = set()
    for at, source in enumerate(one["sources"] or ()):
        here = f"{path}.sources[{at}]"
        for name in ("secret", "configMap"):
            if name in source:
                yield from _projected_items(source[name], seen, path, f"{here}.{name}")
        if "downwardAPI" in source:
            yield from _projected_fields(source["downwardAPI"], seen, path, f"{here}.downwardAPI")
        if "serviceAccountToken" in source:
            token = source["serviceAccountToken"]
            yield from _projected_token(token, path, f"{here}.serviceAccountToken")
        if len(source) > 1:
            yield forbidden_field(here, _MORE_THAN_ONE)


def _projected_items(one: Tree, seen: set[str], whole: str, path: str) -> Iterator[Cause]:
    if not one.get("name"):
        yield required(f"{path}.name")
    for at, item in enumerate(one.get("items", ())):
        yield from _key_to_path(item, f"{path}.items[{at}]")
        yield from _new_path(item["path"], seen, whole, one.get("name", ""))


def _projected_fields(one: Tree, seen: set[str], whole: str, path: str) -> Iterator[Cause]:
    for item in one.get("items", ()):
        yield from _downward_file(item, path)
        yield from _new_path(item["path"], seen, whole, item["path"])


def _new_path(target: str, seen: set[str], whole: str, printed: str) -> Iterator[Cause]:
    if target and target in seen:
        yield invalid(whole, printed, "conflicting duplicate paths")
    seen.add(target)


def _projected_token(one: Tree, whole: str, path: str) -> Iterator[Cause]:
    seconds = one.get("expirationSeconds", 3600)
    if seconds < 600:
        text = "may not specify a duration less than 10 minutes"
        yield invalid(f"{path}.expirationSeconds", seconds, text)
    if seconds > 1 << 32:
        text = "may not specify a duration larger than 2^32 seconds"
        yield invalid(f"{path}.expirationSeconds", seconds, text)
    yield from field_checks.needed(
        one["path"], field_checks.local_non_reserved_path, f"{whole}.path"
    )


def csi_driver_name(name: str, path: str) -> Iterator[Cause]:
    """The name of a CSI driver."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield Cause(path, "FieldValueTooLong", "Too long: may not be more than 63 bytes")
    for text in subdomain_problems(name.lower()):
        yield invalid(path, name, text)


def _csi(one: Tree, path: str) -> Iterator[Cause]:
    yield from csi_driver_name(one["driver"], f"{path}.driver")
    secret = one.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")
    elif secret is not None:
        yield from field_checks.dns_subdomain(secret["name"], f"{path}.name")


def _ephemeral(one: Tree, path: str) -> Iterator[Cause]:
    template = one.get("volumeClaimTemplate")
    here = f"{path}.volumeClaimTemplate"
    if template is None:
        yield required(here)
        return
    meta = template["metadata"]
    for key in meta.get("annotations", ()):
        yield from field_checks.qualified_name(key.lower(), f"{here}.metadata.annotations")
    yield from field_checks.labels(meta.get("labels", {}), f"{here}.metadata.labels")
    for key in meta:
        if key not in ("labels", "annotations"):
            yield forbidden_field(f"{here}.metadata.{key}", "cannot be set")
    yield from volume_claim_spec(template["spec"], f"{here}.spec")


def _image(one: Tree, path: str) -> Iterator[Cause]:
    if not one.get("reference"):
        yield required(f"{path}.reference")
    yield from field_checks.supported_value(
        one.get("pullPolicy", ""), ("Always", "IfNotPresent", "Never"), f"{path}.pullPolicy"
    )


def _iscsi(one: Tree, path: str) -> Iterator[Cause]:
    yield from _needs("targetPortal", "iqn")(one, path)
    if not 0 <= one["lun"] <= 255:
        yield invalid(f"{path}.lun", one["lun"], field_checks.inclusive(0, 255))


# In the original's order.
_SOURCES: Mapping[str, Check] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _needs("pdName"),
    "awsElasticBlockStore": _needs("volumeID"),
    "secret": _items_of("secretName"),
    "nfs": nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _needs(),
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _needs("volumeID"),
    "cephfs": _needs("monitors"),
    "quobyte": _needs("registry", "volume"),
    "downwardAPI": _downward,
    "fc": _needs(),
    "flexVolume": _needs("driver"),
    "configMap": _items_of("name"),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI"),
    "storageos": _needs("volumeName"),
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "projected": _projected,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
