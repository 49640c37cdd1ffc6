"""Progress of a long run where standard error is not a terminal."""

import pytest

from stowplan.cli.tables import progress as module


def test_a_long_run_reports_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clocks = {"process_time": 0.0, "monotonic": 0.0}
    for name in clocks:
        monkeypatch.setattr(module.time, name, lambda name=name: clocks[name])
    with module.progress("replaying", 400) as report:
        for second in range(21):
            clocks.update(process_time=second, monotonic=2 * second)
            report.tick(10 * second, 7, 90_000 + second)
    assert capsys.readouterr().err.splitlines() == [
        "replaying, day 1 01:00:05, 7 pending: 50 of 400 pods bound, 10 s, about 70 s left",
        "replaying, day 1 01:00:15, 7 pending: 150 of 400 pods bound, 30 s, about 50 s left",
    ]


def test_a_short_run_reports_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with module.progress("scheduling", 2) as report:
        report.show(0, 2)
        report.show(2, 2)
    assert capsys.readouterr().err == ""
