"""Warnings about configuration files: what they name and has no effect here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stowplan.assembly.deciders import Deciders


def warn_of_ineffective_settings(deciders: Deciders) -> Deciders:
    """The same, with a line per warning printed to standard error."""
    batch = deciders.batch
    if batch is not None:
        for warning in batch.warnings:
            click.echo(f"warning: {batch.source}: {warning}", err=True)
    return deciders
