"""Kernel terms of a class by type, as many as the kernels support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from stowplan.columns.engine import arrays as at
from stowplan.cycle.engine.plugin_points import PluginPoints
from stowplan.framework import CycleState
from stowplan.framework.deciders.kernel_terms import (
    BalancedAllocation,
    CardTerms,
    DeviceTerms,
    KernelTerm,
    ResourceFit,
    ResourceScore,
    TopologyTerm,
    TopologyTermKind,
    TopologyTerms,
)

P = TypeVar("P")


class NoPlan(Exception):
    """Raised if a class cannot be expressed in kernel terms; the walk decides its pods."""


class ClassTerms:
    """Kernel terms of a class, by type. Raises NoPlan if there are more of a type than the kernels
    support."""

    def __init__(self, parts: Sequence[tuple[PluginPoints, KernelTerm]]) -> None:
        self.fit: ResourceFit | None = None
        self.resource_score: ResourceScore | None = None
        self.balanced: BalancedAllocation | None = None
        self.use_weight = self.even_weight = self.spread_weight = self.affinity_weight = 0
        self.requires_all = False
        self.cards: tuple[PluginPoints, CardTerms] | None = None
        self.devices: DeviceTerms | None = None
        # (is reversed, weight) of the score of devices, if they have one.
        self.normalised: tuple[tuple[bool, int], ...] = ()
        self.terms: list[TopologyTerm] = []
        for uses, part in parts:
            self._take(uses, part)

    def _take(self, uses: PluginPoints, part: KernelTerm) -> None:
        weight = uses.member.weight
        if isinstance(part, CardTerms):
            if self.cards is not None or not uses.filters:
                raise NoPlan
            self.cards = uses, part
        elif isinstance(part, DeviceTerms):
            if not uses.filters:
                raise NoPlan
            self.devices = _single_part(self.devices, part, 0)
            if uses.scores and part.has_alternatives:
                self.normalised = ((False, weight),)
        elif isinstance(part, TopologyTerms):
            self._take_terms(uses, part)
        elif isinstance(part, ResourceFit):
            if uses.filters:
                self.fit = _single_part(self.fit, part, len(part.wanted))
        elif not uses.scores:
            return
        elif isinstance(part, ResourceScore):
            self.resource_score, self.use_weight = (
                _single_part(self.resource_score, part, len(part.resources)),
                weight,
            )
        elif isinstance(part, BalancedAllocation):
            self.balanced, self.even_weight = (
                _single_part(self.balanced, part, len(part.resources)),
                weight,
            )

    def reserve(self, state: CycleState) -> frozenset[str]:
        """Write what Unreserve needs of cards; returns the plugins for which kernels reserve.

        Raises NoPlan beside rules that the card kernels do not know.
        """
        if self.cards is None:
            return frozenset()
        uses, part = self.cards
        if self.are_cards_scored and (self.resource_score or self.balanced or self.terms):
            raise NoPlan
        if not self.are_cards_scored and part.milli <= 0:
            # Nothing is left to do with cards.
            self.cards = None
        if self.cards is not None and self.devices is not None:
            raise NoPlan
        if part.state is None:
            state.skip_filter.add(uses.member.name)
        else:
            state.write(uses.member.name, part.state)
        return frozenset({uses.member.name})

    @property
    def are_cards_scored(self) -> bool:
        """True where nodes are scored by their cards, by kernels that know few other scores."""
        return self.cards is not None and self.cards[0].scores

    def _take_terms(self, uses: PluginPoints, part: TopologyTerms) -> None:
        taken = [t for t in part.terms if (uses.filters if t.kind.filters else uses.scores)]
        kinds = {term.kind for term in taken}
        # Normalisation, and terms that must all match, apply per plugin.
        if (
            kinds
            & {t.kind for t in self.terms}
            & {
                TopologyTermKind.NEAR,
                TopologyTermKind.EVEN_SOFT,
                TopologyTermKind.WEIGHTED_AFFINITY,
            }
        ):
            raise NoPlan
        if TopologyTermKind.EVEN_SOFT in kinds:
            self.spread_weight, self.requires_all = uses.member.weight, part.requires_all
        if TopologyTermKind.WEIGHTED_AFFINITY in kinds:
            self.affinity_weight = uses.member.weight
        self.terms += taken


def _single_part(before: P | None, part: P, n_amounts: int) -> P:
    """Check that there is only one term of a type, with no more amounts than the kernels
    support."""
    if before is not None or n_amounts > at.AMOUNTS_MAX:
        raise NoPlan
    return part
