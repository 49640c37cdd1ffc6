"""ValidatingWebhookConfiguration and MutatingWebhookConfiguration.

Source: kubernetes v1.36, pkg/registry/admissionregistration, pkg/apis/admissionregistration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import label_1035_problems, subdomain_problems
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
FailurePolicyType MatchPolicyType SideEffectClass ReinvocationPolicyType = string
OperationType ScopeType = string

ValidatingWebhookConfiguration -- servers that are asked whether a write is allowed.
  +PartialObjectMetadata
  webhooks [ValidatingWebhook] ~merge:name

MutatingWebhookConfiguration -- servers that change what is written.
  +PartialObjectMetadata
  webhooks [MutatingWebhook] ~merge:name

ValidatingWebhook -- one server.
  name string!
  clientConfig WebhookClientConfig!
  rules [RuleWithOperations]
  failurePolicy FailurePolicyType? =Fail
  matchPolicy MatchPolicyType? =Equivalent
  namespaceSelector LabelSelector? ={}
  objectSelector LabelSelector? ={}
  sideEffects SideEffectClass?!
  timeoutSeconds int32? =10
  admissionReviewVersions [string]!
  matchConditions [MatchCondition] ~merge:name

MutatingWebhook
  +ValidatingWebhook
  reinvocationPolicy ReinvocationPolicyType? =Never

WebhookClientConfig
  url string?
  service ServiceReference?
  caBundle bytes

ServiceReference
  namespace string!
  name string!
  path string?
  port int32? =443

RuleWithOperations
  operations [OperationType]
  apiGroups [string]
  apiVersions [string]
  resources [string]
  scope ScopeType? =*

MatchCondition
  name string!
  expression string!
"""
ConditionsCheck = Callable[[list[Tree], str], Iterator[Cause]]
GROUP = "admissionregistration.k8s.io"
VALIDATING_PATH = f"{GROUP}/validatingwebhookconfigurations"
MUTATING_PATH = f"{GROUP}/mutatingwebhookconfigurations"
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_SECONDS_MAX = 30
_URL_FORM = "; desired format: https://host[/path]"


def _validate(check_conditions: ConditionsCheck, obj: Tree) -> Iterator[Cause]:
    names: set[str] = set()
    for at, hook in enumerate(obj.get("webhooks", ())):
        path = f"webhooks[{at}]"
        yield from _validate_hook(hook, path)
        conditions = hook.get("matchConditions", [])
        yield from check_conditions(conditions, f"{path}.matchConditions")
        yield from _validate_versions(
            hook["admissionReviewVersions"] or [], f"{path}.admissionReviewVersions"
        )
        if hook["name"]:
            yield from field_checks.unique(hook["name"], names, f"{path}.name")


def _validate_hook(hook: Tree, path: str) -> Iterator[Cause]:
    yield from _validate_name(hook["name"], f"{path}.name")
    for at, rule in enumerate(hook.get("rules", ())):
        yield from _validate_rule(rule, f"{path}.rules[{at}]")
    for name, allowed in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
    ):
        if hook[name] not in allowed:
            yield not_supported(f"{path}.{name}", hook[name], allowed)
    effects = hook["sideEffects"]
    if effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    elif effects not in _SIDE_EFFECTS:
        yield not_supported(f"{path}.sideEffects", effects, _SIDE_EFFECTS)
    seconds = hook["timeoutSeconds"]
    if not 1 <= seconds <= _SECONDS_MAX:
        text = f"the timeout value must be between 1 and {_SECONDS_MAX} seconds"
        yield invalid(f"{path}.timeoutSeconds", seconds, text)
    for name in ("namespaceSelector", "objectSelector"):
        yield from field_checks.selector(hook[name], f"{path}.{name}")
    again = hook.get("reinvocationPolicy")
    if again is not None and again not in ("IfNeeded", "Never"):
        yield not_supported(f"{path}.reinvocationPolicy", again, ["IfNeeded", "Never"])
    yield from _validate_client(hook["clientConfig"], f"{path}.clientConfig")


def _validate_name(name: str, path: str) -> Iterator[Cause]:
    problems = subdomain_problems(name)
    if not name:
        yield required(path)
    elif problems:
        yield invalid(path, name, ",".join(problems))
    elif len(name.split(".")) < 3:
        text = "should be a domain with at least three segments separated by dots"
        yield invalid(path, name, text)


def _validate_versions(versions: list[str], path: str) -> Iterator[Cause]:
    accepted = ", ".join(_REVIEW_VERSIONS)
    if not versions:
        yield required(path, f"must specify one of {accepted}")
        return
    for at, version in enumerate(versions):
        if version in versions[:at]:
            yield invalid(f"{path}[{at}]", version, "duplicate version")
            continue
        for text in label_1035_problems(version):
            yield invalid(f"{path}[{at}]", version, text)
    if not set(versions) & set(_REVIEW_VERSIONS):
        yield invalid(path, versions, f"must include at least one of {accepted}")


def _validate_rule(rule: Tree, path: str) -> Iterator[Cause]:
    operations = rule.get("operations", [])
    yield from _filled(operations, f"{path}.operations", "operations")
    for at, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{at}]", operation, _OPERATIONS)
    yield from _filled(rule.get("apiGroups", []), f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions", [])
    yield from _filled(versions, f"{path}.apiVersions", "API versions")
    for at, version in enumerate(versions):
        if not version:
            yield required(f"{path}.apiVersions[{at}]")
    yield from _validate_resources(rule.get("resources", []), f"{path}.resources")
    if rule["scope"] not in _SCOPES:
        yield not_supported(f"{path}.scope", rule["scope"], _SCOPES)


def _filled(given: list[str], path: str, others: str) -> Iterator[Cause]:
    if not given:
        yield required(path)
    elif len(given) > 1 and "*" in given:
        yield invalid(path, given, f"if '*' is present, must not specify other {others}")


def _validate_resources(given: list[str], path: str) -> Iterator[Cause]:
    if not given:
        yield required(path)
    resources: set[str] = set()
    subresources: set[str] = set()
    without = False
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        resource, slash, sub = one.partition("/")
        if not one:
            yield required(here)
            continue
        if not slash:
            # The original keeps only what the last of them is.
            without = one != "*"
            continue
        if resource in resources:
            yield invalid(here, one, f"if '{resource}/*' is present, must not specify {one}")
        if sub in subresources:
            yield invalid(here, one, f"if '*/{sub}' is present, must not specify {one}")
        if sub == "*":
            resources.add(resource)
        if resource == "*":
            subresources.add(sub)
    if len(given) > 1 and "*/*" in given:
        yield invalid(path, given, "if '*/*' is present, must not specify other resources")
    if "*" in given and without:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, given, text)


def _validate_client(client: Tree, path: str) -> Iterator[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _validate_url(url, f"{path}.url")
    elif service is not None:
        yield from _validate_service(service, f"{path}.service")


def _validate_url(url: str, path: str) -> Iterator[Cause]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    user, _, host = parts.netloc.rpartition("@")
    if parts.scheme != "https":
        text = f"'https' is the only allowed URL scheme{_URL_FORM}"
        yield invalid(path, parts.scheme, text)
    if not host:
        yield invalid(path, host, f"host must be specified{_URL_FORM}")
    for value, what in (
        (user, "user information is"),
        (parts.fragment, "fragments are"),
        (parts.query, "query parameters are"),
    ):
        if value:
            yield invalid(path, value, f"{what} not permitted in the URL")


def _validate_service(service: Tree, path: str) -> Iterator[Cause]:
    # The original hands over name and namespace in the wrong order.
    for name, value in (("name", service["namespace"]), ("namespace", service["name"])):
        if not value:
            yield required(f"{path}.{name}")
    problems = [cause.message for cause in field_checks.port_number(service["port"], "")]
    if problems:
        reasons = ", ".join(text.rpartition(": ")[2] for text in problems)
        yield invalid(f"{path}.port", service["port"], f"port is not valid: {reasons}")
    place, here = service.get("path"), f"{path}.path"
    if not place or place == "/":
        return
    if place == "//":
        yield invalid(here, place, "segment[0] may not be empty")
        return
    if not place.startswith("/"):
        yield invalid(here, place, "must start with a '/'")
    for at, step in enumerate(place[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(here, place, f"segment[{at}] may not be empty")
            continue
        for text in subdomain_problems(step):
            yield invalid(here, place, f"segment[{at}]: {text}")


def _cells(obj: Tree, now: float) -> list[Any]:
    return [len(obj.get("webhooks", ()))]


def webhook_configuration(
    kind: str, check_conditions: ConditionsCheck, types: str = ""
) -> KindRegistration:
    """One of the two kinds. check_conditions: of match conditions, which are expressions."""
    check: Callable[[Tree], Iterator[Cause]] = partial(_validate, check_conditions)
    return KindRegistration(
        group=GROUP,
        kind=kind,
        types=types,
        namespaced=False,
        strategy=BuiltinStrategy(check, counted=("webhooks",)),
        categories=("api-extensions",),
        table=PrintedTable("Name, Webhooks:integer, Age", _cells),
    )
