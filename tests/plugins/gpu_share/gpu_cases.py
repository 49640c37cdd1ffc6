"""Nodes, pods, configurations and Hypothesis strategies for tests of shared GPUs."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.objects.devices.gpu_cards import (
    COUNT_KEY,
    INDEX_KEY,
    MILLI_KEY,
    MODEL_KEY,
    CardState,
    GpuShareRequest,
)
from stowplan.objects.node import ZONE_LABELS, Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.testing import node, pod

WORKLOAD = [
    {"cpuMilli": 4000, "num": 1, "milli": 500, "count": 5},
    {"cpuMilli": 8000, "num": 1, "milli": 1000, "count": 3},
    {"cpuMilli": 2000, "count": 2},
]


def gpu_node(name: str, cards: int, model: str = "", cpu: str = "64", zone: str = "") -> Node:
    """A node with so many cards."""
    labels = {MODEL_KEY: model} if model else {}
    labels |= {ZONE_LABELS[-1]: zone} if zone else {}
    return node(name, cpu=cpu, resources={COUNT_KEY: str(cards)}, labels=labels)


def gpu_pod(
    name: str, num: int, milli: int, *, cards: str = "", models: str = "", **fields: Any
) -> Pod:
    """A pod that requests so many milli of each of `num` cards; cards: its gpu-index."""
    notes = {COUNT_KEY: str(num), MILLI_KEY: str(milli), INDEX_KEY: cards, MODEL_KEY: models}
    made = pod(name, **{"cpu": "1", **fields})
    annotations = {key: text for key, text in notes.items() if text}
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


def configuration(**args: Any) -> str:
    """A configuration in which GpuShare alone scores."""
    gpu_share = {"name": "GpuShare"}
    plugins = {
        "multiPoint": {"enabled": [gpu_share]},
        "preScore": {"disabled": [{"name": "*"}], "enabled": [gpu_share]},
        "score": {"disabled": [{"name": "*"}], "enabled": [gpu_share]},
    }
    profile = {"plugins": plugins, "pluginConfig": [{"name": "GpuShare", "args": args}]}
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )


LEFT = st.sampled_from([0, 1, 150, 499, 500, 850, 999, 1000, 1000])
MODELS = st.sampled_from(["", "", "A", "A|B", "|", "B|"])
KINDS = st.dictionaries(st.sampled_from(["share", "1-gpu", "2-gpu"]), st.integers(1, 3))
STATES = st.lists(
    st.builds(
        CardState,
        cpu_capacity=st.sampled_from([0, 64_000, 128_000]),
        cpu_left=st.sampled_from([0, 50, 1000, 4000, 64_000]),
        left=st.lists(LEFT, max_size=10).map(tuple),
        model=st.sampled_from(["", "A", "B"]),
        kinds=KINDS,
    ),
    min_size=1,
    max_size=6,
)
REQUESTS = st.builds(
    GpuShareRequest,
    cpu_milli=st.sampled_from([0, 100, 1000, 5000]),
    num=st.integers(0, 4),
    milli=st.sampled_from([0, 1, 150, 500, 999, 1000, 1500]),
    models=MODELS,
    prescribed=st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
)
TYPICAL = st.lists(
    st.builds(
        TypicalPod,
        cpu_milli=st.sampled_from([0, 1000, 8000]),
        num=st.integers(0, 3),
        milli=st.sampled_from([0, 150, 500, 1000]),
        models=MODELS,
        share=st.floats(0.01, 1.0),
    ),
    min_size=1,
    max_size=5,
).map(tuple)
