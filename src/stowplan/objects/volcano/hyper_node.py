"""VolcanoHyperNode: the object HyperNode, a part of the network with nodes or HyperNodes below it.

Source: volcano.sh/apis, topology/v1alpha1.
"""

from __future__ import annotations

from stowplan.objects.meta import Object, Value
from stowplan.objects.selectors import LabelSelector

HYPER_NODE_API_VERSION = "topology.volcano.sh/v1alpha1"


class ExactMember(Value, frozen=True):
    """`exactMatch`: one member by name."""

    name: str = ""


class RegexMembers(Value, frozen=True):
    """`regexMatch`: members whose name has a match of the pattern."""

    pattern: str = ""


class MemberSelector(Value, frozen=True, gc=True):
    """`selector` of a member; one of the three is set."""

    exact_match: ExactMember | None = None
    regex_match: RegexMembers | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Value, frozen=True, gc=True):
    """An entry of `spec.members`. type: Node or HyperNode."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Value, frozen=True, gc=True):
    """`spec` of a HyperNode."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class VolcanoHyperNode(Object, frozen=True):
    """A HyperNode."""

    api_version: str = HYPER_NODE_API_VERSION
    spec: HyperNodeSpec = HyperNodeSpec()
