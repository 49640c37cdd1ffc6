"""Counts of requests, under the names of kube-apiserver's metrics.

Source: apiserver v1.36, pkg/endpoints/metrics/metrics.go, pkg/registry/generic/registry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apiserver.auth.request_info import RequestInfo

LabelledValues = Iterable[tuple[Mapping[str, str], int]]


class CountedRequest(NamedTuple):
    """What requests are counted by. scope: cluster, namespace or resource."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    dry_run: str
    code: int

    def labels(self) -> dict[str, str]:
        """The labels of a series."""
        return {
            "code": str(self.code), "component": "apiserver", "dry_run": self.dry_run,
            "group": self.group, "resource": self.resource, "scope": self.scope,
            "subresource": self.subresource, "verb": self.verb, "version": self.version,
        }  # fmt: skip


def counted_request(
    request: HttpRequest, route: RequestInfo, made: HttpResponse | WatchResponse
) -> CountedRequest:
    """What a request for a resource is counted as."""
    applies = request.headers.get("content-type", "").startswith("application/apply-patch")
    dry_run = ("dryRun", "All") in request.query
    return CountedRequest(
        _counted_verb(request.method, bool(route.name), isinstance(made, WatchResponse), applies),
        route.group,
        route.version,
        route.plural,
        route.subresource,
        "resource" if route.name else "namespace" if route.namespace else "cluster",
        "All" if dry_run else "",
        made.status,
    )


def _counted_verb(method: str, named: bool, watches: bool, applies: bool) -> str:
    if watches:
        return "WATCH"
    if method in ("GET", "HEAD"):
        return "GET" if named else "LIST"
    if method == "DELETE":
        return "DELETE" if named else "DELETECOLLECTION"
    return "APPLY" if applies and method == "PATCH" else method


class RequestCounters:
    """The requests that were answered."""

    def __init__(self) -> None:
        self._counts: Counter[CountedRequest] = Counter()

    def count(self, request: CountedRequest) -> None:
        """Count an answer."""
        self._counts[request] += 1

    def lines(
        self, objects: Mapping[tuple[str, str], int], watches: Mapping[tuple[str, str, str], int]
    ) -> Iterator[str]:
        """The exposition. objects: how many there are by group and resource. watches: how many
        are open by group, version and resource."""
        yield from metric_family(
            "apiserver_request_total",
            "counter",
            "Requests by verb, dry run, group, version, resource, scope and HTTP code.",
            ((one.labels(), count) for one, count in sorted(self._counts.items())),
        )
        yield from metric_family(
            "apiserver_longrunning_requests",
            "gauge",
            "Open long-running requests: watches by group, version and resource.",
            (
                ({"component": "apiserver", "group": group, "resource": name, "verb": "WATCH",
                  "version": version}, count)
                for (group, version, name), count in sorted(watches.items())
            ),
        )  # fmt: skip
        yield from metric_family(
            "apiserver_resource_objects",
            "gauge",
            "Stored objects by group and resource.",
            (({"group": group, "resource": name}, n) for (group, name), n in objects.items()),
        )


def metric_family(name: str, kind: str, about: str, values: LabelledValues) -> Iterator[str]:
    """The lines of one metric."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        reported = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
        yield f"{name}{{{reported}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
