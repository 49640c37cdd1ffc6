"""Templates: equal pods, shared parts, bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates, template_of, with_node_name
from stowplan.objects.volume import ImageVolume, Volume
from stowplan.testing import builders
from stowplan.testing.strategies import pods
from tests.property.wrong import assert_caught

Intern = Callable[[Pod], Pod]

A_FEW = st.lists(pods() | pods(on="n0") | pods(on="n1"), max_size=6)


def again(pod: Pod) -> Pod:
    """An equal pod that shares nothing, as from another message."""
    return decode(encode(pod), Pod)


def test_pods_of_a_template_share_spec_and_labels() -> None:
    templates = PodTemplates()
    web = builders.pod("web-0", labels={"app": "web"}, cpu="1")
    first = templates.intern(web)
    second = templates.intern(again(replace(web, metadata=replace(web.metadata, name="web-1"))))
    assert second.spec is first.spec
    assert second.labels is first.labels
    assert second.name == "web-1"
    assert len(templates) == 1


def test_volumes_that_no_rule_reads_may_have_any_name() -> None:
    templates = PodTemplates()
    shared = [
        templates.intern(with_volumes(Volume(name=f"kube-api-access-{text}"), image("data")))
        for text in ("x7k2p", "9q4zt")
    ]
    assert shared[0].spec is shared[1].spec
    assert shared[0].spec.volumes == (Volume(), image("data"))
    other = templates.intern(with_volumes(Volume(name="kube-api-access-x7k2p"), image("more")))
    assert other.spec is not shared[0].spec


def with_volumes(*volumes: Volume) -> Pod:
    made = builders.pod("a", cpu="1")
    return replace(made, spec=replace(made.spec, volumes=volumes))


def image(name: str) -> Volume:
    return Volume(name=name, image=ImageVolume(reference=f"{name}:1"))


def test_labels_in_another_order_are_the_same() -> None:
    templates = PodTemplates()
    first = templates.intern(builders.pod("a", labels={"app": "web", "tier": "front"}))
    second = templates.intern(builders.pod("b", labels={"tier": "front", "app": "web"}))
    assert second.spec is first.spec


def test_other_labels_are_another_template() -> None:
    templates = PodTemplates()
    first = templates.intern(builders.pod("a", labels={"app": "web"}))
    second = templates.intern(builders.pod("b", labels={"app": "api"}))
    assert second.spec is not first.spec
    assert second.labels == {"app": "api"}


def test_a_pod_on_a_node_leads_to_the_template() -> None:
    templates = PodTemplates()
    pending = templates.intern(builders.pod("a", cpu="1"))
    placed = templates.intern(again(builders.pod("a", cpu="1", on="n1")))
    assert placed.node_name == "n1"
    assert placed.spec.containers is pending.spec.containers
    assert template_of(placed.spec) is pending.spec
    assert template_of(pending.spec) is pending.spec
    assert template_of(with_node_name(pending.spec, "n2")) is pending.spec


def test_a_spec_of_no_template_is_its_own() -> None:
    spec = builders.pod("a", on="n1").spec
    assert template_of(spec) is spec


def test_what_came_up_least_recently_is_forgotten() -> None:
    templates = PodTemplates(kept_max=2)
    old = templates.intern(builders.pod("a", labels={"n": "0"}))
    for label in ("1", "0", "2"):
        last = templates.intern(builders.pod("a", labels={"n": label}))
    assert len(templates) == 2
    assert templates.intern(builders.pod("a", labels={"n": "0"})).spec is old.spec
    templates.intern(builders.pod("a", labels={"n": "1"}))
    assert templates.intern(builders.pod("a", labels={"n": "2"})).spec is not last.spec


def check_equal_and_shared(found: list[Pod], intern: Intern) -> None:
    """Interned pods are unchanged, and pods with equal spec and labels share both."""
    interned = [intern(again(pod)) for pod in found]
    assert interned == found
    for pod, one in zip(found, interned, strict=True):
        for other, two in zip(found, interned, strict=True):
            bare = [replace(p.spec, node_name="") for p in (pod, other)]
            alike = bare[0] == bare[1] and pod.labels == other.labels
            assert (template_of(one.spec) is template_of(two.spec)) == alike
            assert not alike or one.labels is two.labels


@given(A_FEW)
def test_an_interned_pod_is_equal_and_shares_with_its_like(found: list[Pod]) -> None:
    check_equal_and_shared(found, PodTemplates().intern)


def by_spec_alone() -> Intern:
    """Wrong: ignores labels of templates."""
    kept: dict[bytes, Pod] = {}

    def intern(pod: Pod) -> Pod:
        like = kept.setdefault(encode(pod.spec), pod)
        return replace(pod, spec=like.spec, metadata=replace(pod.metadata, labels=like.labels))

    return intern


def test_control_labels_forgotten() -> None:
    assert_caught(lambda found: check_equal_and_shared(found, by_spec_alone()), A_FEW)
