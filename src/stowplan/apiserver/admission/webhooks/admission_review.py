"""AdmissionReview: what a webhook is sent, and what its answer means.

Source: apiserver v1.36, pkg/admission/plugin/webhook/request/admissionreview.go,
pkg/admission/plugin/webhook/errors/statuserror.go; client-go v1.36, rest/request.go.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from stowplan.apis.admissionregistration.webhook_calls import WebhookReply
from stowplan.apis.machinery.errors import ApiError, internal_error
from stowplan.apis.machinery.go_format import unmarshal_text
from stowplan.apis.machinery.resource import Resource
from stowplan.apis.schema.json_parser import syntax_error_message
from stowplan.apiserver.admission.policies.policy_variables import request_tree, versioned
from stowplan.apiserver.admission.policies.request_matching import AdmissionAttributes
from stowplan.objects.encoding.tree import Tree

GROUP = "admission.k8s.io"
_KINDS_OF_VERSIONS = ("v1", "v1beta1")
_SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:71"
_NO_OBJECT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of"
    ' type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)


class WebhookCallError(Exception):
    """A webhook that gave no usable answer; what follows depends on its failure policy."""


@dataclass(frozen=True)
class ReviewResult:
    """Answer of a webhook. patch: a JSON patch, None for none."""

    allowed: bool
    result: Tree | None = None
    patch: list[Any] | None = None
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)


def review_version(hook: Tree) -> str:
    """The version of AdmissionReview to send. Raises WebhookCallError."""
    for version in hook["admissionReviewVersions"]:
        if version in _KINDS_OF_VERSIONS:
            return str(version)
    raise WebhookCallError(
        "could not create admission objects: webhook does not accept known AdmissionReview"
        " versions (v1, v1beta1)"
    )


def review_body(request: AdmissionAttributes, matched: Resource, version: str) -> Tree:
    """The AdmissionReview of a request, without its uid. matched: the version the webhook asks
    for."""
    reported = request_tree(request, matched)
    reported["object"] = versioned(request, request.obj, matched)
    reported["oldObject"] = versioned(request, request.old, matched)
    return {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": reported}


def review_result(reply: WebhookReply, version: str, *, mutates: bool) -> ReviewResult:
    """The answer of a webhook. Raises WebhookCallError if there is none that can be used."""
    if reply.error:
        raise WebhookCallError(f"failed to call webhook: {reply.error}")
    if not 200 <= reply.status <= 206:
        raise WebhookCallError(f"failed to call webhook: {_status_text(reply)}")
    tree = _decoded(reply.body, version)
    answer = tree.get("response")
    if not isinstance(answer, dict):
        raise _unusable("webhook response was absent")
    if version == "v1":
        _check_v1(tree, answer, reply.uid, mutates=mutates)
    return ReviewResult(
        answer.get("allowed") is True,
        answer.get("status"),
        _patch_of(answer) if mutates else None,
        [str(one) for one in answer.get("warnings") or ()],
        {str(key): str(one) for key, one in (answer.get("auditAnnotations") or {}).items()},
    )


def _unusable(text: str) -> WebhookCallError:
    return WebhookCallError(f"received invalid webhook response: {text}")


def _decoded(body: bytes, version: str) -> Tree:
    if not body:
        text = "0-length response with status code: 200 and content type: application/json"
        raise WebhookCallError(f"failed to call webhook: {text}")
    try:
        tree = json.loads(body)
    except ValueError:
        why = syntax_error_message(body.decode("latin-1"))
        text = f"couldn't get version/kind; json parse error: {why}"
        raise WebhookCallError(f"failed to call webhook: {text}") from None
    if not isinstance(tree, dict):
        raise WebhookCallError(f"failed to call webhook: {_NO_OBJECT}")
    given, kind = str(tree.get("apiVersion") or ""), str(tree.get("kind") or "")
    if not given and not kind:
        return tree
    if kind != "AdmissionReview" or given.rpartition("/")[0] != GROUP:
        text = f"no kind {_quoted(kind)} is registered for version {_quoted(given)} in scheme"
        raise WebhookCallError(f'failed to call webhook: {text} "{_SCHEME}"')
    if given != f"{GROUP}/{version}":
        other = f"{given.rpartition('/')[2]}.AdmissionReview"
        text = f"converting ({other}) to ({version}.AdmissionReview): unknown conversion"
        raise WebhookCallError(f"failed to call webhook: {text}")
    return tree


def _check_v1(tree: Tree, answer: Tree, uid: str, *, mutates: bool) -> None:
    if answer.get("uid") != uid:
        text = f"expected response.uid={_quoted(uid)}, got {_quoted(answer.get('uid') or '')}"
        raise _unusable(text)
    if not tree.get("kind"):
        wanted = f"{GROUP}/v1, Kind=AdmissionReview"
        raise _unusable(f"expected webhook response of {wanted}, got /, Kind=")
    has_patch, kind = bool(answer.get("patch")), answer.get("patchType")
    if mutates:
        if has_patch and kind is None:
            raise _unusable("webhook returned response.patch but not response.patchType")
        if not has_patch and kind is not None:
            raise _unusable("webhook returned response.patchType but not response.patch")
        if kind == "":
            raise _unusable('webhook returned invalid response.patchType of ""')
    elif has_patch:
        raise _unusable("validating webhook may not return response.patch")
    elif kind is not None:
        raise _unusable("validating webhook may not return response.patchType")


def _patch_of(answer: Tree) -> list[Any] | None:
    given = answer.get("patch")
    if not given or answer.get("allowed") is not True:
        return None
    start = "received undecodable patch in webhook response"
    try:
        raw = base64.b64decode(given)
    except ValueError as error:
        raise WebhookCallError(f"{start}: {error}") from None
    try:
        patch = json.loads(raw)
    except ValueError:
        text = syntax_error_message(raw.decode("latin-1"))
        raise WebhookCallError(f"{start}: {text}") from None
    if not isinstance(patch, list):
        text = unmarshal_text(patch, "Go value of type jsonpatch.Patch")
        raise WebhookCallError(f"{start}: {text}")
    kind = answer.get("patchType", "JSONPatch")
    if kind != "JSONPatch":
        raise WebhookCallError(f"unsupported patch type {_quoted(kind)}")
    return patch


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _status_text(reply: WebhookReply) -> str:
    """What client-go says of an answer that is no success."""
    try:
        status = json.loads(reply.body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status" and status.get("message"):
        return str(status["message"])
    known = {
        400: "the server rejected our request for an unknown reason",
        401: "the server has asked for the client to provide credentials",
        404: "the server could not find the requested resource",
        403: "unknown",
        405: "the server does not allow this method on the requested resource",
        429: ("the server has received too many requests and has asked us to try again later"),
        503: "the server is currently unable to handle the request",
    }
    if reply.status in known:
        return known[reply.status]
    if reply.status >= 500:
        return 'an error on the server ("unknown") has prevented the request from succeeding'
    text = f"the server responded with the status code {reply.status} but did not return more"
    return f"{text} information"


def refusal(name: str, result: Tree | None) -> ApiError:
    """The answer to a write that a webhook has refused."""
    given = result or {}
    code = given.get("code")
    code = code if isinstance(code, int) and code >= 400 else 400
    message, reason = given.get("message") or "", given.get("reason") or ""
    start = f"admission webhook {_quoted(name)} denied the request"
    text = f"{start}: {message or reason}" if message or reason else f"{start} without explanation"
    return ApiError(code, str(reason), text, given.get("details"))


def call_failure(name: str, error: WebhookCallError) -> ApiError:
    """500: a webhook that has to be asked gave no answer."""
    return internal_error(f"failed calling webhook {_quoted(name)}: {error}")
