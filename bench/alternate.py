"""Two versions in turn: `bench/alternate.py OLD NEW [MEASURE ...] [--rounds N] [--trace DIR]`.

OLD and NEW are checkouts with a `.venv` each. What is measured once by the one version is measured
next by the other, so that other work on the machine weighs on both alike; printed are the medians
and the ratio of NEW to OLD. Measures: shapes (pods per second of benchmark cases), sessions
(seconds), memory (MB of 150,000 pods), replay (seconds of the OpenB files in DIR), creations
(processor time of the API server for each pod, by JSON and by protobuf).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MEASURES = ("shapes", "sessions", "memory", "replay", "creations")
SHAPES = (
    "basic",
    "affinity",
    "spread",
    "anti",
    "preferred",
    "templates",
    "unfit",
    "preemption",
    "events",
)
CHUNK, CHUNKS = 200, 40
"""Creations in a chunk, and how many chunks each version makes in turn with the other."""
TEN_NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{at},96000,393216,8,G2\n" for at in range(10)
)
PATH = "/api/v1/namespaces/default/pods"
MEDIA = {"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args(arguments)
    versions = [given.old, given.new]
    for name in given.measures or MEASURES:
        if name == "creations":
            for form in MEDIA:
                _print_rows({f"creation by {form}, us": _creations(versions, form)})
        elif name == "replay" and given.trace is None:
            print("replay: not measured without --trace")
        else:
            rows = _in_turn(versions, name, given.rounds, given.trace)
            _print_rows(rows)
    return 0


def _in_turn(
    versions: list[Path], name: str, rounds: int, trace: Path | None
) -> dict[str, list[list[float]]]:
    """Figures by name: those of each version."""
    found: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for at in order:
            for what, value in _measured(versions[at], name, trace).items():
                found.setdefault(what, [[], []])[at].append(value)
    return found


def _measured(version: Path, name: str, trace: Path | None) -> Mapping[str, float]:
    if name == "replay":
        assert trace is not None
        with tempfile.TemporaryDirectory() as folder:
            nodes = Path(folder) / "ten.csv"
            nodes.write_text(TEN_NODES)
            files = [str(nodes), str((trace / "openb_pod_list_default.csv").absolute())]
            began = time.perf_counter()
            _run(version, "simulate", "--replay", *(f"--cluster={one}" for one in files))
            return {"OpenB replay, s": time.perf_counter() - began}
    cases = {"shapes": SHAPES, "sessions": ("sessions",), "memory": ("memory",)}[name]
    report = json.loads(_run(version, "bench", *cases, "--repeat", "1", "-o", "json"))
    made: dict[str, float] = {}
    for one in report["results"]:
        if name == "sessions":
            made |= {f"sessions, {what}, s": value for what, value in one["seconds"].items()}
        elif name == "memory":
            made["150,000 pods, MB"] = one["memory_mb"]
        else:
            made[f"{one['shape']}, {one['unit']}/s"] = one["pods_per_s"]
    return made


def _run(version: Path, *arguments: str) -> str:
    command = [str(version / ".venv/bin/python"), "-m", "stowplan", *arguments]
    return subprocess.run(
        command,
        cwd=version,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout


def _print_rows(rows: Mapping[str, list[list[float]]]) -> None:
    for what, (old, new) in rows.items():
        before, now = statistics.median(old), statistics.median(new)
        print(f"{what:44} {before:12,.2f} {now:12,.2f}  x {now / before:.3f}", flush=True)


# Creations: a process of each version makes a chunk when it is asked for one.


def _creations(versions: list[Path], form: str) -> list[list[float]]:
    made = [
        subprocess.Popen(
            [str(one / ".venv/bin/python"), str(Path(__file__).absolute()), "--create", form],
            cwd=one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for one in versions
    ]  # fmt: skip
    found: list[list[float]] = [[], []]
    for number in range(CHUNKS):
        for at in (0, 1) if number % 2 else (1, 0):
            asked, answered = made[at].stdin, made[at].stdout
            assert asked is not None
            assert answered is not None
            asked.write("\n")
            asked.flush()
            found[at].append(float(answered.readline()))
    for process in made:
        process.communicate()
    return found


def _create(form: str) -> int:
    """Create a chunk of pods for each line of standard input; print the time of each pod in us."""
    requests = _requests(form)
    # Imported here: the other version runs this file as well.
    import numpy as np

    from stowplan.apis.machinery.http_messages import HttpResponse
    from stowplan.apiserver.admission import default_admission
    from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
    from stowplan.apiserver.options import ApiServerOptions
    from stowplan.apiserver.resource_registry import built_in_registry
    from stowplan.assembly.embedded_cluster import EmbeddedCluster

    options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
    server = EmbeddedCluster(options, np.random.default_rng(1)).server
    now = time.time()
    create_bootstrap_objects(server, now)
    for _ in sys.stdin:
        chunk = [next(requests) for _ in range(CHUNK)]
        began = time.process_time()
        answers = [server.handle(one, now) for one in chunk]
        spent = time.process_time() - began
        assert all(isinstance(one, HttpResponse) and one.status == 201 for one in answers)
        server.tick(now)
        server.unsaved()
        print(spent / CHUNK * 1e6, flush=True)
    return 0


def _requests(form: str) -> Iterator[object]:
    from stowplan.apis.machinery.http_messages import HttpRequest
    from stowplan.apis.protobuf.object_codec import object_codec

    media = MEDIA[form]
    container = {
        "name": "c",
        "image": "nginx:1.27",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "b"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    number = 0
    while True:
        number += 1
        meta = {"name": f"p-{number:07}", "labels": {"app": "web"}}
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
                "spec": {"containers": [container]}}  # fmt: skip
        body = object_codec().encode(tree) if form == "protobuf" else json.dumps(tree).encode()
        yield HttpRequest("POST", PATH, (), {"content-type": media, "accept": media}, body)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--create"]:
        sys.exit(_create(sys.argv[2]))
    sys.exit(main(sys.argv[1:]))
