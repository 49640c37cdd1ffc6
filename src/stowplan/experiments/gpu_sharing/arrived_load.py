"""The figures of one run of the published experiment, a line per percent of arrived milli."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from stowplan.experiments.gpu_sharing.experiment import DECIMALS

ARRIVED = "arrived_pct"


def columns_text(columns: Mapping[str, Sequence[float]]) -> str:
    """Figures by percent of the cluster's milli that have arrived, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((ARRIVED, *DECIMALS))
    rows = zip(*(columns[metric] for metric in DECIMALS), strict=True)
    writer.writerows((percent, *row) for percent, row in enumerate(rows))
    return text.getvalue()


def read_columns(text: str) -> dict[str, list[float]]:
    """The figures of `columns_text`."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return {metric: [float(row[metric]) for row in rows] for metric in DECIMALS}
