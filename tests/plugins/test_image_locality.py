"""ImageLocality: bytes of the pod's images, weighed by how widespread they are."""

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.image_locality import (
    ImageLocality,
    image_locality_score,
    images_of,
    normalized_image_name,
    scaled_image_size,
)
from tests.plugins.clusters import MIB, Walks, cases, container, is_caught, node, pod, table


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("app", "app:latest"),
        ("app:v1", "app:v1"),
        ("r.io:5000/app", "r.io:5000/app:latest"),
        ("r.io:5000/app:v1", "r.io:5000/app:v1"),
        ("app@sha256:12", "app@sha256:12"),
        ("", ":latest"),
    ],
)
def test_names(name: str, normal: str) -> None:
    assert normalized_image_name(name) == normal


def with_images(*images: str) -> Pod:
    return pod(containers=[container(image=image) for image in images])


NODES = table(
    [
        node("both", images=f"a:latest={600 * MIB} b:latest={1200 * MIB}"),
        node("one", images=f"a:latest={600 * MIB}"),
        node("none"),
        node("other", images=f"c:latest={4000 * MIB}"),
    ]
)


@pytest.mark.parametrize(
    ("images", "both", "one"),
    [
        # 600 MiB on 2 of 4 nodes: 300 of 23..1000.
        (("a",), 28, 28),
        # Each container raises the upper bound: 23..2000.
        (("a", "a"), 29, 29),
        (("a", "b"), 29, 14),
        (("unknown",), 0, 0),
    ],
)
def test_scores(images: tuple[str, ...], both: int, one: int) -> None:
    found = Walks(ImageLocality).raw(with_images(*images), NODES)
    assert found == {"both": both, "one": one, "none": 0, "other": 0}


def test_the_bounds() -> None:
    huge = with_images("c")
    assert Walks(ImageLocality).raw(huge, NODES)["other"] == 100
    held = np.array([0, 23 * MIB, 23 * MIB + 9 * MIB, 1000 * MIB, 5000 * MIB])
    assert image_locality_score(held, huge).tolist() == [0, 0, 0, 100, 100]


def test_a_pod_without_containers_scores_by_its_image_volumes() -> None:
    bare = pod(containers=[], volumes=[{"name": "v", "image": {"reference": "c"}}])
    # The upper bound is 0 and the lower 23 MiB: below it the score is 0, above it 100.
    assert Walks(ImageLocality).raw(bare, NODES) == {"both": 0, "one": 0, "none": 0, "other": 100}


def test_init_containers_and_volumes_count() -> None:
    full = pod(
        initContainers=[container(image="i")],
        containers=[container(image="c")],
        volumes=[{"name": "v", "image": {"reference": "v"}}, {"name": "w"}],
    )
    assert images_of(full) == ("i:latest", "c:latest", "v:latest")


def test_bytes_are_truncated() -> None:
    assert scaled_image_size(10, np.array([1, 2, 3]), 3).tolist() == [3, 6, 10]


@given(cases("images"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(ImageLocality).agree(*case)


class CountsAnImageOnce(ImageLocality):
    """Wrong: an image that two containers use counts once in the column walk."""

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        held = np.zeros(nodes.n_nodes, dtype=np.int64)
        for name in set(images_of(pod)) & nodes.images.states.keys():
            holders, n_holders = nodes.images.states[name].arrays()
            held[holders] += scaled_image_size(
                nodes.images.states[name].size, n_holders, nodes.n_nodes
            )
        return image_locality_score(held[rows], pod)


def test_counting_an_image_once_is_caught() -> None:
    assert is_caught(CountsAnImageOnce, "images")


def test_signature_ignores_the_order() -> None:
    rule = ImageLocality()
    assert rule.signature(with_images("a", "b")) == rule.signature(with_images("b", "a:latest"))
    assert rule.signature(with_images("a")) != rule.signature(with_images("a", "a"))
