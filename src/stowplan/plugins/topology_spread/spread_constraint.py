"""Topology spread constraints: as configured for a profile, and as applied to one pod.

Source: kube-scheduler v1.36, plugins/podtopologyspread/common.go and
apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection, admits
from stowplan.framework import NodeTable, Problem
from stowplan.objects.node import HOSTNAME_LABEL
from stowplan.objects.pod import Pod, TopologySpreadConstraint
from stowplan.objects.selectors import (
    LabelSelectorRequirement,
    SelectorRequirement,
    label_key_errors,
)
from stowplan.plugins.args_base import PluginArgs

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
SYSTEM, LIST = "System", "List"
ZONE_LABEL = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME_LABEL, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE_LABEL, when_unsatisfiable=SOFT, max_skew=5),
)


class DefaultSpreadConstraint(TopologySpreadConstraint, frozen=True, forbid_unknown_fields=True):
    """An entry of `defaultConstraints`: a constraint without a selector."""

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the entry itself. path: its place in the configuration."""
        if self.max_skew <= 0:
            yield Problem(f"{path}.maxSkew", str(self.max_skew), "1 or more")
        if not self.topology_key:
            yield Problem(f"{path}.topologyKey", "", "a label key")
        else:
            for fault in label_key_errors(self.topology_key):
                yield Problem(f"{path}.topologyKey", f'"{self.topology_key}"', fault)
        if self.when_unsatisfiable not in (HARD, SOFT):
            got = f'"{self.when_unsatisfiable}"' if self.when_unsatisfiable else ""
            yield Problem(f"{path}.whenUnsatisfiable", got, f"{HARD} or {SOFT}")
        if self.label_selector is not None:
            wanted = "none: the selector is deduced for each pod"
            yield Problem(f"{path}.labelSelector", "a selector", wanted)


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """default_constraints: for pods that have none. defaulting_type: List, or System for the
    built-in ones."""

    default_constraints: tuple[DefaultSpreadConstraint, ...] = ()
    defaulting_type: str = SYSTEM

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments. path: their place in the configuration."""
        if self.defaulting_type not in (SYSTEM, LIST, ""):
            got = f'"{self.defaulting_type}"'
            yield Problem(f"{path}.defaultingType", got, f"{LIST} or {SYSTEM}")
        elif self.is_system and self.default_constraints:
            wanted = f"{LIST}, as defaultConstraints are given"
            yield Problem(f"{path}.defaultingType", f'"{SYSTEM}"', wanted)
        seen: set[tuple[str, str]] = set()
        for i, constraint in enumerate(self.default_constraints):
            at = f"{path}.defaultConstraints[{i}]"
            yield from constraint.problems(at)
            pair = constraint.topology_key, constraint.when_unsatisfiable
            if pair in seen:
                wanted = "each topologyKey and whenUnsatisfiable once"
                yield Problem(at, f"{{{pair[0]}, {pair[1]}}} again", wanted)
            seen.add(pair)

    @property
    def is_system(self) -> bool:
        """True when the built-in constraints are the default."""
        return self.defaulting_type in (SYSTEM, "")


class SpreadConstraint(msgspec.Struct, frozen=True, dict=True):
    """A constraint of one pod.

    requirements: on the labels of counted pods; None matches no pod, and an empty tuple matches
    every pod but counts none.
    """

    max_skew: int
    topology_key: str
    requirements: tuple[SelectorRequirement, ...] | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool
    namespace: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True for labels that the selector matches."""
        return self.requirements is not None and admits(self.requirements, labels)

    @cached_property
    def selection(self) -> PodSelection | None:
        """The pods that are counted; None for none."""
        if not self.requirements:
            return None
        return PodSelection(self.requirements, frozenset((self.namespace,)), terminating=False)

    def counts(self, nodes: NodeTable) -> Ints:
        """int64 (n_nodes,): counted pods of each row; read only."""
        if self.selection is None:
            return np.zeros(nodes.n_nodes, dtype=np.int64)
        return MatchingPods.of(nodes).counts(self.selection)


def spread_constraint_of(
    constraint: TopologySpreadConstraint,
    pod: Pod,
    requirements: tuple[SelectorRequirement, ...] | None = None,
) -> SpreadConstraint:
    """A constraint of a pod, or a default one with the default selector's requirements.

    Raises SelectorError for a malformed selector.
    """
    if requirements is None and constraint.label_selector is not None:
        requirements = constraint.label_selector.requirements
        # A missing selector matches nothing, whatever matchLabelKeys are.
        own = {key: pod.labels[key] for key in constraint.match_label_keys if key in pod.labels}
        merged = tuple(LabelSelectorRequirement(k, "In", (v,)) for k, v in own.items())
        requirements = merged + requirements
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        requirements=requirements,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy in (None, "Honor"),
        honors_taints=constraint.node_taints_policy == "Honor",
        namespace=pod.namespace,
    )
