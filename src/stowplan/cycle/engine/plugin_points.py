"""Plugins of a profile as plans see them: what each is called for, and what its terms rest on."""

from __future__ import annotations

from stowplan.framework import SCORE_MAX, Framework
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.storage import PersistentVolumeClaim

POINTS_MAX = 2**31 - 1
"""Maximum value of a tree leaf."""


class PluginPoints:
    """A plugin of a profile, with the extension points at which decisions call it.

    resource_kind: of a plugin whose kernel terms are of amounts alone: equal for resources that
    these treat alike. Where only the containers of a pod count, the amounts are what the pod
    requests of each resource, and for cpu and memory what containers without a request count beside
    it. So a pod of the same outline that requests other amounts above 0, of as many resources and
    of the same kinds in the same order, has the same terms with its names and amounts. is_counted:
    such a plugin, which applies to every pod. answers_by_outline: True where `applies_to` and
    `kernel_terms` answer alike for all pods of the pod's outline, whatever they request and
    whatever their labels, namespace, owners and annotations; as long as no object of its `reads`
    changes, and no pod has a rule about others that none had before.
    """

    def __init__(self, member: RegisteredPlugin, framework: Framework) -> None:
        self.member = member
        at_point = {
            point: member in framework.at(point)
            for point in ("preFilter", "filter", "preScore", "score")
        }
        self.filters, self.scores = at_point["filter"], at_point["score"]
        self.prepares_filter, self.prepares_score = at_point["preFilter"], at_point["preScore"]
        calls = member.calls
        self.applies_to, self.kernel_terms = calls["applies_to"], calls["kernel_terms"]
        self.signature, self.resource_kind = calls["signature"], calls["resource_kind"]
        self.is_counted = self.resource_kind is not None and self.applies_to is None
        self.by_outline = member.declaration.by_outline
        self.answers_by_outline = calls["answers_by_outline"]
        self.reads_no_requests = member.declaration.reads_no_requests
        # Plugins of claims: their terms are for classes by `claims_signature`.
        reads = member.declaration.reads or ()
        self.reads_claims = self.kernel_terms is not None and PersistentVolumeClaim in reads
        # What devices are free is followed; see `DeviceRows`.
        self.plan_reads = member.declaration.reads
        if self.kernel_terms is not None and ResourceClaim in reads:
            self.plan_reads = tuple(k for k in reads if k not in (ResourceClaim, ResourceSlice))
        # A plugin whose preparation is disabled at one extension point fails at the next.
        self.is_whole = not (
            (self.filters and calls["pre_filter"] and not self.prepares_filter)
            or (self.scores and calls["pre_score"] and not self.prepares_score)
            or (self.prepares_filter and calls["filter"] and not self.filters)
        )


def plugin_points_of(framework: Framework) -> list[PluginPoints] | None:
    """The plugins that decisions call; None if no plan can be made for the profile: it samples
    nodes, its Bind may fail at once and release resources before the next pod, its total scores
    overflow a tree leaf, or it divides some scores before adding them."""
    percentage = framework.profile.percentage_of_nodes_to_score
    if (percentage and percentage < 100) or not framework.unconditional_binder:
        return None
    # Trees hold 32-bit scores.
    if SCORE_MAX * sum(member.weight for member in framework.at("score")) > POINTS_MAX:
        return None
    if framework.profile.divisors:
        return None
    members = {
        member.name: member
        for point in ("preFilter", "filter", "preScore", "score")
        for member in framework.at(point)
    }
    return [PluginPoints(member, framework) for member in members.values()]
