"""PodSecurity: pods that ask for more than their namespace allows are refused or warned of.

Source: kubernetes v1.36, pod-security-admission/admission, plugin/pkg/admission/security.

Differs: nothing is exempt, as without a configuration file there.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import invalid_object
from stowplan.apis.machinery.resource import ApiCall, ObjectClient
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
)
from stowplan.apiserver.admission.pod_security.security_checks import (
    detail_text,
    reason_text,
    violations,
)
from stowplan.apiserver.admission.pod_security.security_policy import (
    PERMISSIVE,
    PRIVILEGED,
    LeveledVersion,
    SecurityPolicy,
    policy_of,
)
from stowplan.objects.encoding.tree import Tree

_TEMPLATES = {
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "apps/replicasets": ("spec", "template"),
    "apps/deployments": ("spec", "template"),
    "apps/statefulsets": ("spec", "template"),
    "apps/daemonsets": ("spec", "template"),
    "batch/jobs": ("spec", "template"),
    "batch/cronjobs": ("spec", "jobTemplate", "spec", "template"),
}
"""Where kinds have the template of their pods."""
_IGNORED = {"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}
_CONTAINER_LISTS = ("initContainers", "containers")
PODS_CHECKED_MAX = 3000


class PodSecurity(AdmissionPluginBase):
    """Checks pods and templates by the labels of their namespace."""

    repeatable = True

    def __init__(self) -> None:
        self._policies: dict[str, SecurityPolicy] = {}
        self._objects: ObjectClient | None = None
        self._n_writes = 0

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403 for a pod, 422 for labels of a namespace that cannot be read."""
        path, sub = call.resource.path, call.subresource
        if obj is None:
            return
        if path == "pods":
            if sub in _IGNORED:
                return
            policy = self._policy(call)
            if policy is not PERMISSIVE and _is_significant(obj, old):
                _check(call, policy, obj, obj, enforces=True)
        elif sub:
            return
        elif path == "namespaces":
            _check_namespace(call, obj, old)
        elif path in _TEMPLATES and (policy := self._policy(call)) is not PERMISSIVE:
            template = obj
            for name in _TEMPLATES[path]:
                template = template.get(name) or {}
            if template.get("spec"):
                _check(call, policy, obj, template, enforces=False)

    def _policy(self, call: ApiCall) -> SecurityPolicy:
        """The policy of the namespace; read again after a write of namespaces."""
        n_writes = call.objects.n_writes("namespaces")
        if self._objects is not call.objects or self._n_writes != n_writes:
            self._policies, self._objects, self._n_writes = {}, call.objects, n_writes
        found = self._policies.get(call.namespace)
        if found is None:
            namespace = stored_object(call, "namespaces", "", call.namespace) or {"metadata": {}}
            found = policy_of(namespace["metadata"].get("labels") or {})
            self._policies[call.namespace] = found
        return found


def _check(call: ApiCall, policy: SecurityPolicy, obj: Tree, pod: Tree, *, enforces: bool) -> None:
    if policy.is_privileged and not policy.problems:
        return
    meta, spec = pod.get("metadata") or {}, pod["spec"]
    if enforces:
        found = violations(policy.enforce, meta, spec)
        if found:
            text = f'violates PodSecurity "{policy.enforce}": {detail_text(found)}'
            raise admission_forbidden(call, obj, text)
    found = violations(policy.warn, meta, spec)
    if found:
        call.warnings.append(f'would violate PodSecurity "{policy.warn}": {detail_text(found)}')


def _is_significant(new: Tree, old: Tree | None) -> bool:
    """False for an update that leaves the images of all containers as they are."""
    if old is None:
        return True
    for kind in _CONTAINER_LISTS:
        images = [[one.get("image") for one in pod["spec"].get(kind) or ()] for pod in (new, old)]
        if images[0] != images[1]:
            return True
    before = {one["name"]: one.get("image") for one in old["spec"].get("ephemeralContainers") or ()}
    return any(
        one["name"] not in before or before[one["name"]] != one.get("image")
        for one in new["spec"].get("ephemeralContainers") or ()
    )


def _check_namespace(call: ApiCall, obj: Tree, old: Tree | None) -> None:
    policy = policy_of(obj["metadata"].get("labels") or {})
    before = None if old is None else policy_of(old["metadata"].get("labels") or {})
    if policy.problems and (before is None or before.problems != policy.problems):
        raise invalid_object("", "Namespace", obj["metadata"].get("name", ""), policy.problems)
    if before is None or policy.enforce == before.enforce or policy.enforce.level == PRIVILEGED:
        return
    relaxed = policy.enforce.strictness <= before.enforce.strictness
    if policy.enforce.minor == before.enforce.minor and relaxed:
        return
    call.warnings.extend(_namespace_warnings(call, obj["metadata"]["name"], policy.enforce))


def _namespace_warnings(call: ApiCall, namespace: str, wanted: LeveledVersion) -> Iterator[str]:
    """What is said of the pods that a stricter level finds."""
    pods = _prioritized(
        [
            pod
            for pod in stored_objects(call, "pods")
            if pod["metadata"].get("namespace") == namespace
        ]
    )
    checked, by_reason = pods[:PODS_CHECKED_MAX], dict[str, list[str]]()
    for pod in checked:
        found = violations(wanted, pod["metadata"], pod["spec"])
        if found:
            by_reason.setdefault(reason_text(found), []).append(pod["metadata"]["name"])
    if len(checked) < len(pods):
        yield (
            "new PodSecurity enforce level only checked against the first"
            f" {len(checked)} of {len(pods)} existing pods"
        )
    if by_reason:
        yield (
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level'
            f' "{wanted}"'
        )
    yield from sorted(_warning_text(names, reason) for reason, names in by_reason.items())


def _warning_text(names: list[str], reason: str) -> str:
    others = len(names) - 1
    if not others:
        return f"{names[0]}: {reason}"
    word = "pod" if others == 1 else "pods"
    return f"{min(names)} (and {others} other {word}): {reason}"


def _prioritized(pods: list[Tree]) -> list[Tree]:
    """One pod of each controller first."""
    first: list[Tree] = []
    rest: list[Tree] = []
    seen: set[str] = set()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        uid = next((one["uid"] for one in owners if one.get("controller")), "")
        (rest if uid and uid in seen else first).append(pod)
        seen.add(uid)
    return [*first, *rest]
