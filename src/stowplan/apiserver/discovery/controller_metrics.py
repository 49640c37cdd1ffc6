"""`/metrics`: failures of controllers."""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ServerContext
from stowplan.apiserver.http.plain_pages import UNCACHED, decoded_path

PATH = "/metrics"
_FORM = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")


class ControllerMetricsPage:
    """`options.NonResourcePages`; goes before `HealthPages`, which returns 404."""

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        if decoded_path(request) != PATH:
            return None
        faults = server.faults
        lines = [
            *_metric_family(
                "stowplan_controller_faults_total",
                "counter",
                "Unexpected exceptions of controllers and observers, by component.",
                faults.counts,
            ),
            *_metric_family(
                "stowplan_controller_failing_objects",
                "gauge",
                "Objects whose last sync failed, by controller.",
                faults.failing(),
            ),
        ]
        return HttpResponse(200, (_FORM, UNCACHED), "".join(f"{line}\n" for line in lines).encode())


def _metric_family(name: str, kind: str, about: str, values: Mapping[str, int]) -> list[str]:
    """A metric family with one series per component."""
    samples = [
        f'{name}{{component="{component}"}} {count}' for component, count in sorted(values.items())
    ]
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples]
