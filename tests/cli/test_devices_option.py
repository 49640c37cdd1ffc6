"""`stowplan up --devices`."""

from __future__ import annotations

import click
import pytest

from stowplan.cli.commands.up import command


def test_devices_of_several_drivers_are_one_text() -> None:
    given = ["--devices", "a.io=1xA", "--devices", "b.io=2xB,shared"]
    assert command.make_context("up", given).params["devices"] == "a.io=1xA; b.io=2xB,shared"
    assert command.make_context("up", []).params["devices"] == ""


def test_what_is_expected_is_named() -> None:
    with pytest.raises(click.ClickException) as caught:
        command.make_context("up", ["--devices", "H100"])
    text = 'invalid argument "H100" for "--devices" flag: must be DRIVER=COUNTxMODEL[,OPTION...]'
    assert text in caught.value.format_message()
