"""Parts of the web package: modules joined, curves, numbers, notebook HTML."""

import posixpath
import re
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stowplan
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.html_summary import ROWS_MAX, html_bars, html_table
from stowplan.testing import builders
from stowplan.web import single_file
from stowplan.web.curves import Curve, distribution, held, line, thinned
from stowplan.web.number_texts import text_of, time_text
from stowplan.web.run_charts import averaged
from tests.soak import examples
from tests.web.report_folders import MARKUP, small_cluster

STATIC = files("stowplan.web") / "static"
MARKUP_FROM_STRINGS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function"
    r'|setAttribute\("(style|on\w+)"|createContextualFragment|https?://(?!www\.w3\.org)'
)


PARTS = {"": STATIC, "page/": STATIC / "page"}


def scripts() -> dict[str, str]:
    found = {
        f"{prefix}{one.name}": one.read_text()
        for prefix, folder in PARTS.items()
        for one in folder.iterdir()
        if one.name.endswith(".js")
    }
    assert len(found) > 30
    return found


def test_no_script_makes_markup_of_strings() -> None:
    problems = {
        name: match[0]
        for name, text in scripts().items()
        if (match := MARKUP_FROM_STRINGS.search(text))
    }
    assert problems == {}
    assert MARKUP_FROM_STRINGS.search("box.innerHTML = name")


def test_modules_are_joined_once_and_after_what_they_import() -> None:
    joined = single_file.joined_modules("report.js")
    order = re.findall(r'^modules\["([a-z_/]+\.js)"\] = ', joined, re.MULTILINE)
    assert len(order) == len(set(order))
    texts = scripts()
    # A report has the modules of reports, and the map of the page.
    assert set(order) >= {name for name in texts if "/" not in name} | {"page/node_map.js"}
    assert "page/live_connection.js" not in order
    for name in order:
        for imported in re.findall(r'from "(\.[a-z_./]+)"', texts[name]):
            module = posixpath.normpath(posixpath.join(posixpath.dirname(name), imported))
            assert order.index(module) < order.index(name)
    assert not re.search(r"^(import|export) ", joined, re.MULTILINE)


def test_modules_that_import_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}
    monkeypatch.setattr(single_file, "static_text", texts.__getitem__)
    with pytest.raises(ValueError, match=r"a\.js > b\.js > a\.js"):
        single_file.joined_modules("a.js")


# Curves.


@settings(max_examples=examples(25))
@given(st.integers(500, 1500), st.integers(0, 10**6))
def test_thinned_lines_keep_ends_and_peaks(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    peak = int(rng.integers(1, n - 1))
    y = np.zeros(n)
    y[peak] = 1.0
    found = thinned(Curve(np.arange(n, dtype=float), y), 400)
    assert len(found.x) <= 400
    assert (np.diff(found.x) > 0).all()
    assert (found.x[0], found.x[-1]) == (0, n - 1)
    assert found.y.max() == 1.0


def test_every_nth_point_would_lose_a_peak() -> None:
    y = np.zeros(1000)
    y[501] = 1.0
    assert y[::2].max() == 0
    assert thinned(Curve(np.arange(1000.0), y), 500).y.max() == 1.0


def test_a_value_holds_until_the_next_one() -> None:
    curve = Curve(np.array([1.0, 3.0]), np.array([5.0, 7.0]))
    found = held(curve, np.array([0.0, 1.0, 2.9, 3.0, 9.0]))
    np.testing.assert_array_equal(found, [np.nan, 5, 5, 7, 7])


def test_a_band_is_from_the_lowest_to_the_highest() -> None:
    one = Curve(np.array([0.0, 10.0]), np.array([1.0, 3.0]))
    two = Curve(np.array([0.0, 5.0]), np.array([3.0, 5.0]))
    found = line("x", [one, two], n_points=3)
    assert found.x == [0, 5, 10]
    assert (found.low, found.y, found.high) == ([1, 1, 3], [2, 3, 4], [3, 5, 5])


def test_pods_that_never_start_wait_for_ever() -> None:
    waits = [np.array([0.0, 1.0, np.inf, 2.0])]
    found = distribution("x", waits, np.array([0.5, 1.0, 100.0]))
    assert found.y == [25, 50, 75]


def test_rows_of_many_nodes_are_averaged() -> None:
    names = [f"n{k}" for k in range(480)]
    shares = np.repeat(np.arange(240, dtype=np.uint8), 2)[:, None]
    shares[1] = 255
    labels, cells = averaged(names, shares)
    assert labels[0] == "n0 to n1 (2 nodes)"
    assert cells[:, 0].tolist() == list(range(240))


# Numbers.


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (63.247, "percent", "63.2%"),
        (0.0, "percent", "0%"),
        (1234.6, "count", "1,234.6"),
        (1234, "count", "1,234"),
        (0.012345, "number", "0.01235"),
        (123456.7, "number", "123,457"),
        (None, "number", ""),
        ("x", "count", "x"),
        (90061, "time", "1d1h"),
        (86400.0, "time", "1d"),
        (float("inf"), "time", "inf"),
    ],
)
def test_numbers_with_units(value: object, unit: str, text: str) -> None:
    assert text_of(value, unit) == text


def test_times_have_two_units_at_most() -> None:
    times = [0, 0.01, 1.5, 61, 3600, 3661, 90_000]
    assert [time_text(one) for one in times] == ["0s", "10ms", "1.5s", "1m1s", "1h", "1h1m", "1d1h"]


# Notebooks.


def test_results_are_html_in_notebooks() -> None:
    cluster = small_cluster(6, 2)
    run = stowplan.simulate(cluster)
    html = run._repr_html_()
    assert "Simulation(5 of 7 pods on 3 nodes)" in html
    assert "<svg" in html
    assert "Insufficient cpu" in html
    text = stowplan.explain("default/too-big", cluster)._repr_html_()
    assert "NodeResourcesFit" in text
    assert "0/3 nodes are available" in text
    html = Cluster([builders.node(MARKUP)], [], notes=[MARKUP])._repr_html_()
    assert "<img" not in html
    assert "&lt;img" in html


def test_notebook_tables_are_short_and_escaped() -> None:
    found = html_table(("a", "<b>"), [(k, "<i>") for k in range(ROWS_MAX + 5)])
    assert found.count("<tr>") == 1 + ROWS_MAX
    assert "and 5 more rows" in found
    assert "<i>" not in found
    assert "<b>" not in found
    assert html_table(("a",), []) == html_bars([]) == ""
    assert 'width="220.0"' in html_bars([("cpu", 1.7)])


def test_nothing_else_imports_the_web_package() -> None:
    code = (
        "import sys, stowplan; from stowplan.inputs.generated_workload import generate_workload;"
        "stowplan.simulate(generate_workload(2, 3))._repr_html_();"
        "print([name for name in sys.modules if name.startswith('stowplan.web')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
