"""Decoder of the few protobuf bodies that kubectl sends regardless of its settings.

`kubectl create namespace`, `kubectl auth can-i` and others have no option for JSON. The kinds that
they send are in a table; a body of another kind, or with a field that is not in the table, is
rejected with 415.

Source: the message numbers of Kubernetes v1.36, generated.proto of k8s.io/api and apimachinery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from stowplan.apis.machinery.strconv import atoi
from stowplan.objects.encoding.tree import Tree

_MAGIC = b"k8s\x00"
_DEPTH_MAX = 20
FIELDS_MAX = 200_000
"""Fields in one body."""

# A field is `number name type`. str, int and bool are left out when empty, since the original
# writes them always; with a question mark they are optional there and kept. [T] is a list of T,
# {T} a map from text to T.
_MESSAGES = """
ObjectMeta: 1 name str, 2 generateName str, 3 namespace str, 5 uid str, 6 resourceVersion str,
 11 labels {str}, 12 annotations {str}, 13 ownerReferences [OwnerReference], 14 finalizers [str]
OwnerReference: 1 kind str, 3 name str, 4 uid str, 5 apiVersion str, 6 controller bool?,
 7 blockOwnerDeletion bool?
LabelSelector: 1 matchLabels {str}, 2 matchExpressions [LabelSelectorRequirement]
LabelSelectorRequirement: 1 key str, 2 operator str, 3 values [str]
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec
NamespaceSpec: 1 finalizers [str]
ConfigMap: 1 metadata ObjectMeta, 2 data {str}, 3 binaryData {bytes}, 4 immutable bool?
Secret: 1 metadata ObjectMeta, 2 data {bytes}, 3 type str, 4 stringData {str}, 5 immutable bool?
ServiceAccount: 1 metadata ObjectMeta, 3 imagePullSecrets [Reference],
 4 automountServiceAccountToken bool?
Reference: 1 name str
ResourceQuota: 1 metadata ObjectMeta, 2 spec ResourceQuotaSpec
ResourceQuotaSpec: 1 hard {Quantity}, 2 scopes [str]
Quantity: 1 string str
PriorityClass: 1 metadata ObjectMeta, 2 value int?, 3 globalDefault bool, 4 description str,
 5 preemptionPolicy str?
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec
PodDisruptionBudgetSpec: 1 minAvailable IntOrString?, 2 selector LabelSelector,
 3 maxUnavailable IntOrString?, 4 unhealthyPodEvictionPolicy str?
IntOrString: 1 type int, 2 intVal int, 3 strVal str
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec
DeploymentSpec: 1 replicas int?, 2 selector LabelSelector, 3 template PodTemplateSpec,
 5 minReadySeconds int, 6 revisionHistoryLimit int?, 7 paused bool, 9 progressDeadlineSeconds int?
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 2 containers [Container], 3 restartPolicy str, 4 terminationGracePeriodSeconds int?,
 5 activeDeadlineSeconds int?, 6 dnsPolicy str, 7 nodeSelector {str}, 8 serviceAccountName str,
 9 serviceAccount str, 10 nodeName str, 19 schedulerName str, 20 initContainers [Container],
 24 priorityClassName str
Container: 1 name str, 2 image str, 3 command [str], 4 args [str], 6 ports [ContainerPort],
 8 resources ResourceRequirements, 13 terminationMessagePath str, 14 imagePullPolicy str,
 20 terminationMessagePolicy str
ContainerPort: 1 name str, 3 containerPort int, 4 protocol str
ResourceRequirements: 1 limits {Quantity}, 2 requests {Quantity}
Job: 1 metadata ObjectMeta, 2 spec JobSpec
JobSpec: 1 parallelism int?, 2 completions int?, 3 activeDeadlineSeconds int?,
 6 template PodTemplateSpec, 7 backoffLimit int?, 8 ttlSecondsAfterFinished int?,
 9 completionMode str?, 10 suspend bool?, 14 podReplacementPolicy str?
JobTemplateSpec: 1 metadata ObjectMeta, 2 spec JobSpec
CronJob: 1 metadata ObjectMeta, 2 spec CronJobSpec
CronJobSpec: 1 schedule str, 2 startingDeadlineSeconds int?, 3 concurrencyPolicy str,
 4 suspend bool?, 5 jobTemplate JobTemplateSpec, 6 successfulJobsHistoryLimit int?,
 7 failedJobsHistoryLimit int?, 8 timeZone str?
HorizontalPodAutoscaler: 1 metadata ObjectMeta, 2 spec HorizontalPodAutoscalerSpec
HorizontalPodAutoscalerSpec: 1 scaleTargetRef ScaleTarget, 2 minReplicas int?, 3 maxReplicas int,
 4 metrics [MetricSpec]
ScaleTarget: 1 kind str, 2 name str, 3 apiVersion str
MetricSpec: 1 type str, 4 resource ResourceMetricSource
ResourceMetricSource: 1 name str, 2 target MetricTarget
MetricTarget: 1 type str, 2 value Quantity, 3 averageValue Quantity, 4 averageUtilization int?
HorizontalPodAutoscalerV1: 1 metadata ObjectMeta, 2 spec HorizontalPodAutoscalerV1Spec
HorizontalPodAutoscalerV1Spec: 1 scaleTargetRef ScaleTarget, 2 minReplicas int?,
 3 maxReplicas int, 4 targetCPUUtilizationPercentage int?
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec
ServiceSpec: 1 ports [ServicePort], 2 selector {str}, 3 clusterIP str, 4 type str,
 10 externalName str
ServicePort: 1 name str, 2 protocol str, 3 port int, 4 targetPort IntOrString, 5 nodePort int
Role: 1 metadata ObjectMeta, 2 rules [PolicyRule]
ClusterRole: 1 metadata ObjectMeta, 2 rules [PolicyRule], 3 aggregationRule AggregationRule
AggregationRule: 1 clusterRoleSelectors [LabelSelector]
PolicyRule: 1 verbs [str], 2 apiGroups [str], 3 resources [str], 4 resourceNames [str],
 5 nonResourceURLs [str]
RoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
Subject: 1 kind str, 2 apiGroup str, 3 name str, 4 namespace str
RoleRef: 1 apiGroup str, 2 kind str, 3 name str
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessReviewSpec
LocalSubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessReviewSpec
SubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessReviewSpec
AccessReviewSpec: 1 resourceAttributes ResourceAttributes,
 2 nonResourceAttributes NonResourceAttributes, 3 user str, 4 groups [str], 6 uid str
ResourceAttributes: 1 namespace str, 2 verb str, 3 group str, 4 version str, 5 resource str,
 6 subresource str, 7 name str
NonResourceAttributes: 1 path str, 2 verb str
SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec
SelfSubjectRulesReviewSpec: 1 namespace str
SelfSubjectReview: 1 metadata ObjectMeta
"""

_KINDS = {
    "v1": {"Namespace", "ConfigMap", "Secret", "ServiceAccount", "ResourceQuota", "Service"},
    "apps/v1": {"Deployment"},
    "autoscaling/v1": {"HorizontalPodAutoscaler"},
    "autoscaling/v2": {"HorizontalPodAutoscaler"},
    "batch/v1": {"Job", "CronJob"},
    "policy/v1": {"PodDisruptionBudget"},
    "scheduling.k8s.io/v1": {"PriorityClass"},
    "rbac.authorization.k8s.io/v1": {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"},
    "authorization.k8s.io/v1": {
        "SelfSubjectAccessReview",
        "LocalSubjectAccessReview",
        "SubjectAccessReview",
        "SelfSubjectRulesReview",
    },
    "authentication.k8s.io/v1": {"SelfSubjectReview"},
}
_RENAMED = {("autoscaling/v1", "HorizontalPodAutoscaler"): "HorizontalPodAutoscalerV1"}
"""Messages of kinds whose name another version has."""


class ProtobufDecodeError(ValueError):
    """The bytes are not a message of a kind in the table."""


class MessageField(NamedTuple):
    """A field of a message. form: "" for one value, "[" for a list, "{" for a map."""

    name: str
    type: str
    form: str


def decode_protobuf(body: bytes) -> Tree:
    """The object of a protobuf body. Raises ProtobufDecodeError."""
    return _MessageReader().object(body)


@cache
def _messages() -> dict[str, dict[int, MessageField]]:
    messages: dict[str, dict[int, MessageField]] = {}
    for line in _MESSAGES.strip().replace("\n ", " ").split("\n"):
        name, _, fields = line.partition(": ")
        messages[name] = {}
        for each in fields.split(", "):
            number, field, kind = each.split()
            form = kind[0] if kind[0] in "[{" else ""
            messages[name][atoi(number)] = MessageField(field, kind.strip("[]{}"), form)
    return messages


class _MessageReader:
    """Decoder of one body. left: how many more fields are allowed."""

    def __init__(self) -> None:
        self.left = FIELDS_MAX

    def object(self, body: bytes) -> Tree:
        """The object. Raises ProtobufDecodeError."""
        if not body.startswith(_MAGIC):
            raise ProtobufDecodeError("no magic number")
        envelope = dict(self._parts(body[len(_MAGIC) :]))
        about = dict(self._parts(_bytes(envelope.get(1, b""))))
        version, kind = _text(about.get(1, b"")), _text(about.get(2, b""))
        if kind not in _KINDS.get(version, ()):
            raise ProtobufDecodeError(f"{version} {kind}")
        tree: Tree = {"kind": kind, "apiVersion": version}
        message = _RENAMED.get((version, kind), kind)
        tree.update(self._message(message, _bytes(envelope.get(2, b"")), 0))
        return tree

    def _message(self, name: str, data: bytes, depth: int) -> Tree:
        if depth > _DEPTH_MAX:
            raise ProtobufDecodeError("nested too deeply")
        fields = _messages()[name]
        tree: Tree = {}
        for number, raw in self._parts(data):
            field = fields.get(number)
            if field is None:
                if not self._is_empty(raw, 0):
                    raise ProtobufDecodeError(f"{name} {number}")
            elif field.form == "{":
                pair = dict(self._parts(_bytes(raw)))
                key = _text(pair.get(1, b""))
                value = self._value(field.type, pair.get(2, b""), depth)
                tree.setdefault(field.name, {})[key] = value
            elif field.form == "[":
                tree.setdefault(field.name, []).append(self._value(field.type, raw, depth))
            else:
                value = self._value(field.type.rstrip("?"), raw, depth)
                if value or field.type.endswith("?"):
                    tree[field.name] = value
        return tree

    def _value(self, kind: str, raw: int | bytes, depth: int) -> Any:
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(raw)
        tree = self._message(kind, _bytes(raw), depth + 1)
        if kind == "Quantity":
            return tree.get("string", "")
        if kind == "IntOrString":
            return tree.get("strVal", "") if tree.get("type") else tree.get("intVal", 0)
        return tree

    def _is_empty(self, raw: int | bytes, depth: int) -> bool:
        """True for zero, empty strings and messages of empty fields."""
        if isinstance(raw, int) or not raw:
            return not raw
        if depth > _DEPTH_MAX:
            return False
        try:
            return all(self._is_empty(part, depth + 1) for _, part in self._parts(raw))
        except ProtobufDecodeError:
            return False

    def _parts(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        """Number and content of each field: an int for a varint, bytes for what has a length."""
        position = 0
        while position < len(data):
            self.left -= 1
            if self.left < 0:
                raise ProtobufDecodeError("too many fields")
            tag, position = _varint(data, position)
            wire = tag & 7
            if wire == 0:
                value, position = _varint(data, position)
                yield tag >> 3, value
            elif wire == 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise ProtobufDecodeError("cut off")
                yield tag >> 3, data[position : position + length]
                position += length
            else:
                raise ProtobufDecodeError(f"wire type {wire}")


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ProtobufDecodeError("got a number, expected bytes")
    return raw


def _text(raw: int | bytes) -> str:
    try:
        return _bytes(raw).decode()
    except UnicodeDecodeError:
        raise ProtobufDecodeError("text that is not UTF-8") from None


def _number(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise ProtobufDecodeError("got bytes, expected a number")
    return raw - (1 << 64) if raw >> 63 else raw


_PLAIN: dict[str, Callable[[int | bytes], Any]] = {
    "str": _text,
    "int": _number,
    "bool": lambda raw: bool(_number(raw)),
    # msgspec encodes bytes as base64, as JSON has them.
    "bytes": _bytes,
}


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ProtobufDecodeError("cut off")
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), position
    raise ProtobufDecodeError("a number of more than ten bytes")
