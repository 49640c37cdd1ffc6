"""A report as HTML: headings, tables and places for charts. Every text is escaped."""

from __future__ import annotations

from html import escape
from pathlib import Path

from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.result_files import write_files
from stowplan.web.chart_tables import values_of
from stowplan.web.charts import (
    Chart,
    Column,
    HeatMap,
    IntervalChart,
    ReplayMap,
    ReportPage,
    ReportTable,
    Section,
)
from stowplan.web.number_texts import text_of
from stowplan.web.single_file import single_file
from stowplan.web.svg import svg_of

VERDICTS = ("better", "worse")
DIGEST_LETTERS = 40
"""A word that long may be broken anywhere."""


class PageWriter:
    """Writes the parts of a page. script: charts are drawn by it, else as SVG here."""

    def __init__(self, *, script: bool) -> None:
        self.script = script
        self.charts: list[Chart] = []

    def page(self, report: ReportPage) -> str:
        """The whole page."""
        sections = [section for section in report.sections if section.items or section.texts]
        links = "".join(
            f'<li><a href="#s{k}">{escape(section.title)}</a></li>'
            for k, section in enumerate(sections)
        )
        facts = "".join(
            f"<li><span>{escape(fact.label)}</span><strong>{escape(fact.value)}</strong>"
            f"<small>{escape(fact.note)}</small></li>"
            for fact in report.facts
        )
        body = "".join(self._section(section, k) for k, section in enumerate(sections))
        hint = (
            "<noscript><p>Charts need JavaScript; the tables do not. "
            "<code>stowplan report --no-script</code> draws the charts without.</p></noscript>"
        )
        markup = (
            f"<header><h1>{escape(report.title)}</h1>"
            f'<p class="subtitle">{escape(report.subtitle)}</p>{hint if self.script else ""}'
            f'<ul class="facts">{facts}</ul></header>\n'
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>{body}</main>\n'
            "<footer>Written by Stowplan. One file, nothing is loaded from elsewhere.</footer>"
        )
        return single_file(report.title, markup, self.charts if self.script else None)

    def _section(self, section: Section, place: int) -> str:
        drawable = (one for one in section.items if self.script or not isinstance(one, ReplayMap))
        items = "".join(
            self._table(item) if isinstance(item, ReportTable) else self._figure(item)
            for item in drawable
        )
        texts = "".join(f"<p>{escape(text)}</p>" for text in section.texts)
        if len(section.texts) > 1:
            lines = "".join(f"<li>{escape(text)}</li>" for text in section.texts)
            texts = f'<ul class="texts">{lines}</ul>'
        return (
            f'<section id="s{place}" aria-labelledby="h{place}"><h2 id="h{place}">'
            f'{escape(section.title)}</h2>{texts}<div class="items">{items}</div></section>\n'
        )

    def _figure(self, chart: Chart) -> str:
        place = len(self.charts)
        self.charts.append(chart)
        picture = "" if self.script else svg_of(chart)
        attribute = f' data-chart="{place}"' if self.script else ""
        kind = "plot" if self.script else "plot static"
        wide = ' class="wide"' if isinstance(chart, HeatMap | IntervalChart | ReplayMap) else ""
        values = values_of(chart)
        return (
            f"<figure{wide}><figcaption><h3>{escape(chart.title)}</h3>{_note(chart.note)}"
            f'</figcaption><div class="{kind}"{attribute}>{picture}</div>'
            f"<details><summary>Values</summary>{_table(values)}</details></figure>"
        )

    def _table(self, table: ReportTable) -> str:
        head = f"<h3>{escape(table.title)}</h3>{_note(table.note)}"
        wide = " wide" if len(table.columns) > 4 else ""
        if table.is_open:
            return f'<div class="table{wide}">{head}{_table(table)}</div>'
        return (
            f'<div class="table{wide}">{head}<details><summary>{len(table.rows):,} rows</summary>'
            f"{_table(table)}</details></div>"
        )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _table(table: ReportTable) -> str:
    head = "".join(f'<th{_kind(one)} scope="col">{escape(one.name)}</th>' for one in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row, table.columns))}</tr>" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _kind(column: Column) -> str:
    return "" if column.unit == "text" else ' class="number"'


def _cell(value: object, column: Column) -> str:
    text = escape(text_of(value, column.unit))
    if column.unit == "text":
        kind = str(value) if value in VERDICTS else ""
        if len(text) >= DIGEST_LETTERS and " " not in text:
            kind = "digest"
        elif len(text) >= DIGEST_LETTERS:
            kind = "long"
        return f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"
    if isinstance(value, int | float):
        return f'<td class="number" data-value="{value!r}">{text}</td>'
    return f'<td class="number">{text}</td>'


def write_page(report: ReportPage, file: str | Path, *, script: bool = True) -> None:
    """Write a report into a file, whole or not at all; raises InputError."""
    path = Path(file)
    if path.is_dir():
        raise InputError(str(file), "", "a directory", "a file")
    text = PageWriter(script=script).page(report)
    write_files(path.parent, {path.name: text.encode()})
