"""ServiceAccount: pods get their account, its pull secrets and a volume with its token.

Source: kube-apiserver v1.36, plugin/pkg/admission/serviceaccount.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core.pod_resize import MIRROR_ANNOTATION
from stowplan.apis.core.pod_spec_key import TOKEN_VOLUME_PREFIX
from stowplan.apis.machinery.object_meta import random_suffix
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    targets,
)
from stowplan.objects.encoding.tree import Tree

DEFAULT_ACCOUNT = "default"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_SECONDS = 3607
ENFORCE_ANNOTATION = "kubernetes.io/enforce-mountable-secrets"
EPHEMERAL = "ephemeralcontainers"
_CONTAINERS = {
    "initContainers": "init container",
    "containers": "container",
    "ephemeralContainers": "ephemeral container",
}
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


class ServiceAccountAdmission(AdmissionPluginBase):
    """Gives new pods their service account, and refuses those whose account is not there."""

    repeatable = True
    paths = ("pods",)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is None or old is not None or not targets(call, "pods"):
            return
        spec = obj["spec"]
        if _is_mirror(obj):
            self.validate(call, obj, old)
            return
        name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = _account(call, obj, name)
        mounts = spec.get("automountServiceAccountToken")
        if mounts is None:
            mounts = account.get("automountServiceAccountToken", True)
        if mounts:
            _mount_token(spec, call)
        secrets = account.get("imagePullSecrets")
        if secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": one.get("name", "")} for one in secrets]
        _check_secrets(call, obj, account)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is not None and old is not None and call.subresource == EPHEMERAL:
            self._validate_ephemeral(call, obj)
        if obj is None or old is not None or not targets(call, "pods"):
            return
        if _is_mirror(obj):
            why = next(_mirror_problems(obj["spec"]), "")
            if why:
                raise admission_forbidden(call, obj, why)
            return
        _check_secrets(call, obj, _account_of(call, obj))

    def _validate_ephemeral(self, call: ApiCall, pod: Tree) -> None:
        account = _account_of(call, pod)
        if _enforces(account):
            spec = {"ephemeralContainers": pod["spec"].get("ephemeralContainers")}
            why = next(_foreign_secrets(spec, account), "")
            if why:
                raise admission_forbidden(call, pod, why)


def _is_mirror(pod: Tree) -> bool:
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def _check_secrets(call: ApiCall, pod: Tree, account: Tree) -> None:
    """Raises ApiError 403 for a pod with secrets that its account does not list, if it must."""
    if _enforces(account):
        why = next(_foreign_secrets(pod["spec"], account), "")
        if why:
            raise admission_forbidden(call, pod, why)


def _enforces(account: Tree) -> bool:
    annotations = account["metadata"].get("annotations") or {}
    return annotations.get(ENFORCE_ANNOTATION) in _TRUE


def _account_of(call: ApiCall, pod: Tree) -> Tree:
    """The account that a pod names. Raises ApiError 403."""
    name = pod["spec"].get("serviceAccountName", "")
    if not name:
        place = f"{call.namespace}/{pod['metadata'].get('name', '')}"
        raise admission_forbidden(call, pod, f"no service account specified for pod {place}")
    return _account(call, pod, name)


def _account(call: ApiCall, pod: Tree, name: str) -> Tree:
    """The account of a pod. Raises ApiError 403."""
    found = stored_object(call, "serviceaccounts", call.namespace, name)
    if found is None:
        place = f"{call.namespace}/{name}"
        why = f'error looking up service account {place}: serviceaccount "{name}" not found'
        raise admission_forbidden(call, pod, why)
    return found


def _mount_token(spec: Tree, call: ApiCall) -> None:
    """A volume with the token, mounted by every container that has nothing in its place."""
    volumes = spec.get("volumes") or []
    names = [one["name"] for one in volumes if one["name"].startswith(TOKEN_VOLUME_PREFIX)]
    name = names[0] if names else f"{TOKEN_VOLUME_PREFIX}{random_suffix(call.rng)}"
    needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or []
        if any(one.get("mountPath") == TOKEN_PATH for one in mounts):
            continue
        mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        container["volumeMounts"] = [*mounts, mount]
        needed = True
    if needed and not names:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _token_volume() -> Tree:
    """The token, the certificate of the server and the namespace of the pod."""
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    certificate = [{"key": "ca.crt", "path": "ca.crt"}]
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": certificate}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ],
        "defaultMode": 0o644,
    }


def _mirror_problems(spec: Tree) -> Iterator[str]:
    if spec.get("serviceAccountName"):
        yield "a mirror pod may not reference service accounts"
    volumes = spec.get("volumes") or ()
    projected = [
        source for one in volumes for source in one.get("projected", {}).get("sources") or ()
    ]
    secrets = any("secret" in one for one in (*volumes, *projected))
    if secrets or spec.get("imagePullSecrets") or any(_environment_secrets(spec)):
        yield "a mirror pod may not reference secrets"
    if any("serviceAccountToken" in one for one in projected):
        yield "a mirror pod may not use ServiceAccountToken volume projections"


def _environment_secrets(spec: Tree) -> Iterator[tuple[str, str]]:
    """(where, secret) of each secret in the environment of a container."""
    for field, title in _CONTAINERS.items():
        for one in spec.get(field) or ():
            for variable in one.get("env") or ():
                key = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if key is not None:
                    where = f"{title} {one['name']} with envVar {variable['name']}"
                    yield where, key.get("name", "")
            for source in one.get("envFrom") or ():
                if "secretRef" in source:
                    where = f"{title} {one['name']} with envFrom"
                    yield where, source["secretRef"].get("name", "")


def _foreign_secrets(spec: Tree, account: Tree) -> Iterator[str]:
    """Secrets of a pod that its account, which enforces it, does not list."""
    name = account["metadata"]["name"]
    known = {one.get("name", "") for one in account.get("secrets") or ()}
    tail = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName", "")
        if "secret" in volume and secret not in known:
            yield f'volume with secret.secretName="{secret}" {tail} secret'
    for where, secret in _environment_secrets(spec):
        if secret not in known:
            yield f'{where} referencing secret.secretName="{secret}" {tail} secret'
    pulls = {one.get("name", "") for one in account.get("imagePullSecrets") or ()}
    for at, one in enumerate(spec.get("imagePullSecrets") or ()):
        secret = one.get("name", "")
        if secret not in pulls:
            yield f'imagePullSecrets[{at}].name="{secret}" {tail} imagePullSecret'
