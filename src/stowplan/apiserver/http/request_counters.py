"""Counts and durations of requests, under the names of kube-apiserver's metrics.

Source: apiserver v1.36, pkg/endpoints/metrics/metrics.go, pkg/registry/generic/registry.

Differs: a duration is that until the answer is made; the original waits for the disk and the client
as well, and has that of each watch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.auth.request_info import RequestInfo

LabelledValues = Iterable[tuple[Mapping[str, str], float]]
DURATIONS_S = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
"""Upper bounds of durations in a histogram, seconds."""


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


_Key = tuple[str, bool, bool, bool, bool, bool, str, str, str, str, int]


def _counted_request(key: _Key) -> CountedRequest:
    """What requests with this key are counted as."""
    method, named, placed, watches, applies, is_dry, group, version, plural, sub, code = key
    scope = "resource" if named else "namespace" if placed else "cluster"
    verb = _counted_verb(method, named, watches, applies)
    dry_run = "All" if is_dry else ""
    return CountedRequest(verb, group, version, plural, sub, scope, dry_run, code)


def _counted_verb(method: str, named: bool, watches: bool, applies: bool) -> str:
    if watches:
        return "WATCH"
    if method in ("GET", "HEAD"):
        return "GET" if named else "LIST"
    if method == "DELETE":
        return "DELETE" if named else "DELETECOLLECTION"
    return "APPLY" if applies else method


class _Durations:
    """Of requests of one kind. n: all of them, watches included. n_within: by upper bound, the last
    of which is infinite. total_s: of all, in seconds."""

    __slots__ = ("n", "n_within", "total_s")

    def __init__(self) -> None:
        self.n = 0
        self.n_within = [0] * (len(DURATIONS_S) + 1)
        self.total_s = 0.0

    def add(self, other: _Durations) -> None:
        """Count those of another kind as well."""
        self.n_within = [a + b for a, b in zip(self.n_within, other.n_within, strict=True)]
        self.total_s += other.total_s


class RequestCounters:
    """The requests that were answered, counted by what is at hand at each of them."""

    def __init__(self) -> None:
        self._counts: dict[_Key, _Durations] = {}
        self.n_audited = 0
        """Audit events."""

    def count(
        self,
        request: HttpRequest,
        route: RequestInfo,
        made: HttpResponse | WatchResponse,
        seconds: float,
    ) -> None:
        """Count the answer to a request for a resource. seconds: what it took."""
        method, query = request.method, request.query
        content = request.headers.get("content-type", "") if method == "PATCH" else ""
        key = (
            method, bool(route.name), bool(route.namespace), isinstance(made, WatchResponse),
            content.startswith("application/apply-patch"),
            bool(query) and ("dryRun", "All") in query,
            route.group, route.version, route.plural, route.subresource, made.status,
        )  # fmt: skip
        kind = self._counts.get(key)
        if kind is None:
            kind = self._counts[key] = _Durations()
        kind.n += 1
        if not key[3]:
            kind.n_within[bisect_left(DURATIONS_S, seconds)] += 1
            kind.total_s += seconds

    def _by_labels(self) -> Counter[CountedRequest]:
        found: Counter[CountedRequest] = Counter()
        for key, kind in self._counts.items():
            found[_counted_request(key)] += kind.n
        return found

    def _durations(self) -> Iterator[tuple[dict[str, str], _Durations]]:
        """Durations by labels, without those of watches."""
        found: dict[CountedRequest, _Durations] = {}
        for key, kind in self._counts.items():
            asked = _counted_request(key)._replace(code=0)
            if asked.verb != "WATCH":
                found.setdefault(asked, _Durations()).add(kind)
        for asked, kind in sorted(found.items(), key=lambda pair: pair[0]):
            yield {name: one for name, one in asked.labels().items() if name != "code"}, kind

    def lines(
        self,
        kinds: Iterable[Resource],
        count_of: Callable[[str], int],
        open_watches: Iterable[Resource],
        watch_events: Mapping[tuple[str, str, str], int],
    ) -> Iterator[str]:
        """The exposition. count_of: the number of objects of a resource path. open_watches: the
        kind of each. watch_events: sent to them and earlier ones, by group, version and
        resource."""
        paths = {(one.group, one.plural): one.path for one in kinds}
        objects = {key: n for key, path in sorted(paths.items()) if (n := count_of(path)) > 0}
        watches = Counter((one.group, one.version, one.plural) for one in open_watches)
        yield from metric_family(
            "apiserver_request_total",
            "counter",
            "Requests by verb, dry run, group, version, resource, scope and HTTP code.",
            ((one.labels(), count) for one, count in sorted(self._by_labels().items())),
        )
        yield from histogram_family(
            "apiserver_request_duration_seconds",
            "Durations of requests, in seconds, by the labels of apiserver_request_total but code.",
            self._durations(),
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
        yield from metric_family(
            "apiserver_storage_objects",
            "gauge",
            "Stored objects by resource.",
            (
                ({"resource": f"{name}.{group}" if group else name}, n)
                for (group, name), n in objects.items()
            ),
        )
        yield from metric_family(
            "apiserver_watch_events_total",
            "counter",
            "Events sent to watches by group, version and resource.",
            (
                ({"group": group, "resource": name, "version": version}, count)
                for (group, version, name), count in sorted(watch_events.items())
            ),
        )
        yield from metric_family(
            "apiserver_audit_event_total",
            "counter",
            "Audit events written.",
            (({}, self.n_audited),),
        )


def histogram_family(
    name: str, about: str, kinds: Iterable[tuple[dict[str, str], _Durations]]
) -> Iterator[str]:
    """The lines of a histogram of durations."""
    yield from metric_family(name, "histogram", about, ())
    for labels, kind in kinds:
        bounds = [*map(str, DURATIONS_S), "+Inf"]
        counts = list(accumulate(kind.n_within))
        for bound, n_within in zip(bounds, counts, strict=True):
            yield _line(f"{name}_bucket", {**labels, "le": bound.removesuffix(".0")}, n_within)
        yield _line(f"{name}_sum", labels, kind.total_s)
        yield _line(f"{name}_count", labels, counts[-1])


def metric_family(name: str, kind: str, about: str, values: LabelledValues) -> Iterator[str]:
    """The lines of one metric."""
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield _line(name, labels, value)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    reported = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
    return f"{name}{{{reported}}} {value}" if reported else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
