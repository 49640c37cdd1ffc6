"""Log records as text: the constant message, then its keys."""

import logging

import pytest


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line_of(record) for record in caplog.records]


def line_of(record: logging.LogRecord) -> str:
    keys = getattr(record, "keys", {})
    return " ".join((record.getMessage(), *(f"{key}={value}" for key, value in keys.items())))
