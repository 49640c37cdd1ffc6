"""`/metrics`: what controllers failed at, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stowplan.cluster.pages import UNCACHED, path_of
from stowplan.cluster.wire import Request, Response, User

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer

PATH = "/metrics"
_FORM = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")


class Metrics:
    """`options.Pages`, to be asked before `Health`, which answers 404 for all others."""

    def answer(
        self, request: Request, user: User, server: ApiServer, now: float
    ) -> Response | None:
        """The page; None for another path."""
        if path_of(request) != PATH:
            return None
        faults = server.faults
        lines = [
            *_series(
                "stowplan_controller_faults_total",
                "counter",
                "Exceptions of controllers and observers; each is one object's failure.",
                faults.counts,
            ),
            *_series(
                "stowplan_controller_failing_objects",
                "gauge",
                "Objects whose last look failed, a refusal of the API server included.",
                faults.failing(),
            ),
        ]
        return Response(200, (_FORM, UNCACHED), "".join(f"{line}\n" for line in lines).encode())


def _series(name: str, kind: str, about: str, values: Mapping[str, int]) -> list[str]:
    """A family with one series a component."""
    samples = [
        f'{name}{{component="{component}"}} {count}' for component, count in sorted(values.items())
    ]
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples]
