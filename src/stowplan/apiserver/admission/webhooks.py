"""Webhooks: none is called, and each counts as one that does not answer.

So a write that a webhook would judge is refused if the webhook is to `Fail`, and accepted if it is
to be ignored, as with an original that cannot reach it.

Source: apiserver v0.36, pkg/admission/plugin/webhook (generic, predicates).

Differs: webhooks that could be reached are not called either, as an answer of this server waits for
no other one. `matchConditions` are taken as true, and a rule for another version of a resource
counts as one for this version.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.admissionregistration.webhook_configuration import (
    GROUP,
    MUTATING_PATH,
    VALIDATING_PATH,
)
from stowplan.apis.machinery.errors import internal_error
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    ObjectsByNamespace,
    stored_object,
)
from stowplan.objects.encoding.tree import Tree

WHY = "this server calls no webhooks"


class UnansweredWebhooks(AdmissionPluginBase):
    """Refuses what webhooks would have to allow."""

    def __init__(self) -> None:
        self._mutating = ObjectsByNamespace(MUTATING_PATH)
        self._validating = ObjectsByNamespace(VALIDATING_PATH)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 500."""
        self._refuse(self._mutating, call, obj, old)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 500."""
        self._refuse(self._validating, call, obj, old)

    def _refuse(
        self, configurations: ObjectsByNamespace, call: ApiCall, obj: Tree | None, old: Tree | None
    ) -> None:
        stored = configurations.of(call, "")
        if not stored or call.resource.group == GROUP:
            return
        for configuration in stored:
            for hook in configuration.get("webhooks", ()):
                if hook["failurePolicy"] == "Fail" and _matches(hook, call, obj, old):
                    raise internal_error(
                        f'failed calling webhook "{hook["name"]}": failed to call webhook:'
                        f' Post "{_url(hook)}": {WHY}'
                    )


def _url(hook: Tree) -> str:
    client, seconds = hook["clientConfig"], hook["timeoutSeconds"]
    service = client.get("service")
    if service is None:
        return f"{client['url']}?timeout={seconds}s"
    host = f"{service['name']}.{service['namespace']}.svc:{service['port']}"
    return f"https://{host}{service.get('path', '')}?timeout={seconds}s"


def _matches(hook: Tree, call: ApiCall, obj: Tree | None, old: Tree | None) -> bool:
    rules = hook.get("rules", ())
    if not any(_rule_matches(rule, call, _operation(call, obj, old)) for rule in rules):
        return False
    labels = [(one or {}).get("metadata", {}).get("labels") or {} for one in (obj, old) if one]
    selector = hook["objectSelector"]
    counts = not field_checks.is_empty_selector(selector)
    if counts and not any(field_checks.matches(selector, one) for one in labels):
        return False
    selector = hook["namespaceSelector"]
    if field_checks.is_empty_selector(selector):
        return True
    if call.resource.path == "namespaces":
        return any(field_checks.matches(selector, one) for one in labels[:1])
    if not call.namespace:
        return True
    namespace = stored_object(call, "namespaces", "", call.namespace) or {"metadata": {}}
    return field_checks.matches(selector, namespace["metadata"].get("labels") or {})


def _operation(call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if obj is None:
        return "DELETE"
    return "UPDATE" if old is not None else "CREATE"


def _rule_matches(rule: Tree, call: ApiCall, operation: str) -> bool:
    resource = call.resource
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return (
        _has(rule.get("operations", ()), operation)
        and _has(rule.get("apiGroups", ()), resource.group)
        and rule["scope"] in ("*", scope)
        and any(name in rule.get("resources", ()) for name in _names(call))
    )


def _has(given: list[str] | tuple[()], value: str) -> bool:
    return "*" in given or value in given


def _names(call: ApiCall) -> Iterator[str]:
    """What a rule may call the resource of a request."""
    plural, sub = call.resource.plural, call.subresource
    yield "*/*"
    if not sub:
        yield from (plural, "*", f"{plural}/*")
    else:
        yield from (f"{plural}/{sub}", f"{plural}/*", f"*/{sub}")
