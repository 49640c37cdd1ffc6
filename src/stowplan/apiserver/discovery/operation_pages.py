"""`/metrics`, `/metrics/slis`, `/statusz` and `/flagz`.

Source: apiserver v1.36, pkg/server/routes; component-base, zpages.
"""

from __future__ import annotations

import math

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ServerContext
from stowplan.apiserver.http.plain_pages import UNCACHED, decoded_path, text_response
from stowplan.apiserver.http.request_counters import metric_family

METRICS_PATH, STATUS_PATH, FLAGS_PATH = "/metrics", "/statusz", "/flagz"
CHECKS_PATH = "/metrics/slis"
_CHECK_TYPES = ("healthz", "livez", "readyz")
_FORM = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility"
    " guarantees and is for debugging purposes only."
)


class OperationPages:
    """`options.NonResourcePages`; goes before `HealthPages`, which returns 404.

    address: advertised host and port of the server.
    """

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._started: float | None = None

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        if self._started is None:
            self._started = now
        path = decoded_path(request)
        if path == METRICS_PATH:
            lines = [*controller_lines(server), *server.metric_lines()]
            body = "".join(f"{line}\n" for line in lines)
            return HttpResponse(200, (_FORM, UNCACHED), body.encode())
        if path == CHECKS_PATH:
            return HttpResponse(200, (_FORM, UNCACHED), _check_body())
        if path == STATUS_PATH:
            return text_response(self._status(now))
        if path == FLAGS_PATH:
            host = self._address.rpartition(":")[0]
            return text_response(
                f"\napiserver flagz\n{_WARNING}\nadvertise-address {host}\n"
                "authorization-mode [RBAC]\n"
            )
        return None

    def _status(self, now: float) -> str:
        up_s = math.floor(now - (self._started or now))
        return (
            f"\napiserver statusz\n{_WARNING}\n\n"
            f"Up  {up_s // 3600} hr {up_s % 3600 // 60:02} min {up_s % 60:02} sec\n"
            "Binary version  1.36.2\nEmulation version  1.36\n"
            "Paths  /flagz /healthz /livez /metrics /readyz /statusz /version\n"
        )


def _check_body() -> bytes:
    """A server that answers is healthy."""
    samples = (({"name": "ping", "type": kind}, 1) for kind in _CHECK_TYPES)
    about = "Results of health checks: 1 if healthy."
    lines = metric_family("kubernetes_healthcheck", "gauge", about, samples)
    return "".join(f"{line}\n" for line in lines).encode()


def controller_lines(server: ServerContext) -> list[str]:
    """Failures of controllers."""
    faults = server.faults
    return [
        *metric_family(
            "stowplan_controller_faults_total",
            "counter",
            "Unexpected exceptions of controllers and observers, by component.",
            (({"component": one}, count) for one, count in sorted(faults.counts.items())),
        ),
        *metric_family(
            "stowplan_controller_failing_objects",
            "gauge",
            "Objects whose last sync failed, by controller.",
            (({"component": one}, count) for one, count in sorted(faults.failing().items())),
        ),
    ]
