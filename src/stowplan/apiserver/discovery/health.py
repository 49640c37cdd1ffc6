"""Version, health and the index of paths.

The names of the health checks are the original's, since clients exclude them by name; a server
that responds is healthy.

Source: apiserver v0.36, server/healthz/healthz.go; as recorded.
"""

from __future__ import annotations

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ServerContext
from stowplan.apiserver.discovery.operation_pages import (
    CHECKS_PATH,
    FLAGS_PATH,
    METRICS_PATH,
    STATUS_PATH,
)
from stowplan.apiserver.http.negotiation import PLAIN_JSON
from stowplan.apiserver.http.plain_pages import (
    NO_SNIFF,
    PAGE_NOT_FOUND,
    UNCACHED,
    decoded_path,
    response_in_form,
    text_response,
    tree_response,
)

VERSION: dict[str, object] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2+stowplan",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""`/version`: the version of Kubernetes whose API is served."""

_POST_START_HOOKS = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer", "priority-and-fairness-filter",
    "storage-object-count-tracker-hook", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced",
    "start-system-namespaces-controller", "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector", "storage-readiness",
    "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer", "bootstrap-controller",
    "start-kubernetes-service-cidr-controller", "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller", "apiservice-registration-controller",
    "apiservice-wait-for-first-sync", "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
)  # fmt: skip
_AFTER_START_HOOKS = ("apiservice-openapi-controller", "apiservice-openapiv3-controller")
_STARTED_CHECKS = (
    *(f"poststarthook/{name}" for name in _POST_START_HOOKS),
    "autoregister-completion",
    *(f"poststarthook/{name}" for name in _AFTER_START_HOOKS),
)
_LIVENESS_CHECKS = ("ping", "log", "loopback-serving-certificate", "etcd", *_STARTED_CHECKS)
CHECKS: dict[str, tuple[str, ...]] = {
    "healthz": _LIVENESS_CHECKS,
    "livez": _LIVENESS_CHECKS,
    "readyz": ("ping", "log", "informer-sync", *_STARTED_CHECKS, "shutdown"),
}
"""The checks of each health page, in order."""

JWKS_PATH = "/openid/v1/jwks"
OPENID_CONFIGURATION_PATH = "/.well-known/openid-configuration"
_CACHED = ("Cache-Control", "public, max-age=3600")
_OPEN_API = ("/openapi/v2", "/openapi/v3", "/openapi/v3/")
_OWN_PATHS = (
    "/api",
    "/apis",
    "/apis/",
    *_OPEN_API,
    "/version",
    METRICS_PATH,
    CHECKS_PATH,
    STATUS_PATH,
    FLAGS_PATH,
    OPENID_CONFIGURATION_PATH,
    JWKS_PATH,
)


class HealthPages:
    """`/`, `/version`, `/healthz`, `/livez`, `/readyz`, and 404 for other paths outside `/api` and
    `/apis`; the last of the pages (`options.NonResourcePages`).

    address: advertised host and port of the server.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        path = decoded_path(request)
        if path == "/version":
            return tree_response(request, VERSION)
        if path == "/":
            return response_in_form({"paths": _paths(server)}, PLAIN_JSON, UNCACHED)
        if path == OPENID_CONFIGURATION_PATH:
            return response_in_form(self._issuer(), PLAIN_JSON, _CACHED)
        if path == JWKS_PATH:
            return response_in_form({"keys": []}, PLAIN_JSON, _CACHED)
        page, _, check = path[1:].partition("/")
        checks = CHECKS.get(page)
        if checks is None:
            return None if page in ("api", "apis") else PAGE_NOT_FOUND
        if not check:
            return text_response(_check_report(page, checks, request), NO_SNIFF)
        return text_response("ok") if check in checks else PAGE_NOT_FOUND

    def _issuer(self) -> dict[str, object]:
        return {
            "issuer": "https://kubernetes.default.svc",
            "jwks_uri": f"https://{self._address}{JWKS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }


def _check_report(page: str, checks: tuple[str, ...], request: HttpRequest) -> str:
    excluded = {value for name, value in request.query if name == "exclude"}
    if not any(name == "verbose" for name, _ in request.query):
        return "ok"
    lines = [f"[+]{one} {'excluded: ' if one in excluded else ''}ok" for one in checks]
    unknown = sorted(excluded - set(checks))
    if unknown:
        names = ",".join(f'"{name}"' for name in unknown)
        text = f"some health checks cannot be excluded: no matches for {names}"
        lines.append(f"warn: {text}")
    return "\n".join([*lines, f"{page} check passed\n"])


def _paths(server: ServerContext) -> list[str]:
    found = set(_OWN_PATHS)
    for one in server.registry.all():
        if one.group:
            found |= {f"/apis/{one.group}", f"/apis/{one.api_version}"}
        else:
            found.add(f"/api/{one.version}")
    for page, checks in CHECKS.items():
        found |= {f"/{page}", *(f"/{page}/{check}" for check in checks)}
    return sorted(found)
