"""EtaRequest: what `stowplan eta` is asked."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from stowplan.cli.runs.cluster_source import ClusterSource


class EtaRequest(NamedTuple):
    """The options of the command, by their names."""

    target: str | None
    source: ClusterSource
    namespace: str | None
    every: bool
    horizon_s: float | None
    arrivals_s: float | None
    autoscale: str | None
    now: datetime.datetime | None
    draws: int
    interval: str
    seed: int
    calibrate: int
