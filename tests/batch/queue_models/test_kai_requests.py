"""What a pod asks of cards by its annotations, which users write: none of them ends a session."""

from __future__ import annotations

import pytest

from stowplan.batch.queue_models.kai.kai_objects import task_of
from stowplan.batch.queue_models.kai.model.kai_memory import _alone
from stowplan.batch.queue_models.kai.session_claims import SessionClaims
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS, ResourceIndex
from stowplan.batch.queue_models.kai.state.kai_node import card_memory
from stowplan.batch.queue_models.kai.state.kai_task import MEMORY_SHARE, SHARE, WHOLE
from stowplan.objects.kai.annotation_numbers import DEVICES_MAX
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod

FRACTION, MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"


def pod(**annotations: str) -> Pod:
    notes = {name.replace("_", "-"): text for name, text in annotations.items()}
    return Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="p", annotations=notes))


@pytest.mark.parametrize(
    ("annotations", "kind", "cards", "memory"),
    [
        ({FRACTION: "0.5"}, SHARE, 0.5, 0),
        ({FRACTION: "0.5", DEVICES: "2"}, SHARE, 1.0, 0),
        ({MEMORY: "1000"}, MEMORY_SHARE, 0.0, 1000),
        # No numbers for Go's parser, as in KAI.
        ({FRACTION: "0.5", DEVICES: "²"}, SHARE, 0.5, 0),
        ({FRACTION: "0.5", DEVICES: "1_0"}, SHARE, 0.5, 0),
        ({FRACTION: "0.5", DEVICES: "9" * 5000}, SHARE, 0.5, 0),
        ({FRACTION: "0_5e-1"}, WHOLE, 0.0, 0),
        ({FRACTION: "1.5"}, WHOLE, 0.0, 0),
        ({MEMORY: "inf"}, WHOLE, 0.0, 0),
        ({MEMORY: "1e400"}, WHOLE, 0.0, 0),
        ({MEMORY: "1000.5"}, WHOLE, 0.0, 0),
        ({"nvidia.com/mig-1g.5gb": "²"}, WHOLE, 0.0, 0),
    ],
)
def test_cards_by_annotations(
    annotations: dict[str, str], kind: str, cards: float, memory: int
) -> None:
    asked = pod(**annotations)
    index = ResourceIndex(name for name in annotations if name.startswith("nvidia.com/mig-"))
    task = task_of(asked, 0.0, index, SessionClaims((), (), lambda *_: None))
    assert (task.kind, task.request[CARDS], task.cards.memory) == (kind, cards, memory)


def test_a_pod_has_no_more_cards_of_its_own_than_a_node_may_have() -> None:
    assert len([*_alone(pod(gpu_fraction_num_devices="999999999"))]) == DEVICES_MAX
    assert len([*_alone(pod(gpu_fraction_num_devices="²"))]) == 1


@pytest.mark.parametrize(
    ("label", "memory"),
    [("40960", (40900, True)), ("100", (100, True)), ("99", (100, False)), ("0", (100, False))],
)
def test_memory_of_a_card_is_never_none_at_all(label: str, memory: tuple[int, bool]) -> None:
    # What cards have is divided by it.
    assert card_memory({"nvidia.com/gpu.memory": label}) == memory
