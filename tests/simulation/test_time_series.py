"""Samples of a replay are those of the moment, whatever is kept between them."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.columns import NodeTable
from stowplan.insight.gpu_fragmentation import CardFragmentationMeter, conventions_of, typical_of
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.results.time_series import PodSizes, TimeSeries
from tests.property.test_filtering_cards_property import filtering
from tests.simulation.test_repeated_refusals import short_of_cards


def differing_samples() -> tuple[int, int]:
    """Samples of a replay with cards and node failures, and how many are not those that a new time
    series takes at that moment."""
    cluster = short_of_cards(3, 40, 1)
    configuration, registry = configuration_of(filtering("best"), "test")[:2]
    scheduler = scheduler_for(configuration, registry, rng=np.random.default_rng(1))
    conventions = conventions_of(configuration.profiles.values())
    typical = typical_of(cluster.pods, cluster.nodes, conventions)
    meter = CardFragmentationMeter(typical, conventions)
    sizes = PodSizes(cluster.pending())
    series, n_differing = TimeSeries(sizes, meter), 0

    def sample(now: int) -> None:
        nonlocal n_differing
        anew = TimeSeries(sizes, meter)
        for one in (series, anew):
            one.take(now, scheduler)
        n_differing += series.rows[-1] != anew.rows[-1]

    Replay(cluster, scheduler, ReplayOptions(churn=Churn(2000, 300)), 1).run(sample, 10 * SECOND)
    return len(series.rows), n_differing


def test_samples_are_those_of_the_moment() -> None:
    n_samples, n_differing = differing_samples()
    assert n_samples > 50
    assert n_differing == 0


def test_figures_that_are_kept_too_long_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeTable, "marks", (0, 0))
    assert differing_samples()[1] > 0
