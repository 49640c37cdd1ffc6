"""Bodies that kubectl sent as protobuf, of which only the length was recorded.

They are made again from the arguments of the command; the length shows whether they are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stowplan.apis.protobuf.object_codec import object_codec

Tree = dict[str, Any]


class Command(NamedTuple):
    """Arguments: words, flags, the namespace in use, and the object that was read before."""

    words: list[str]
    flags: dict[str, str]
    namespace: str
    read: Tree

    @property
    def metadata(self) -> Tree:
        """Name, and the namespace if it was given."""
        given = self.flags.get("-n")
        return {"name": self.words[2], **({"namespace": given} if given else {})}


def command_of(argv: list[str], namespace: str, read: Tree) -> Command:
    """The parts of a command line."""
    words: list[str] = []
    flags: dict[str, str] = {}
    left = iter(argv)
    for one in left:
        if one.startswith("--"):
            name, _, value = one.partition("=")
            flags[name] = value
        elif one.startswith("-"):
            flags[one] = next(left)
        else:
            words.append(one)
    return Command(words, flags, flags.get("-n", namespace), read)


def kubectl_body(argv: list[str], namespace: str, read: Tree, length: int) -> bytes:
    """The body of a command; raises ValueError for one that is not known, or has another length."""
    command = command_of(argv, namespace, read)
    for count in (2, 1):
        make = MAKERS.get(" ".join(command.words[:count]))
        if make is not None:
            body = object_codec().encode(make(command))
            if len(body) != length:
                raise ValueError(f"{argv}: {len(body)} bytes, recorded {length}")
            return body
    raise ValueError(f"{argv}: not known")


def _named(api_version: str, kind: str, spec: Callable[[Command], Tree]) -> Callable[..., Tree]:
    def make(command: Command) -> Tree:
        head = {"apiVersion": api_version, "kind": kind, "metadata": command.metadata}
        return {**head, **spec(command)}

    return make


def _pairs(text: str) -> Tree:
    return dict(one.split("=", 1) for one in text.split(",")) if text else {}


def _pod(name: str, command: Command, restarts: str) -> Tree:
    container = {"name": name, "image": command.flags["--image"]}
    return {"spec": {"containers": [container], "restartPolicy": restarts}}


def _job(command: Command) -> Tree:
    if "--from" not in command.flags:
        return {"spec": {"template": _pod(command.words[2], command, "Never")}}
    meta = command.read["metadata"]
    template = command.read["spec"]["jobTemplate"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}
    added = {
        "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
        "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"]}],
    }
    return {"metadata": {**command.metadata, **added}, "spec": template["spec"]}


def _cron_job(command: Command) -> Tree:
    name = command.words[2]
    job = {"metadata": {"name": name}, "spec": {"template": _pod(name, command, "OnFailure")}}
    return {"spec": {"schedule": command.flags["--schedule"], "jobTemplate": job}}


def _deployment(command: Command) -> Tree:
    labels, image = {"app": command.words[2]}, command.flags["--image"]
    container = {"name": image.partition(":")[0].rpartition("/")[2], "image": image}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {
        "metadata": {**command.metadata, "labels": labels},
        "spec": {"replicas": int(command.flags.get("--replicas", "1")), **spec},
    }


def _ingress(command: Command) -> Tree:
    place, _, target = command.flags["--rule"].partition("=")
    host, _, path = place.partition("/")
    service, _, port = target.partition(":")
    backend = {"service": {"name": service, "port": {"number": int(port)}}}
    paths = [{"path": f"/{path}", "pathType": "Exact", "backend": backend}]
    return {"spec": {"rules": [{"host": host, "http": {"paths": paths}}]}}


def _autoscaler(command: Command) -> Tree:
    percent = int(command.flags["--cpu-percent"])
    target = {"type": "Utilization", "averageUtilization": percent}
    resource = {"name": "cpu", "target": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": command.metadata,
        "spec": {
            "scaleTargetRef": {
                "kind": "Deployment", "name": command.words[2], "apiVersion": "apps/v1",
            },
            "minReplicas": int(command.flags["--min"]),
            "maxReplicas": int(command.flags["--max"]),
            "metrics": [{"type": "Resource", "resource": resource}],
        },
    }  # fmt: skip


def _token(command: Command) -> Tree:
    spec: Tree = {"audiences": None}
    if "--duration" in command.flags:
        spec["expirationSeconds"] = 60 * int(command.flags["--duration"].removesuffix("m"))
    return {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
        "spec": spec,
    }  # fmt: skip


def _can_i(command: Command) -> Tree:
    head: Tree = {"apiVersion": "authorization.k8s.io/v1", "metadata": {}}
    if "--list" in command.flags:
        spec: Tree = {"namespace": command.namespace}
        return {**head, "kind": "SelfSubjectRulesReview", "spec": spec}
    _, _, verb, resource = command.words
    asked = {"namespace": command.namespace, "verb": verb, "resource": resource}
    return {**head, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}


def _who(command: Command) -> Tree:
    version = "authentication.k8s.io/v1"
    return {"apiVersion": version, "kind": "SelfSubjectReview", "metadata": {}}


def _budget(command: Command) -> Tree:
    labels = _pairs(command.flags["--selector"])
    least = int(command.flags["--min-available"])
    return {"spec": {"minAvailable": least, "selector": {"matchLabels": labels}}}


LOWER = "PreemptLowerPriority"
_account = _named("v1", "ServiceAccount", lambda command: {})
_pdb = _named("policy/v1", "PodDisruptionBudget", _budget)
MAKERS: dict[str, Callable[[Command], Tree]] = {
    "auth can-i": _can_i,
    "auth whoami": _who,
    "autoscale": _autoscaler,
    "create configmap": _named(
        "v1", "ConfigMap", lambda one: {"data": _pairs(one.flags.get("--from-literal", ""))}
    ),
    "create cronjob": _named("batch/v1", "CronJob", _cron_job),
    "create deployment": _named("apps/v1", "Deployment", _deployment),
    "create ingress": _named("networking.k8s.io/v1", "Ingress", _ingress),
    "create job": _named("batch/v1", "Job", _job),
    "create namespace": _named("v1", "Namespace", lambda one: {}),
    "create pdb": _pdb,
    "create poddisruptionbudget": _pdb,
    "create priorityclass": _named(
        "scheduling.k8s.io/v1", "PriorityClass",
        lambda one: {"value": int(one.flags["--value"]), "preemptionPolicy": LOWER},
    ),
    "create quota": _named(
        "v1", "ResourceQuota", lambda one: {"spec": {"hard": _pairs(one.flags["--hard"])}}
    ),
    "create sa": _account,
    "create serviceaccount": _account,
    "create token": _token,
}  # fmt: skip
"""Subcommand -> how its object is made."""
