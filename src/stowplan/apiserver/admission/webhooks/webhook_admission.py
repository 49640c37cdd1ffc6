"""Webhooks: validating ones may refuse a write, mutating ones may change it.

Source: apiserver v1.36, pkg/admission/plugin/webhook: generic/webhook.go, mutating/dispatcher.go,
validating/dispatcher.go, util/webhook/client.go.

Differs: a write of this process (of a controller) does not wait: it fails while the answers are
missing, and finds them when it is tried again.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED, WebhookQuestion, WebhookReply
from stowplan.apis.admissionregistration.webhook_configuration import MUTATING_PATH, VALIDATING_PATH
from stowplan.apis.machinery.errors import (
    ApiError,
    BodyDecodeError,
    bad_request,
    internal_error,
)
from stowplan.apis.machinery.object_meta import UidGenerator
from stowplan.apis.machinery.resource import AdmissionPlugin, ApiCall, Resource
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    ObjectsByNamespace,
    admission_forbidden,
    stored_object,
)
from stowplan.apiserver.admission.policies.mutating_policies import MutatingAdmissionPolicies
from stowplan.apiserver.admission.policies.patch_results import PatchError, webhook_patched
from stowplan.apiserver.admission.policies.policy_bindings import check_conditions
from stowplan.apiserver.admission.policies.policy_environments import (
    CompiledExpression,
    PolicyCompiler,
)
from stowplan.apiserver.admission.policies.policy_variables import versioned
from stowplan.apiserver.admission.policies.reinvocation import Reinvocation
from stowplan.apiserver.admission.policies.request_matching import (
    AdmissionAttributes,
    is_exempt,
    matched_resource,
)
from stowplan.apiserver.admission.webhooks.admission_review import (
    ReviewResult,
    WebhookCallError,
    call_failure,
    refusal,
    review_body,
    review_result,
    review_version,
)
from stowplan.cel.cel_types import BOOL
from stowplan.objects.encoding.tree import Tree

NO_CALLS = "this server calls no webhooks"
_CHANGING_META = ("uid", "creationTimestamp", "managedFields", "resourceVersion")


@dataclass(frozen=True)
class _Hook:
    """A webhook of a configuration. conditions: its match conditions, compiled."""

    place: str
    tree: Tree
    conditions: list[CompiledExpression]

    @property
    def name(self) -> str:
        return str(self.tree["name"])

    @property
    def ignores_failures(self) -> bool:
        return bool(self.tree["failurePolicy"] == "Ignore")

    @property
    def is_repeatable(self) -> bool:
        return bool(self.tree.get("reinvocationPolicy") == "IfNeeded")


class _HooksInForce:
    """The webhooks of one kind of configuration, compiled once per configuration."""

    def __init__(self, path: str) -> None:
        self._stored = ObjectsByNamespace(path)
        self._seen: list[Tree] | None = None
        self._hooks: list[_Hook] = []

    def all(self, call: ApiCall) -> list[_Hook]:
        """The webhooks, by name of configuration."""
        stored = self._stored.of(call, "")
        if not stored:
            return []
        if stored is not self._seen:
            self._seen, self._hooks = stored, [hook for one in stored for hook in _hooks_of(one)]
        return self._hooks


def _hooks_of(configuration: Tree) -> Iterator[_Hook]:
    meta, compiler = configuration["metadata"], PolicyCompiler(has_params=False, variables=None)
    for at, tree in enumerate(configuration.get("webhooks") or ()):
        conditions = [
            compiler.compile(one["expression"], (BOOL,))
            for one in tree.get("matchConditions") or ()
        ]
        place = f"{meta['uid']}/{meta.get('generation', 0)}/{at}"
        yield _Hook(place, tree, conditions)


class MutatingWebhooks:
    """Webhooks that change objects."""

    def __init__(self) -> None:
        self._hooks = _HooksInForce(MUTATING_PATH)

    def mutate(
        self, call: ApiCall, obj: Tree | None, old: Tree | None, again: Reinvocation
    ) -> None:
        """Change an object. Raises ApiError, AnswersNeeded."""
        hooks = () if call.answers is SKIPPED else self._hooks.all(call)
        if not hooks or is_exempt(call):
            return
        again.begin(obj)
        _MutatingRun(AdmissionAttributes(call, obj, old), again).invoke(hooks)
        again.end(obj)


class Mutations(AdmissionPluginBase):
    """Policies and webhooks that change objects. before: the plugins that do so, which run once
    more, with these, after one has changed an object."""

    repeatable = True

    def __init__(self, before: Sequence[AdmissionPlugin]) -> None:
        self._before = tuple(before)
        self._policies = MutatingAdmissionPolicies()
        self._webhooks = MutatingWebhooks()

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Change an object. Raises ApiError, AnswersNeeded."""
        if call.answers is SKIPPED and not self._policies.in_force(call):
            return
        policies, webhooks = Reinvocation(), Reinvocation()
        self._policies.mutate(call, obj, old, policies)
        self._webhooks.mutate(call, obj, old, webhooks)
        if not policies.has_changed and not webhooks.has_changed:
            return
        for plugin in self._before:
            plugin.admit(call, obj, old)
        policies.is_second = webhooks.is_second = True
        self._policies.mutate(call, obj, old, policies)
        self._webhooks.mutate(call, obj, old, webhooks)


class ValidatingWebhooks(AdmissionPluginBase):
    """Webhooks that may refuse a write."""

    repeatable = True

    def __init__(self) -> None:
        self._validating = _HooksInForce(VALIDATING_PATH)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError, AnswersNeeded."""
        hooks = () if call.answers is SKIPPED else self._validating.all(call)
        if not hooks or is_exempt(call):
            return
        request = AdmissionAttributes(call, obj, old)
        asked = [
            (hook, matched)
            for hook in hooks
            if (matched := _matched_hook(request, hook)) is not None
        ]
        replies = _replies(request, asked, 0)
        refusals = [
            error
            for (hook, _), reply in zip(asked, replies, strict=True)
            if (error := _validation_error(request, hook, reply)) is not None
        ]
        if refusals:
            raise refusals[0]


class _MutatingRun:
    """The mutating webhooks of one request."""

    def __init__(self, request: AdmissionAttributes, again: Reinvocation) -> None:
        self._request = request
        self._again = again

    def invoke(self, hooks: Sequence[_Hook]) -> None:
        """Ask each in order about what the one before has left. Raises ApiError, AnswersNeeded."""
        for hook in hooks:
            matched = _matched_hook(self._request, hook)
            if matched is None or not self._again.is_due(hook.place):
                continue
            if self._asked(hook, matched):
                self._again.changed()
            if hook.is_repeatable:
                self._again.invoked(hook.place)

    def _asked(self, hook: _Hook, matched: Resource) -> bool:
        """Ask one; True if it changed the object. Raises ApiError, AnswersNeeded."""
        number = 1 if self._again.is_second else 0
        (reply,) = _replies(self._request, [(hook, matched)], number)
        try:
            found = _result(self._request, hook, reply, mutates=True)
        except WebhookCallError as error:
            if not hook.ignores_failures:
                raise call_failure(hook.name, error) from None
            return False
        return found.patch is not None and self._patch(hook, matched, found.patch)

    def _patch(self, hook: _Hook, matched: Resource, patch: list[Any]) -> bool:
        """Apply a patch; True if it changed the object. Raises ApiError 500."""
        request, obj = self._request, self._request.obj
        if obj is None:
            text = (
                f'admission webhook "{hook.name}" attempted to modify the object, which is not'
                " supported for this operation"
            )
            raise internal_error(text)
        before = versioned(request, obj, matched)
        assert before is not None
        try:
            after = webhook_patched(copy.deepcopy(before), patch)
        except PatchError as error:
            raise internal_error(str(error)) from None
        if after == before:
            return False
        _replace(request, obj, after, matched)
        return True


def _replace(request: AdmissionAttributes, obj: Tree, after: Tree, matched: Resource) -> None:
    """Put a patched object, in canonical form and with defaults, in the place of another."""
    call, resource = request.call, matched
    sub = call.resource.subresources.get(call.subresource)
    schema = resource.schema
    if sub is not None and (sub.act is not None or sub.schema is not None):
        schema = sub.body_schema(resource)[0]
    head: Tree = {key: obj[key] for key in ("kind", "apiVersion") if key in obj}
    given: Tree = {key: after[key] for key in ("kind", "apiVersion") if key in after}
    try:
        made, _ = schema.decode(after, (), "Ignore")
    except BodyDecodeError as error:
        raise internal_error(str(error)) from None
    made.update(given)
    made.setdefault("metadata", {})
    schema.default(made)
    if sub is not None and sub.view is not None:
        made = sub.view.write(obj, made, call)
    elif (sub is None or sub.act is None) and matched.alias is not None:
        made = matched.alias.to_stored(made)
    obj.clear()
    obj.update({**made, **head})


def _matched_hook(request: AdmissionAttributes, hook: _Hook) -> Resource | None:
    """The version by which a webhook is to be asked, None if it is not. Raises ApiError."""
    tree = hook.tree
    if not tree.get("rules"):
        return None
    matched = matched_resource(request, {**tree, "resourceRules": tree["rules"]})
    if matched is None or not hook.conditions:
        return matched
    held = check_conditions(request, matched, None, hook.conditions, {})
    if held.error and not hook.ignores_failures:
        raise admission_forbidden(request.call, request.obj or request.old, held.error)
    return matched if held.holds else None


def _replies(
    request: AdmissionAttributes, asked: Sequence[tuple[_Hook, Resource]], number: int
) -> list[WebhookReply | WebhookCallError | ApiError]:
    """The answers of webhooks, all of which are asked at once. Raises AnswersNeeded."""
    answers = request.call.answers
    found: list[WebhookReply | WebhookCallError | ApiError | None] = []
    missing: list[WebhookQuestion] = []
    for hook, matched in asked:
        reply: WebhookReply | WebhookCallError | ApiError | None = None
        try:
            if request.call.dry_run and hook.tree["sideEffects"] not in ("None", "NoneOnDryRun"):
                text = f'admission webhook "{hook.name}" does not support dry run'
                reply = bad_request(text)
            else:
                question = _question(request, hook, matched, number)
                if answers is None:
                    text = f'Post "{question.url}": {NO_CALLS}'
                    reply = WebhookReply(question.uid, error=text)
                else:
                    reply = answers.find(question.key)
                    missing += [question] if reply is None else []
        except WebhookCallError as error:
            reply = error
        found.append(reply)
    if missing and answers is not None:
        answers.need(missing)
    unanswered = WebhookCallError("failed to call webhook: it is being asked; try again")
    return [unanswered if one is None else one for one in found]


def _result(
    request: AdmissionAttributes,
    hook: _Hook,
    reply: WebhookReply | WebhookCallError | ApiError,
    *,
    mutates: bool,
) -> ReviewResult:
    """What a webhook says; its warnings are given. Raises ApiError, WebhookCallError."""
    if isinstance(reply, ApiError | WebhookCallError):
        raise reply
    found = review_result(reply, review_version(hook.tree), mutates=mutates)
    request.call.warnings.extend(found.warnings)
    if not found.allowed:
        raise refusal(hook.name, found.result)
    return found


def _validation_error(
    request: AdmissionAttributes, hook: _Hook, reply: WebhookReply | WebhookCallError | ApiError
) -> ApiError | None:
    try:
        _result(request, hook, reply, mutates=False)
    except ApiError as error:
        return error
    except WebhookCallError as error:
        return None if hook.ignores_failures else call_failure(hook.name, error)
    return None


def _question(
    request: AdmissionAttributes, hook: _Hook, matched: Resource, number: int
) -> WebhookQuestion:
    """What to send. Raises WebhookCallError."""
    version = review_version(hook.tree)
    body = review_body(request, matched, version)
    uid = UidGenerator(request.call.rng).new()
    key = _key(f"{hook.place}/{number}", body)
    body["request"]["uid"] = uid
    client, seconds = hook.tree["clientConfig"], hook.tree["timeoutSeconds"]
    bundle = base64.b64decode(client.get("caBundle") or "")
    if bundle and b"-----BEGIN CERTIFICATE-----" not in bundle:
        text = "unable to load root certificates: unable to parse bytes as PEM block"
        raise WebhookCallError(f"could not get REST client: {text}")
    url, dial = _address(request.call, client, seconds)
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return WebhookQuestion(key, uid, url, raw, seconds, dial, bundle)


def _key(place: str, body: Tree) -> str:
    """The same for the same question: names and times that are made anew do not count."""
    reported = dict(body["request"])
    reported.pop("uid", None)
    obj = reported.get("object")
    meta = dict((obj or {}).get("metadata") or {})
    if reported["operation"] == "CREATE" and meta.get("generateName"):
        reported.pop("name", None)
        meta.pop("name", None)
    if obj is not None:
        kept = {name: one for name, one in meta.items() if name not in _CHANGING_META}
        reported["object"] = {**obj, "metadata": kept}
    raw = json.dumps([place, reported], sort_keys=True, default=str)
    return hashlib.sha256(raw.encode("utf-8", "surrogateescape")).hexdigest()


def _address(call: ApiCall, client: Tree, seconds: int) -> tuple[str, tuple[str, int] | None]:
    """The url, and where to connect to if that is another place. Raises WebhookCallError."""
    service = client.get("service")
    if service is None:
        return f"{client['url']}?timeout={seconds}s", None
    name, namespace, port = service["name"], service["namespace"], service["port"]
    url = f"https://{name}.{namespace}.svc:{port}{service.get('path') or '/'}?timeout={seconds}s"
    held = stored_object(call, "services", namespace, name)
    if held is None:
        text = f'Post "{url}": service "{name}" not found'
        raise WebhookCallError(f"failed to call webhook: {text}")
    spec = held["spec"]
    if spec.get("type") == "ExternalName":
        return url, (spec["externalName"], port)
    return url, (spec.get("clusterIP") or "", port)
