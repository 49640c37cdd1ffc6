"""Importers of traces: what each makes of a small file, what it says is lost, and bad input."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import stowplan
from stowplan.cli.options import TRACE_FORMATS
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.traces.trace_formats import FORMATS
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from tests.inputs.traces import samples
from tests.tidy.tree import ROOT


def read(folder: Path, files: dict[str, str], trace_format: str = "") -> Cluster:
    for name, text in files.items():
        (folder / name).write_text(text)
    return read_cluster([folder / name for name in files], trace_format=trace_format)


def asks(pod: Pod) -> dict[str, str]:
    resources = pod.spec.containers[0].resources
    return {name: str(amount) for name, amount in resources.requests.items()}


def arrival(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    assert created is not None
    return (created - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds()


def run_s(pod: Pod) -> str | None:
    return pod.metadata.annotations.get("stowplan.dev/run-seconds")


def test_swf(tmp_path: Path) -> None:
    found = read(tmp_path, {"t.swf": samples.SWF})
    assert [node.name for node in found.nodes] == [f"node-{index}" for index in range(4)]
    assert found.nodes[0].status.allocatable == {"pods": "110", "cpu": "8000m", "memory": "16384Mi"}
    pods = {pod.key: pod for pod in found.pods}
    assert list(pods) == [
        "user-7/job-1", "user-8/job-2-0", "user-8/job-2-1", "default/job-5",
    ]  # fmt: skip
    first, second = pods["user-7/job-1"], pods["user-8/job-2-1"]
    assert asks(first) == {"cpu": "4000m", "memory": "4096Mi"}
    assert (arrival(first), run_s(first), first.spec.active_deadline_seconds) == (0, "100", 200)
    assert asks(second) == {"cpu": "8000m", "memory": "4096Mi"}
    (group,) = (one for one in found.objects if isinstance(one, PodGroup))
    assert (group.key, group.spec.min_member, group.spec.queue) == ("user-8/job-2", 2, "user-8")
    queues = [one.name for one in found.objects if isinstance(one, Queue)]
    assert queues == ["default", "user-7", "user-8"]
    notes = "\n".join(found.notes)
    assert "left out, 1 jobs without a run time" in notes
    assert "left out, 1 jobs without processors" in notes


def test_swf_without_a_header_has_no_nodes(tmp_path: Path) -> None:
    lines = "\n".join(line for line in samples.SWF.splitlines() if not line.startswith(";"))
    with pytest.raises(InputError, match="no nodes"):
        read(tmp_path, {"t.swf": lines})
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: '32'}}\n"
    found = read(tmp_path, {"t.swf": lines, "n.yaml": node})
    assert [asks(pod) for pod in found.pods] == [
        {"cpu": "4000m"},
        {"cpu": "16000m"},
        {"cpu": "1000m"},
    ]
    assert any("memory is not requested" in note for note in found.notes)


def test_pai(tmp_path: Path) -> None:
    files = {
        "pai_task_table.csv": samples.PAI_TASKS,
        "pai_job_table.csv": samples.PAI_JOBS,
        "pai_machine_spec.csv": samples.PAI_MACHINES,
    }
    found = read(tmp_path, files)
    assert [node.name for node in found.nodes] == ["m1", "m2"]
    assert found.nodes[0].status.allocatable["nvidia.com/gpu"] == "8"
    assert found.nodes[0].labels["nvidia.com/gpu.product"] == "V100"
    assert "nvidia.com/gpu" not in found.nodes[1].status.allocatable
    pods = {pod.key: pod for pod in found.pods}
    assert list(pods) == [
        "user-u1/aa-tensorflow",
        "user-u2/bb-ps-0", "user-u2/bb-ps-1",
        "user-u2/bb-worker-0", "user-u2/bb-worker-1", "user-u2/bb-worker-2",
        "default/dd-worker",
    ]  # fmt: skip
    shared, worker = pods["user-u1/aa-tensorflow"], pods["user-u2/bb-worker-0"]
    assert asks(shared) == {
        "cpu": "6000m", "memory": "30000Mi", "stowplan.dev/gpu-milli": "500",
    }  # fmt: skip
    assert asks(worker)["nvidia.com/gpu"] == "2"
    # The job was submitted before its task was launched.
    assert (arrival(shared), run_s(shared)) == (990, "600")
    assert run_s(pods["default/dd-worker"]) is None
    assert any("left out, 1 tasks that never started" in note for note in found.notes)


def test_a_queue_with_a_tenants_name_is_that_tenants_queue(tmp_path: Path) -> None:
    queue = "apiVersion: {}\nkind: Queue\nmetadata: {{name: {}}}\nspec: {{}}\n"
    files = {
        "queues.yaml": "---\n".join(
            (
                queue.format("scheduling.run.ai/v2", "org-57"),
                queue.format("scheduling.volcano.sh/v1beta1", "org-13"),
                # Of kube-batch: Volcano does not see it.
                queue.format("scheduling.incubator.k8s.io/v1alpha1", "org-57"),
            )
        ),
        "n.csv": samples.SPOT_NODES,
        "j.csv": samples.SPOT_JOBS,
    }
    found = {pod.namespace: pod.metadata for pod in read(tmp_path, files).pods}
    volcano = "scheduling.volcano.sh/queue-name"
    assert found["org-13"].annotations[volcano] == "org-13"
    assert volcano not in found["org-57"].annotations
    assert [found[name].labels for name in ("org-13", "org-57")] == [
        {},
        {"kai.scheduler/queue": "org-57"},
    ]


def test_spot_gpu(tmp_path: Path) -> None:
    found = read(tmp_path, {"n.csv": samples.SPOT_NODES, "j.csv": samples.SPOT_JOBS})
    assert [node.name for node in found.nodes] == ["node-0", "node-3"]
    high, spot, _ = found.pods
    assert (high.key, high.spec.priority, high.spec.preemption_policy) == (
        "org-13/job-239255", 1000, None,
    )  # fmt: skip
    assert (spot.key, spot.spec.priority, spot.spec.preemption_policy) == (
        "org-57/job-437260-0", 0, "Never",
    )  # fmt: skip
    run = stowplan.simulate(found)
    assert {one.pod: one.node for one in run.placements} == {
        "org-13/job-239255": "node-0",
        "org-57/job-437260-0": "node-3",
        "org-57/job-437260-1": "node-3",
    }


def test_philly(tmp_path: Path) -> None:
    found = read(tmp_path, {"cluster_job_log": samples.PHILLY_JOBS, "m": samples.PHILLY_MACHINES})
    assert [node.status.allocatable["nvidia.com/gpu"] for node in found.nodes] == ["8", "8"]
    whole, *split = found.pods
    assert whole.key == "vc-ee9e8c/application-1506638472019-14199"
    assert (run_s(whole), asks(whole)["nvidia.com/gpu"]) == ("134", "8")
    assert [run_s(pod) for pod in split] == [None, None]
    assert arrival(split[0]) - arrival(whole) == 201
    (group,) = (one for one in found.objects if isinstance(one, PodGroup))
    assert group.spec.min_member == 2
    assert any("left out, 1 jobs without a submission time" in note for note in found.notes)


def test_google(tmp_path: Path) -> None:
    files = {
        "machine_events.csv": samples.GOOGLE_MACHINES,
        "collection_events.csv": samples.GOOGLE_COLLECTIONS,
        "instance_events.json": samples.GOOGLE_INSTANCES,
    }
    found = read(tmp_path, files)
    sizes = {node.name: node.status.allocatable["cpu"] for node in found.nodes}
    assert sizes == {"m-11": "50000m", "m-12": "50000m"}
    evicted, running = found.pods
    assert (evicted.key, arrival(evicted), run_s(evicted)) == ("user-alice/77-0", 1, "38")
    assert asks(evicted) == {"cpu": "2000m", "memory": "10486Mi"}
    assert (evicted.spec.priority, run_s(running)) == (200, None)
    notes = "\n".join(found.notes)
    assert "left out, 1 instances that ended without running" in notes
    assert "left out, 1 events of alloc instances" in notes


def test_google_events_as_csv_are_the_same(tmp_path: Path) -> None:
    header = "time,type,collection_id,instance_index,collection_type,priority,resource_request"
    lines = [
        header,
        "1000000,SUBMIT,77,0,0,200,\"{'cpus': 0.02, 'memory': 0.01}\"",
        "2000000,3,77,0,0,200,",
        "40000000,6,77,0,0,200,",
    ]
    files = {"machines.csv": samples.GOOGLE_MACHINES, "i.csv": "\n".join(lines)}
    (pod,) = read(tmp_path, files).pods
    assert (run_s(pod), asks(pod)) == ("38", {"cpu": "2000m", "memory": "10486Mi"})


def test_a_dump_with_events_is_a_trace_where_asked_for(tmp_path: Path) -> None:
    found = read(tmp_path, {"dump.json": samples.DUMP}, "kubectl")
    done, open_ = found.pods
    assert (done.node_name, run_s(done)) == ("", "300")
    assert (open_.node_name, run_s(open_)) == ("", None)
    notes = "\n".join(found.notes)
    for note in (
        "left out, 1 pods that only events name",
        "left out, 1 controllers, whose pods are in the dump",
        "1 pods had not ended",
        "1 pods were evicted or preempted, by events",
    ):
        assert note in notes
    run = stowplan.simulate(found, replay=stowplan.ReplayOptions())
    assert run.summary["placed"] == 2
    plain = read(tmp_path, {"dump.json": samples.DUMP})
    assert {pod.name for pod in plain.bound()} == {"open"}


@pytest.mark.parametrize("name", FORMATS)
def test_an_import_notes_what_is_lost(tmp_path: Path, name: str) -> None:
    files = {
        "swf": {"t.swf": samples.SWF},
        "pai-2020": {"t.csv": samples.PAI_TASKS, "pai_machine_spec.csv": samples.PAI_MACHINES},
        "spot-gpu-2026": {"j.csv": samples.SPOT_JOBS, "n.csv": samples.SPOT_NODES},
        "philly": {"j.json": samples.PHILLY_JOBS, "m.csv": samples.PHILLY_MACHINES},
        "google-2019": {"i.json": samples.GOOGLE_INSTANCES, "m.csv": samples.GOOGLE_MACHINES},
        "kubectl": {"d.json": samples.DUMP},
    }[name]
    by_name = read(tmp_path, files, name)
    (note,) = (note for note in by_name.notes if note.startswith("trace imported"))
    assert all(lost in note for lost in FORMATS[name].lost)
    if name != "kubectl":
        assert read(tmp_path, files).pods == by_name.pods


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.swf", "1 2 3\n", "line 1: Invalid value: 3 fields: expected 18 fields"),
        ("t.swf", samples.SWF.replace(" 60 ", " x "), "line 8, submit: Invalid value: 'x'"),
        ("t.swf", "; MaxNodes: 999999999\n; MaxProcs: 999999999\n", "MaxNodes: Invalid value"),
        (
            "pai_task_table.csv",
            samples.PAI_TASKS.replace("1.0,T", "1.5,T", 1),
            "line 2, inst_num: Invalid value: '1.5': expected a whole number",
        ),
        (
            "pai_task_table.csv",
            samples.PAI_TASKS.replace("aa,", "aa,more,", 1),
            "line 2: Invalid value: 11 cells: expected 10, as in the header",
        ),
        (
            "j.csv",
            samples.SPOT_JOBS.replace("Spot", "spot"),
            "job_type: .*expected one of HP, Spot",
        ),
        ("j.csv", samples.SPOT_JOBS.replace(",500,", ",-1,"), "line 2, duration"),
        ("j.json", samples.PHILLY_JOBS[:-1], "not JSON"),
        (
            "j.json",
            samples.PHILLY_JOBS.replace("2017-10-07 01:11:39", "yesterday"),
            r"\[0\], submitted_time: .*expected a time such as",
        ),
        ("i.json", samples.GOOGLE_INSTANCES.replace('"type": 3', '"type": 33'), "line 2, type"),
        ("i.json", samples.GOOGLE_INSTANCES + "\n[1]", "line 11: Invalid value: .*an object"),
    ],
)
def test_bad_traces(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, {name: text})


def test_the_options_and_the_page_name_every_format() -> None:
    assert set(FORMATS) == set(TRACE_FORMATS)
    page = (ROOT / "docs" / "importers.md").read_text("utf-8")
    assert all(f"| `{name}` |" in page for name in FORMATS)


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="trace-format: Invalid value: 'slurm': expected one of swf"
    ):
        read(tmp_path, {"t.swf": samples.SWF}, "slurm")


def test_names_that_are_taken_get_a_number(tmp_path: Path) -> None:
    line = "  9 0 5 100 4 -1 -1 4 200 -1 1 7 1 -1 1 -1 -1 -1\n"
    found = read(tmp_path, {"t.swf": samples.SWF + line + line})
    assert {"user-7/job-9", "user-7/job-9-again-2"} <= {pod.key for pod in found.pods}
