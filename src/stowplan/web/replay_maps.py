"""The nodes of a finished run at any time, as intervals of its pods that the page adds up."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from stowplan.web.charts import ReplayArray, ReplayMap
from stowplan.web.model.page_frames import FrameBody
from stowplan.web.report_data import RunResults

NEVER = 4_294_967_295
"""A time that is not within the run."""
PODS_MAX = 20_000
"""A run of more pods has no map here (`simulate --web` has): a report stays small. 20 bytes of the
file a pod, where times are whole milliseconds."""
UNITS = {"cpu": "milli", "memory": "bytes", "ephemeral-storage": "bytes"}
SMALLEST = (("u8", np.uint8), ("u16", np.uint16), ("u32", np.uint32), ("i32", np.int32))


def replay_maps(run: RunResults) -> list[ReplayMap]:
    """The map; none of a run without `usage.json`, nodes or pods."""
    use = run.use
    if use is None or not use.nodes or not 0 < len(run.placements) <= PODS_MAX:
        return []
    columns = interval_columns(run)
    never = float(NEVER)
    times = np.concatenate([columns[name] for name in ("created", "bound", "ended")])
    end = float(times[times < never].max(initial=0.0))
    resources = [{"name": name, "unit": UNITS.get(name, "count")} for name in use.resources]
    templates = [
        {"requests": dict(zip(use.resources, size, strict=True)), "gpus": 0} for size in use.sizes
    ]
    allocatable = np.array(use.allocatable, dtype=float).reshape(len(use.nodes), -1)
    for k, name in enumerate(use.resources):
        columns[f"allocatable:{name}"] = allocatable[:, k]
    is_timed = run.is_replay
    data = {
        "axis": "time_s" if is_timed else "pods",
        "start": 0.0,
        "end": end * 1000 if is_timed else end,
        "names": use.nodes,
        "resources": resources,
        "pods": [],
        "templates": templates,
    }
    arrays = [ReplayArray(name, *packed(values)) for name, values in columns.items()]
    pods = np.bincount(columns["node"][columns["node"] >= 0].astype(int), minlength=len(use.nodes))
    note = "Any moment of the run: move the slider, or play. " + (
        "A pod counts from its binding to its end." if is_timed else "Pods in the order of tries."
    )
    return [ReplayMap("Nodes at a time", data, arrays, pods.tolist(), note)]


def map_of_frame(body: FrameBody, title: str, note: str) -> ReplayMap:
    """The map of a frame of `GET replay`."""
    columns = {name: values.astype(np.float64) for name, values in body.arrays.items()}
    arrays = [ReplayArray(name, *packed(values)) for name, values in columns.items()]
    rows = body.arrays["node"].astype(np.int64)
    pods = np.bincount(rows[rows >= 0], minlength=len(body.tree["names"]))
    return ReplayMap(title, body.tree, arrays, pods.tolist(), note)


def interval_columns(run: RunResults) -> dict[str, NDArray[np.float64]]:
    """float (n_pods,) each: node (row, -1 for none), created, bound and ended in seconds, or in a
    placement run in pods tried before, and template (place in `sizes`)."""
    assert run.use is not None
    rows = {name: row for row, name in enumerate(run.use.nodes)}
    node = np.array([rows.get(one.node, -1) for one in run.placements], dtype=float)
    if run.is_replay:
        created = run.times("arrived_s")
        bound, ended = run.times("bound_s"), run.times("ended_s")
    else:
        created = np.arange(len(node), dtype=float)
        bound, ended = created + 1, np.full(len(node), np.inf)
    bound = np.where(node >= 0, bound, np.inf)
    found = {"created": created, "bound": bound, "ended": ended}
    finite = {name: np.where(np.isfinite(one), one, NEVER) for name, one in found.items()}
    template = np.array(run.use.pod_sizes, dtype=float)
    return {"node": node, **finite, "template": template}


def packed(values: NDArray[np.float64]) -> tuple[str, str, int]:
    """The smallest type that has all values exactly, their bytes in base64, and a divisor.

    Times in whole milliseconds become whole numbers; NEVER is the largest of them as it is.
    """
    for divisor in (1, 1000):
        scaled = np.where(values == NEVER, NEVER, np.round(values * divisor))
        known = values != NEVER
        is_exact = (scaled[known] / divisor == values[known]).all() and scaled.max() <= NEVER
        for kind, dtype in SMALLEST if is_exact else ():
            limits = np.iinfo(dtype)
            if scaled.min() >= limits.min and scaled.max() <= limits.max:
                return kind, base64.b64encode(scaled.astype(dtype).tobytes()).decode(), divisor
    return "f64", base64.b64encode(values.astype("<f8").tobytes()).decode(), 1
