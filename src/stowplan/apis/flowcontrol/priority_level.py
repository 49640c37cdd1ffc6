"""PriorityLevelConfiguration and FlowSchema: stored and validated.

Source: kubernetes v1.36, pkg/registry/flowcontrol, pkg/apis/flowcontrol.

Differs: requests are not queued by them (`auth/flow_control.py`), and the schemas and levels that
every cluster has are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import METADATA_RESET_FIELDS, BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PriorityLevelEnablement LimitResponseType FlowDistinguisherMethodType SubjectKind = string
ConditionStatus FlowSchemaConditionType PriorityLevelConfigurationConditionType = string

FlowSchema -- which requests belong to a priority level.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec FlowSchemaSpec
  status FlowSchemaStatus

FlowSchemaSpec
  priorityLevelConfiguration PriorityLevelConfigurationReference!
  matchingPrecedence int32! =1000
  distinguisherMethod FlowDistinguisherMethod?
  rules [PolicyRulesWithSubjects]

PriorityLevelConfigurationReference
  name string!

FlowDistinguisherMethod
  type FlowDistinguisherMethodType!

PolicyRulesWithSubjects
  subjects [Subject]!
  resourceRules [ResourcePolicyRule]
  nonResourceRules [NonResourcePolicyRule]

Subject
  kind SubjectKind!
  user UserSubject?
  group GroupSubject?
  serviceAccount ServiceAccountSubject?

UserSubject
  name string!

GroupSubject
  name string!

ServiceAccountSubject
  namespace string!
  name string!

ResourcePolicyRule
  verbs [string]!
  apiGroups [string]!
  resources [string]!
  clusterScope bool
  namespaces [string]!

NonResourcePolicyRule
  verbs [string]!
  nonResourceURLs [string]!

FlowSchemaStatus
  conditions [FlowSchemaCondition] ~merge:type

FlowSchemaCondition
  type FlowSchemaConditionType
  status ConditionStatus
  lastTransitionTime Time
  reason string
  message string

PriorityLevelConfiguration -- how many requests of a kind run at the same time.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec PriorityLevelConfigurationSpec
  status PriorityLevelConfigurationStatus

PriorityLevelConfigurationSpec
  type PriorityLevelEnablement!
  limited LimitedPriorityLevelConfiguration?
  exempt ExemptPriorityLevelConfiguration?

LimitedPriorityLevelConfiguration
  nominalConcurrencyShares int32?! =30
  limitResponse LimitResponse
  lendablePercent int32? =0
  borrowingLimitPercent int32?

ExemptPriorityLevelConfiguration
  nominalConcurrencyShares int32? =0
  lendablePercent int32? =0

LimitResponse
  type LimitResponseType!
  queuing QueuingConfiguration?

QueuingConfiguration
  queues int32! =64
  handSize int32! =8
  queueLengthLimit int32! =50

PriorityLevelConfigurationStatus
  conditions [PriorityLevelConfigurationCondition] ~merge:type

PriorityLevelConfigurationCondition
  type PriorityLevelConfigurationConditionType
  status ConditionStatus
  lastTransitionTime Time
  reason string
  message string
"""
_EXEMPT = "exempt"
_PRECEDENCE_MAX = 10_000
_QUEUES_MAX = 10_000_000
_ENTROPY_BITS_MAX = 60
_METHODS = ("ByNamespace", "ByUser")
_VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip
_SUBJECTS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}
_NOT_NEGATIVE = "must be a non-negative integer"
_PERCENT = "must be between 0 and 100, inclusive"


def _validate_schema(obj: Tree) -> Iterator[Cause]:
    spec, path = obj["spec"], "spec.matchingPrecedence"
    precedence = spec["matchingPrecedence"]
    if precedence <= 0:
        yield invalid(path, precedence, "must be a positive value")
    if precedence > _PRECEDENCE_MAX:
        yield invalid(path, precedence, f"must not be greater than {_PRECEDENCE_MAX}")
    if precedence == 1 and obj["metadata"].get("name") != _EXEMPT:
        text = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield invalid(path, precedence, text)
    method = spec.get("distinguisherMethod")
    if method is not None and method["type"] not in _METHODS:
        printed = internal_form("flowcontrol/v1.FlowDistinguisherMethod", method)
        yield not_supported("spec.distinguisherMethod.type", printed, _METHODS)
    name, path = spec["priorityLevelConfiguration"]["name"], "spec.priorityLevelConfiguration.name"
    if not name:
        yield required(path, "must reference a priority level")
    else:
        yield from field_checks.dns_subdomain(name, path)
    for at, rule in enumerate(spec.get("rules", ())):
        yield from _validate_rule(rule, f"spec.rules[{at}]")
    yield from _validate_conditions(obj)


def _validate_rule(rule: Tree, path: str) -> Iterator[Cause]:
    subjects = rule["subjects"] or []
    if not subjects:
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    for at, subject in enumerate(subjects):
        yield from _validate_subject(subject, f"{path}.subjects[{at}]")
    of_resources, others = rule.get("resourceRules", []), rule.get("nonResourceRules", [])
    if not of_resources and not others:
        text = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield required(path, text)
    for at, one in enumerate(of_resources):
        yield from _validate_resource_rule(one, f"{path}.resourceRules[{at}]")
    for at, one in enumerate(others):
        yield from _validate_url_rule(one, f"{path}.nonResourceRules[{at}]")


def _validate_subject(subject: Tree, path: str) -> Iterator[Cause]:
    kind = subject["kind"]
    field = _SUBJECTS.get(kind)
    if field is None:
        yield not_supported(f"{path}.kind", kind, ["Group", "ServiceAccount", "User"])
        return
    given, here = subject.get(field), f"{path}.{field}"
    if given is None:
        yield required(here, f"{field} is required when subject kind is '{kind}'")
    elif not given["name"]:
        yield required(f"{here}.name")
    elif kind == "ServiceAccount" and given["name"] != "*":
        yield from field_checks.dns_subdomain(given["name"], f"{here}.name")
    if given is not None and kind == "ServiceAccount":
        if given["namespace"]:
            yield from field_checks.dns_label(given["namespace"], f"{here}.namespace")
        else:
            yield required(f"{here}.namespace", "must specify namespace for service account")
    order = ("user", "group") if kind == "ServiceAccount" else ("serviceAccount", "group", "user")
    for other in order:
        if other != field and other in subject:
            wanted = next(name for name, each in _SUBJECTS.items() if each == other)
            text = f"{other} is forbidden when subject kind is not '{wanted}'"
            yield forbidden_field(f"{path}.{other}", text)


def _validate_verbs(verbs: list[str], path: str) -> Iterator[Cause]:
    if not verbs:
        yield required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        if len(verbs) > 1:
            yield invalid(path, verbs, "if '*' is present, must not specify other verbs")
    elif not set(verbs) <= set(_VERBS):
        yield not_supported(path, verbs, _VERBS)


def _validate_resource_rule(rule: Tree, path: str) -> Iterator[Cause]:
    yield from _validate_verbs(rule["verbs"] or [], f"{path}.verbs")
    for field, one, several in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        given = rule[field] or []
        if not given:
            yield required(f"{path}.{field}", f"resource rules must supply at least one {one}")
        elif len(given) > 1 and "*" in given:
            text = f"if '*' is present, must not specify other {several}"
            yield invalid(f"{path}.{field}", given, text)
    spaces, here = rule["namespaces"] or [], f"{path}.namespaces"
    if not spaces and not rule.get("clusterScope"):
        text = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(here, text)
    elif "*" in spaces:
        if len(spaces) > 1:
            yield invalid(here, spaces, "if '*' is present, must not specify other namespaces")
    else:
        for at, space in enumerate(spaces):
            for problem in label_problems(space):
                text = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                yield invalid(f"{here}[{at}]", space, text)


def _validate_url_rule(rule: Tree, path: str) -> Iterator[Cause]:
    yield from _validate_verbs(rule["verbs"] or [], f"{path}.verbs")
    urls, here = rule["nonResourceURLs"] or [], f"{path}.nonResourceURLs"
    if not urls:
        yield required(here, "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        if len(urls) > 1:
            yield invalid(here, urls, "if '*' is present, must not specify other non-resource URLs")
    else:
        for at, url in enumerate(urls):
            problem = _url_problem(url)
            if problem:
                yield invalid(f"{here}[{at}]", url, problem)


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    for bad, text in ((" ", "white-space"), ("//", "double slash")):
        if bad in url:
            return f"must not contain {text}"
    wildcards = url.count("*")
    if wildcards > 1 or (wildcards == 1 and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def _validate_conditions(obj: Tree) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(obj.get("status", {}).get("conditions", ())):
        kind, path = one.get("type", ""), f"status.conditions[{at}].type"
        if kind in seen:
            yield duplicate(path, kind)
        seen.add(kind)
        if not kind:
            yield required(path)


def _validate_level(obj: Tree) -> Iterator[Cause]:
    spec, kind = obj["spec"], obj["spec"]["type"]
    if (obj["metadata"].get("name") == _EXEMPT) != (kind == "Exempt"):
        text = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield invalid("spec.type", kind, text)
    limited, exempt = spec.get("limited"), spec.get("exempt")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden_field("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _validate_shares(exempt, "spec.exempt")
            yield from _validate_percent(exempt, "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden_field("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _validate_limited(limited, "spec.limited")
    else:
        yield not_supported("spec.type", kind, ["Exempt", "Limited"])
    yield from _validate_conditions(obj)


def _validate_shares(level: Tree, path: str) -> Iterator[Cause]:
    shares = level.get("nominalConcurrencyShares")
    if shares is not None and shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, _NOT_NEGATIVE)


def _validate_percent(level: Tree, path: str) -> Iterator[Cause]:
    percent = level.get("lendablePercent")
    if percent is not None and not 0 <= percent <= 100:
        yield invalid(f"{path}.lendablePercent", percent, _PERCENT)


def _validate_limited(limited: Tree, path: str) -> Iterator[Cause]:
    yield from _validate_shares(limited, path)
    response, here = limited["limitResponse"], f"{path}.limitResponse"
    kind, queuing = response["type"], response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            text = "must be nil if limited.limitResponse.type is not Limited"
            yield forbidden_field(f"{here}.queuing", text)
    elif kind == "Queue":
        if queuing is None:
            text = "must not be empty if limited.limitResponse.type is Limited"
            yield required(f"{here}.queuing", text)
        else:
            yield from _validate_queuing(queuing, f"{here}.queuing")
    else:
        yield not_supported(f"{here}.type", kind, ["Queue", "Reject"])
    yield from _validate_percent(limited, path)
    borrowing = limited.get("borrowingLimitPercent")
    if borrowing is not None and borrowing < 0:
        text = f"if specified, {_NOT_NEGATIVE}"
        yield invalid(f"{path}.borrowingLimitPercent", borrowing, text)


def _validate_queuing(queuing: Tree, path: str) -> Iterator[Cause]:
    length, queues, hand = (queuing[key] for key in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _QUEUES_MAX:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_QUEUES_MAX}")
    here = f"{path}.handSize"
    if hand <= 0:
        yield invalid(here, hand, "must be positive")
    elif hand > queues:
        yield invalid(here, hand, f"should not be greater than queues ({queues})")
    else:
        bits = _entropy_bits(queues, hand)
        if bits > _ENTROPY_BITS_MAX:
            text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be"
            yield invalid(here, hand, f"{text} greater than {_ENTROPY_BITS_MAX}")


def _entropy_bits(queues: int, hand: int) -> int:
    """Bits of a hash that dealing a hand from the queues takes."""
    product = 1
    for dealt in range(hand):
        product *= queues - dealt
    return (product - 1).bit_length()


def _schema_cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    dangling = next(
        (one.get("status", "") for one in obj["status"].get("conditions", ())
         if one.get("type") == "Dangling"), "?",
    )  # fmt: skip
    method = spec.get("distinguisherMethod")
    return [spec["matchingPrecedence"], NONE if method is None else method["type"], dangling]


def _level_cells(obj: Tree, now: float) -> list[Any]:
    limited = obj["spec"].get("limited")
    if limited is None:
        return [NONE] * 4
    queuing = limited["limitResponse"].get("queuing") or {}
    names = ("queues", "handSize", "queueLengthLimit")
    return [limited["nominalConcurrencyShares"], *(queuing.get(name, NONE) for name in names)]


def _validate_status(new: Tree, old: Tree) -> Iterator[Cause]:
    return _validate_conditions(new)


KIND = KindRegistration(
    group="flowcontrol.apiserver.k8s.io",
    kind="PriorityLevelConfiguration",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate_level, status={}, counted=("spec",)),
    status=StatusStrategy(_validate_status, meta=METADATA_RESET_FIELDS),
    table=PrintedTable(
        "Name, Type=spec.type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age",
        _level_cells,
    ),
)
SCHEMA_KIND = KindRegistration(
    group="flowcontrol.apiserver.k8s.io",
    kind="FlowSchema",
    namespaced=False,
    strategy=BuiltinStrategy(_validate_schema, status={}, counted=("spec",)),
    status=StatusStrategy(_validate_status, meta=METADATA_RESET_FIELDS),
    table=PrintedTable(
        "Name, PriorityLevel=spec.priorityLevelConfiguration.name, MatchingPrecedence, "
        "DistinguisherMethod, Age, MissingPL",
        _schema_cells,
    ),
)
