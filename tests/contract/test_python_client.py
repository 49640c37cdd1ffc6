"""The official Python client against the embedded cluster, call by call as in its recording."""

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.up_process import up

client: Any = pytest.importorskip("kubernetes.client", reason="the client is not installed")
config: Any = pytest.importorskip("kubernetes.config")
dynamic: Any = pytest.importorskip("kubernetes.dynamic")
watch: Any = pytest.importorskip("kubernetes.watch")

DATA = Path(__file__).parent / "data" / "python-client.jsonl.gz"
SPACE = "py"
MANIFEST = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: py}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: low}, value: 10}
"""
DIFFERENT = {
    "version": "it says which server it is",
    "evict pod": "printed as the client prints a Status; compared by its kind and status",
}


def recorded() -> dict[str, dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        return {line["scenario"]: line for line in map(json.loads, file)}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {"name": name, "labels": {"app": "py"}},
        "spec": {"containers": [container], "schedulerName": "mine"},
    }


def binding(name: str, **target: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1", **target}}


def lease(moment: str) -> dict[str, Any]:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": moment}
    return {"metadata": {"name": "l"}, "spec": spec}


def event(moment: str) -> dict[str, Any]:
    return {
        "metadata": {"generateName": "p1."},
        "eventTime": moment,
        "action": "Binding",
        "reason": "Scheduled",
        "note": "n",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p1", "namespace": "py"},
        "reportingController": "mine",
        "reportingInstance": "mine-1",
    }


class Calls:
    """What the recorded program did, in its order."""

    def __init__(self, kubeconfig: str) -> None:
        config.load_kube_config(kubeconfig)
        self.core = client.CoreV1Api()
        self.version_ = ""

    def steps(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        core = self.core
        yield "version", lambda: client.VersionApi().get_code().major
        yield "list nodes", lambda: [node.metadata.name for node in core.list_node().items]
        yield "list pods", lambda: len(core.list_namespaced_pod(SPACE).items)
        yield "create pod", lambda: core.create_namespaced_pod(SPACE, pod("p1")).metadata.name
        yield "create pod again", lambda: core.create_namespaced_pod(SPACE, pod("p1"))
        yield "list unbound pods of one scheduler", self._unbound
        yield "list with limit and continue", self._pages
        yield "patch status", self._patch_status
        yield (
            "bind (answer is a Status, not a Binding)",
            lambda: core.create_namespaced_pod_binding("p1", SPACE, binding("p1", apiVersion="v1")),
        )
        yield (
            "create second pod",
            lambda: core.create_namespaced_pod(SPACE, pod("p2")).metadata.name,
        )
        yield (
            "bind with _preload_content=False",
            lambda: (
                core.create_namespaced_pod_binding(
                    "p2", SPACE, binding("p2"), _preload_content=False
                ).status
            ),
        )
        yield (
            "bind bound pod",
            lambda: core.create_namespaced_pod_binding(
                "p1", SPACE, binding("p1", apiVersion="v1"), _preload_content=False
            ),
        )
        yield "watch pods from nothing", self._watch
        yield "watch from a list version", self._watch_on
        yield "watch from version 1 (too old)", self._watch_old
        yield (
            "delete pod",
            lambda: core.delete_namespaced_pod("p3", SPACE, grace_period_seconds=0).metadata.name,
        )
        yield "evict pod", self._evict
        yield "read missing pod", lambda: core.read_namespaced_pod("nosuch", SPACE)
        yield "patch node labels", self._label
        yield "json patch", self._json_patch
        yield "replace pod", self._replace
        yield from self._others()

    def _others(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        leases, events = client.CoordinationV1Api(), client.EventsV1Api()
        short, long = "2001-01-01T00:00:00+00:00", "2001-01-01T00:00:00.000005+00:00"
        yield (
            "create lease, time without microseconds",
            lambda: leases.create_namespaced_lease(SPACE, lease(short)),
        )
        yield (
            "create lease, time with microseconds",
            lambda: leases.create_namespaced_lease(SPACE, lease(long)).metadata.name,
        )
        yield (
            "renew lease",
            lambda: (
                leases.replace_namespaced_lease(
                    "l", SPACE, leases.read_namespaced_lease("l", SPACE)
                ).metadata.name
            ),
        )
        yield (
            "create event, time without microseconds",
            lambda: events.create_namespaced_event(SPACE, event(short)),
        )
        yield (
            "create event, time with microseconds",
            lambda: events.create_namespaced_event(SPACE, event(long)),
        )
        yield (
            "custom objects, kind not defined",
            lambda: client.CustomObjectsApi().list_cluster_custom_object(
                "scheduling.sigs.dev", "v1alpha2", "podgroups"
            ),
        )
        yield (
            "list priority classes",
            lambda: [
                one.metadata.name for one in client.SchedulingV1Api().list_priority_class().items
            ],
        )
        yield (
            "dynamic client",
            lambda: (
                dynamic.DynamicClient(client.ApiClient())
                .resources.get(api_version="v1", kind="Pod")
                .name
            ),
        )
        yield (
            "delete collection",
            lambda: self.core.delete_collection_namespaced_pod(SPACE, grace_period_seconds=0).kind,
        )

    def _unbound(self) -> list[str]:
        found = self.core.list_pod_for_all_namespaces(
            field_selector="spec.nodeName=,spec.schedulerName=mine"
        )
        return [one.metadata.name for one in found.items]

    def _pages(self) -> int:
        first = self.core.list_node(limit=2)
        second = self.core.list_node(limit=2, _continue=first.metadata._continue)
        return int(second.metadata.remaining_item_count)

    def _patch_status(self) -> str:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body = {"status": {"conditions": [condition | {"message": "m"}]}}
        return str(self.core.patch_namespaced_pod_status("p1", SPACE, body).status.phase)

    def _watch(self) -> list[tuple[str, str]]:
        def later() -> None:
            time.sleep(0.5)
            self.core.create_namespaced_pod(SPACE, pod("p3"))

        threading.Thread(target=later).start()
        return self._seen(timeout_seconds=3)

    def _watch_on(self) -> list[tuple[str, str]]:
        version = self.core.list_namespaced_pod(SPACE).metadata.resource_version
        return self._seen(resource_version=version, timeout_seconds=1, allow_watch_bookmarks=True)

    def _watch_old(self) -> list[tuple[str, str]]:
        return self._seen(resource_version="1", timeout_seconds=2)

    def _seen(self, **options: Any) -> list[tuple[str, str]]:
        stream = watch.Watch().stream(self.core.list_namespaced_pod, SPACE, **options)
        return [
            (each["type"], each["object"].metadata.name)
            for each in stream
            # What the hollow kubelet reports comes when it will.
            if each["type"] == "ADDED"
        ]

    def _evict(self) -> tuple[str, str]:
        body = {"metadata": {"name": "p2"}}
        done = self.core.create_namespaced_pod_eviction("p2", SPACE, body)
        return done.kind, str(done.metadata.name)

    def _label(self) -> str:
        body = {"metadata": {"labels": {"py": "1"}}}
        return str(self.core.patch_node("n1", body).metadata.labels["py"])

    def _json_patch(self) -> str:
        body = [{"op": "remove", "path": "/metadata/labels/py"}]
        return str(self.core.patch_node("n1", body).metadata.name)

    def _replace(self) -> str:
        one = self.core.read_namespaced_pod("p1", SPACE)
        return str(self.core.replace_namespaced_pod("p1", SPACE, one).metadata.name)


def normalized(text: str) -> str:
    """An exception in normal form: its class, and what the server said."""
    text = re.sub(r"HTTP response headers:[^\n]*\n", "", text)
    text = re.sub(r"p1\.[a-z0-9]{5}", "p1.<gen>", text)
    return re.sub(r"<rv\d+>|(?<=: 1 \()\d+", "<rv>", text).strip()


def same(got: str, wanted: str) -> bool:
    """Long texts were cut off when they were recorded."""
    return got.startswith(wanted) if wanted else not got


def outcome(call: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return call(), ""
    except (client.ApiException, ValueError) as problem:
        return None, f"{type(problem).__name__}: {problem}"


def nodes() -> str:
    """Five nodes whose kubelets are off, so that nothing happens by itself."""
    return "".join(
        f"---\n{{apiVersion: v1, kind: Node, metadata: {{name: n{i}, "
        'annotations: {stowplan.dev/kubelet: "off"}}}\n'
        for i in range(1, 6)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_calls_come_to_what_was_recorded(tmp_path: Path) -> None:
    wanted = recorded()
    (tmp_path / "world.yaml").write_text(MANIFEST + nodes())
    wrong = []
    with up(tmp_path, "--cluster", str(tmp_path / "world.yaml")) as cluster:
        calls = dict(Calls(str(cluster.kubeconfig)).steps())
        assert list(calls) == list(wanted)
        for name, call in calls.items():
            result, exception = outcome(call)
            line = wanted[name]
            if not same(normalized(exception), normalized(line["exception"] or "")):
                wrong.append(f"{name}: got {exception!r}, wanted {line['exception']!r}")
            elif name not in DIFFERENT and str(result) != str(line["result"]):
                wrong.append(f"{name}: got {result!r}, wanted {line['result']!r}")
        assert not wrong, "\n".join(wrong)


def test_normal_form_keeps_all_fields() -> None:
    assert normalized("A: (409)\nReason: x") != normalized("A: (404)\nReason: x")
    assert same("", "")
    assert not same("A: x", "")
    assert not same("A: x", "A: y")
    assert normalized("too old resource version: 1 (<rv1>)") == normalized(
        "too old resource version: 1 (77)"
    )
