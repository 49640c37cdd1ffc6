"""`stowplan report`: a run or an experiment as one HTML file."""

from __future__ import annotations

import click

from stowplan.cli.command import Command, flag

EXAMPLES = """
# Write results/report.html from the results of `stowplan simulate --out results`
stowplan report results

# Write the report of an experiment to another file
stowplan report out -o comparison.html

# Without JavaScript: charts as plain SVG
stowplan report results --no-script -o plain.html
"""


@click.command(name="report", cls=Command, examples=EXAMPLES)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False))
@flag(
    "-o",
    "--output",
    "file",
    metavar="FILE.html",
    type=click.Path(dir_okay=False),
    help="Write the report to this file.  [default: report.html in DIR]",
)
@flag("--no-script", is_flag=True, help="Draw the charts as plain SVG, without JavaScript.")
def command(folder: str, file: str | None, *, no_script: bool) -> None:
    """Write a run or an experiment as one self-contained HTML file.

    DIR has the results of `stowplan simulate --out` or of `stowplan experiment`. The file loads
    nothing from elsewhere and can be opened without a server: utilization and queue over time,
    waits, nodes over time, fairness, comparisons with intervals, and what was run.
    """
    from stowplan.web.report import write_report

    path = write_report(folder, file, script=not no_script)
    click.echo(f"Written: {path}")
