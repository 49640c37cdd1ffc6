"""Templates: equal pods, shared parts, bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_templates import (
    PodTemplates,
    common_spec_of,
    kept_claim_names,
    template_of,
    with_node_name,
    without_claim_names,
)
from stowplan.objects.volume import ImageVolume, PVCVolumeSource, Volume
from stowplan.plugins.volumes.volume_claims import volume_form_of
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


def with_claims(name: str, *claims: str, on: str = "", labels: str = "web") -> Pod:
    made = builders.pod(name, cpu="1", on=on, labels={"app": labels})
    volumes = [Volume(name=f"kube-api-access-{name}")]
    volumes += [
        Volume(name=f"d{place}", persistent_volume_claim=PVCVolumeSource(claim_name=claim))
        for place, claim in enumerate(claims)
    ]
    return replace(made, spec=replace(made.spec, volumes=tuple(volumes)))


def test_pods_whose_claims_have_other_names_share_all_but_these() -> None:
    templates = PodTemplates()
    first, second = (templates.intern(with_claims(f"db-{i}", f"data-db-{i}")) for i in range(2))
    assert first.spec != second.spec
    assert first.spec.containers is second.spec.containers
    assert common_spec_of(first.spec) is common_spec_of(second.spec)
    assert common_spec_of(first.spec) == without_claim_names(again(first).spec)
    assert kept_claim_names(second.spec) == ("data-db-1",)
    placed = templates.intern(with_claims("db-1", "data-db-1", on="n1"))
    assert template_of(placed.spec) is second.spec
    assert common_spec_of(placed.spec) is common_spec_of(second.spec)
    assert kept_claim_names(placed.spec) == ("data-db-1",)


def test_what_a_template_with_claims_uses_is_read_once() -> None:
    read: list[Pod] = []
    templates = PodTemplates(prepare=read.append)
    for index in range(3):
        templates.intern(with_claims(f"db-{index}", f"data-db-{index}"))
    templates.intern(with_claims("x", "c", labels="other"))
    assert [pod.labels["app"] for pod in read] == ["web", "other"]


def test_a_claim_without_a_name_is_not_like_others() -> None:
    templates = PodTemplates()
    nameless, named = (templates.intern(with_claims("a", claim)) for claim in ("", "c"))
    assert common_spec_of(nameless.spec) is nameless.spec
    assert volume_form_of(nameless.spec).is_delicate
    assert not volume_form_of(named.spec).is_delicate


A_FEW_WITH_CLAIMS = st.lists(
    st.builds(
        lambda claims, node, labels: with_claims("a", *claims, on=node, labels=labels),
        st.lists(st.sampled_from(["", "c0", "c1"]), max_size=2),
        st.sampled_from(["", "n0", "n1"]),
        st.sampled_from(["web", "api"]),
    ),
    max_size=6,
)


def check_claims(found: list[Pod], intern: Intern) -> None:
    """Names of claims and nodes stay, and the common spec is of pods that differ in these alone."""
    interned = [intern(again(pod)) for pod in found]
    for pod, one in zip(found, interned, strict=True):
        assert one.spec.volumes[1:] == pod.spec.volumes[1:]
        assert one.node_name == pod.node_name
        names = tuple(v.persistent_volume_claim for v in pod.spec.volumes[1:])
        for other, two in zip(found, interned, strict=True):
            others = tuple(v.persistent_volume_claim for v in other.spec.volumes[1:])
            has_names = all(claim and claim.claim_name for claim in (*names, *others))
            if has_names:
                alike = len(names) == len(others) and pod.labels == other.labels
                assert (common_spec_of(one.spec) is common_spec_of(two.spec)) == alike


@given(A_FEW_WITH_CLAIMS)
def test_claims_keep_their_names(found: list[Pod]) -> None:
    check_claims(found, PodTemplates().intern)


def test_sharing_names_of_claims_is_caught() -> None:
    def check(found: list[Pod]) -> None:
        templates = PodTemplates()

        def intern(pod: Pod) -> Pod:
            """Wrong: takes the spec of the template with the names of its first pod's claims."""
            pod = templates.intern(pod)
            first.setdefault(id(common_spec_of(pod.spec)), pod.spec)
            return replace(pod, spec=first[id(common_spec_of(pod.spec))])

        first: dict[int, PodSpec] = {}
        check_claims(found, intern)

    assert_caught(check, A_FEW_WITH_CLAIMS)
