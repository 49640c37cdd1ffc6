"""Reports in a real browser: offline, from a file, at two widths, by keyboard, with axe."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.web.number_texts import text_of
from stowplan.web.report import write_report
from stowplan.web.report_data import PLACEMENTS
from stowplan.web.single_file import static_text
from tests.web.browser import Browser
from tests.web.report_folders import MARKUP, executed_experiment, experiment_folder, run_folder

# One worker starts the browser once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

OVERFLOW = "return document.documentElement.scrollWidth - window.innerWidth"
EMPTY_CHARTS = """
return [...document.querySelectorAll("[data-chart]")].filter((place) => {
  const drawn = [...place.querySelectorAll("svg, canvas")];
  return !drawn.some((one) => one.getBoundingClientRect().height >= 40);
}).length;
"""
CUT_TEXTS = """
return [...document.querySelectorAll("figure svg text")].filter((text) => {
  const [own, whole] = [text, text.closest("figure")].map((one) => one.getBoundingClientRect());
  return own.left < whole.left - 1 || own.right > whole.right + 1;
}).map((text) => text.textContent);
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    experiment = experiment_folder(folder / "experiment")
    executed = executed_experiment(folder / "executed")
    return {
        "run": write_report(run_folder(folder / "run")),
        "experiment": write_report(experiment),
        "plain": write_report(experiment, folder / "plain.html", script=False),
        "executed": executed / "report.html",
    }


@pytest.mark.parametrize(
    ("name", "width"),
    [("run", 390), ("experiment", 1280), ("experiment", 390), ("plain", 390), ("executed", 1280)],
)
def test_opens_offline_without_a_message(
    page: Browser, reports: dict[str, Path], name: str, width: int
) -> None:
    page.requests()
    page.open(reports[name], width)
    assert page.run(OVERFLOW) <= 0
    assert page.run(EMPTY_CHARTS) == 0
    assert page.run("return document.querySelectorAll('svg').length") > 5
    if name != "plain":
        assert page.run(CUT_TEXTS) == []
    assert page.logged() == []
    assert page.requests() == [reports[name].as_uri()]
    assert page.run("return document.querySelectorAll('img').length") == 0
    text = page.run("return document.body.textContent")
    if name == "executed":
        assert "packing against default" in text
        assert all(setting in text for setting in ("small, sampleEvery=12h", "8of 8"))
    else:
        assert MARKUP in text
    if name == "experiment":
        labels = "return [...document.querySelectorAll('.legend button')].map((b) => b.textContent)"
        assert MARKUP in page.run(labels)


def test_what_the_policy_forbids_is_reported(
    page: Browser, reports: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "planted.html"
    text = reports["run"].read_text()
    planted = [
        '<img src="http://127.0.0.1:9/x.png">',
        "<script>window.planted = true</script>",
        '<p style="color: red">x</p>',
    ]
    file.write_text(text.replace("<main>", f"<main>{''.join(planted)}"))
    page.open(file)
    messages = [one for one in page.logged() if "Content Security Policy" in one]
    for directive in ("img-src", "script-src", "style-src"):
        assert any(directive in one for one in messages), directive
    assert page.run("return window.planted") is None


def test_tables_sort_by_keyboard(page: Browser, reports: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(reports["run"])
    found = "[...document.querySelectorAll('h3')].find((h) => h.textContent === 'By namespace')"
    page.run(f"{found}.parentElement.querySelectorAll('th button')[1].focus()")
    values = f"return [...{found}.parentElement.querySelectorAll('tbody tr')]"
    values += ".map((row) => Number(row.cells[1].dataset.value))"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    ascending = page.run(values)
    assert ascending == sorted(ascending)
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.run(values) == ascending[::-1]
    order = f"return {found}.parentElement.querySelectorAll('th')[1].getAttribute('aria-sort')"
    assert page.run(order) == "descending"


def test_charts_are_read_by_keyboard_and_legend(page: Browser, reports: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(reports["experiment"])
    title = "Utilization of cpu"
    page.run("document.querySelector(`svg[aria-label='${arguments[0]}']`).focus()", title)
    for _ in range(3):
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    text = page.run("return document.querySelector('.tooltip.visible').textContent")
    assert "virtual time: " in text
    assert "default" in text
    assert MARKUP in text
    page.run("document.querySelector('canvas[tabindex]').focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    texts = page.run(
        "return [...document.querySelectorAll('.tooltip.visible')].map((t) => t.textContent)"
    )
    assert len(texts) == 1
    assert texts[0].startswith("n1")
    # A button of the legend hides its policy.
    figure = "document.querySelector(`svg[aria-label='Utilization of cpu']`).closest('figure')"
    lines = f"return {figure}.querySelectorAll('path.line').length"
    assert page.run(lines) == 2
    page.run(f"{figure}.querySelector('.legend button').click()")
    assert page.run(lines) == 1
    pressed = f"return {figure}.querySelector('.legend button').getAttribute('aria-pressed')"
    assert page.run(pressed) == "false"


def test_tables_are_there_without_script(page: Browser, reports: dict[str, Path]) -> None:
    page.command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.open(reports["run"])
    finally:
        page.command("Emulation.setScriptExecutionDisabled", {"value": False})
    cells = page.driver.find_elements("css selector", "td")
    assert len(cells) > 40
    assert "Charts need JavaScript" in page.driver.find_element("css selector", "noscript").text


def test_numbers_are_the_same_in_both_languages(page: Browser, reports: dict[str, Path]) -> None:
    page.open(reports["plain"])
    script = static_text("number_texts.js").replace("export ", "")
    numbers = [0, 0.001, 0.0123, 0.5, 1, 1.5, 12.34, 59.99, 61, 999.6, 1234.5, 86_399, 90_000.5]
    numbers += [1e6, -3, -0.25, 123_456_789, 1e-5, 0.3333333]
    for unit in ("percent", "time", "count", "number"):
        ours = [text_of(float(one), unit) for one in numbers]
        call = f"{script}; return arguments[0].map((one) => textOf(one, arguments[1]))"
        assert page.run(call, numbers, unit) == ours


@pytest.mark.parametrize(
    ("name", "dark"),
    [
        ("experiment", True),
        # axe takes seconds: the other scheme in `make soak`.
        pytest.param("run", False, marks=pytest.mark.soak),
    ],
)
def test_axe_finds_nothing(page: Browser, reports: dict[str, Path], name: str, dark: bool) -> None:
    axe_selenium_python = pytest.importorskip("axe_selenium_python")
    page.open(reports[name], dark=dark)
    axe = axe_selenium_python.Axe(page.driver)
    axe.inject()
    found = axe.run()
    problems = [
        (one["id"], node["target"], node["failureSummary"])
        for one in found["violations"]
        for node in one["nodes"]
    ]
    assert problems == []


def test_the_map_of_a_run_has_what_the_placements_say(
    page: Browser, reports: dict[str, Path]
) -> None:
    page.open(reports["run"])
    text = (reports["run"].parent / PLACEMENTS).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    times = [one[name] for one in lines for name in ("bound_s", "ended_s") if one.get(name)]
    move = """
    const range = document.querySelector('.time-bar input');
    range.value = arguments[0];
    range.dispatchEvent(new Event('input'));
    const figure = range.closest('figure');
    const canvas = figure.querySelector('.map canvas');
    canvas.focus();
    const nodes = {};
    for (const key of ['Home', ...Array(arguments[1] - 1).fill('ArrowRight')]) {
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key }));
      const tip = figure.querySelector('.tip');
      nodes[tip.firstChild.textContent] = parseInt(tip.lastChild.textContent);
    }
    return [figure.querySelector('.plot .note').textContent, nodes];
    """
    for step in np.random.default_rng(3).integers(1, 999, 20).tolist():
        at = max(times) * step / 1000
        nodes = placed_at(lines, at)
        waiting = sum(one["arrived_s"] <= at < time_of(one, "bound_s") for one in lines)
        text, found = page.run(move, step, 6)
        assert text.startswith(f"{sum(nodes.values())} pods on nodes, {waiting} waiting"), at
        assert {name: count for name, count in found.items() if count} == nodes
    # Planted: a pod that the file does not have.
    assert placed_at([*lines, {"bound_s": 0, "node": "n0"}], at) != nodes


def placed_at(lines: list[dict[str, Any]], at: float) -> Counter[str]:
    """Pods on each node, counted from `placements.jsonl`."""
    return Counter(
        one["node"]
        for one in lines
        if one.get("node") and time_of(one, "bound_s") <= at < time_of(one, "ended_s")
    )


def time_of(line: dict[str, Any], name: str) -> float:
    """A time of a pod in seconds; infinite for what has not happened."""
    found = line.get(name)
    return np.inf if found is None else float(found)
