"""Warnings about configuration files: what they name and has no effect here."""

from __future__ import annotations

import click

from stowplan.assembly.deciders import Deciders


def print_warnings(deciders: Deciders) -> None:
    """Print a line per warning to standard error."""
    batch = deciders.batch
    if batch is None:
        return
    for warning in batch.warnings:
        click.echo(f"warning: {batch.source}: {warning}", err=True)
