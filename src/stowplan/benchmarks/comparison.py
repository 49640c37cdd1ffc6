"""Comparison with an earlier measurement."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stowplan.benchmarks.measurement import BenchmarkResult
from stowplan.inputs.files import read_bytes
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.json_codec import DecodeError, decode


class EarlierResult(msgspec.Struct, frozen=True):
    """The compared fields of an earlier result."""

    shape: str
    nodes: int
    pods: int
    pods_per_s: float | None = None


class BenchmarkReport(msgspec.Struct, frozen=True):
    """Output of `stowplan bench -o json`."""

    results: tuple[EarlierResult, ...]


def read_earlier(path: str | Path) -> dict[str, EarlierResult]:
    """Results of a file by benchmark case; raises InputError."""
    try:
        report = decode(read_bytes(path), BenchmarkReport)
    except DecodeError as problem:
        text = f"{problem}: expected the output of `stowplan bench -o json`"
        raise InputError.at(str(path), "", text) from None
    return {result.shape: result for result in report.results}


def compare_result(result: BenchmarkResult, old: EarlierResult | None) -> BenchmarkResult:
    """The result with the earlier rate and their ratio; without for other sizes."""
    rate, before = result.pods_per_s, None if old is None else old.pods_per_s
    if old is None or (old.nodes, old.pods) != (result.nodes, result.pods):
        before = None
    ratio = round(rate / before, 3) if rate is not None and before else None
    return msgspec.structs.replace(result, old_pods_per_s=before, ratio=ratio)
