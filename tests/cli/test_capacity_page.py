"""docs/capacity.md: its commands print what it shows; errors of `stowplan capacity`.

STOWPLAN_GOLDEN=1 writes the output into the page; the diff is the review.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import stowplan
from tests.cli.run import check_one_line, run
from tests.cli.test_tutorials import FILE, played

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name, text in FILE.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_commands_print_what_the_page_shows(here: Path) -> None:
    page = PAGE.read_text()
    now = played(page)
    if os.environ.get("STOWPLAN_GOLDEN"):
        PAGE.write_text(now)
        return
    assert now == page


def test_json_is_the_same_as_in_python(here: Path) -> None:
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml", "-o", "json")
    found = stowplan.capacity("web.yaml", "cluster.yaml")
    tree = json.loads(ran.out)
    assert tree["apiVersion"] == "stowplan.dev/capacity/v1"
    assert [one["count"] for one in tree["units"]] == [one.count for one in found.units]
    assert ran.code == 0


def test_a_workload_that_fits_nowhere_ends_with_1(here: Path) -> None:
    Path("web.yaml").write_text(Path("web.yaml").read_text().replace("1500m", "99"))
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml")
    assert ran.code == 1
    assert "3 Insufficient cpu" in ran.out
    ran = run("capacity", "web.yaml", "--fit", "-f", "cluster.yaml")
    assert ran.code == 1
    assert "default/web-0 runs on no new node: Insufficient cpu" in ran.out


def test_a_limit_is_reported(here: Path) -> None:
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml", "--limit", "2")
    assert "2 or more" in ran.out
    assert "No more of" not in ran.out


def test_an_autoscaler_in_labels_is_reported(here: Path) -> None:
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(text.replace("stowplan.dev/pool", "karpenter.sh/nodepool"))
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml")
    assert "Karpenter node pools, which an autoscaler may resize: it was not modelled" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "FILE is required"),
        (("--fit", "--compact"), "--fit and --compact cannot be used together"),
        (("web.yaml", "--compact"), "--compact takes no FILE"),
        (("web.yaml", "--price", "small=1"), "--price needs --fit or --compact"),
        (("--fit", "--limit", "3"), "--limit cannot be used with --fit"),
        (("--fit", "--price", "small"), "must be POOL=AMOUNT with an amount greater than 0"),
        (("--fit", "--price", "small=-1"), "must be POOL=AMOUNT with an amount greater than 0"),
        (
            ("--fit", "--price", "small=1", "--price", "small=2"),
            'must name pool "small" once: it is 1 already',
        ),
        (("--fit", "--price", "smal=1"), "did you mean 'small'?"),
        (("cluster.yaml", "--profile", "nope"), "profile"),
        (("missing.yaml",), "missing.yaml"),
    ],
)
def test_bad_input(here: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = run("capacity", *arguments, "-f", "cluster.yaml")
    assert ran.code == 2, ran
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_a_file_without_pods_is_an_error(here: Path) -> None:
    Path("web.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml")
    check_one_line(ran, "no pods")


def test_capacity_with_all_nodes_of_an_autoscaler(here: Path) -> None:
    Path("auto.yaml").write_text(
        "apiVersion: stowplan.dev/autoscale/v1\nkind: Autoscale\npools: [{name: small, max: 5}]\n"
    )
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(text.replace("stowplan.dev/pool", "karpenter.sh/nodepool"))
    ran = run("capacity", "web.yaml", "-f", "cluster.yaml", "--autoscale", "auto.yaml")
    assert ran.code == 0
    # Three nodes of 4 cores more take two pods of 1500m each.
    assert "14" not in ran.out.splitlines()[1]
    assert ran.out.splitlines()[1].split()[2:4] == ["20", "20"]
    assert "its pools were modelled as in the file" in ran.out
    ran = run("capacity", "--fit", "-f", "cluster.yaml", "--autoscale", "auto.yaml")
    assert "--autoscale cannot be used with --fit" in ran.err


AUTOSCALE_PAGE = PAGE.parent / "autoscale.md"


def test_the_page_of_autoscaling_shows_what_is_printed(here: Path) -> None:
    page = AUTOSCALE_PAGE.read_text()
    now = played(page)
    if os.environ.get("STOWPLAN_GOLDEN"):
        AUTOSCALE_PAGE.write_text(now)
        return
    assert now == page


def test_mistakes_of_an_autoscale_file_end_with_2(here: Path) -> None:
    Path("auto.yaml").write_text(
        "apiVersion: stowplan.dev/autoscale/v1\nkind: Autoscale\npools: []\n"
    )
    ran = run("simulate", "cluster.yaml", "--autoscale", "auto.yaml")
    check_one_line(ran, "auto.yaml", "pools")
    check_one_line(run("simulate", "cluster.yaml", "--autoscale", "none.yaml"), "none.yaml")


def test_a_price_that_sums_cannot_hold(here: Path) -> None:
    ran = run("capacity", "web.yaml", "--fit", "-f", "cluster.yaml", "--price", "small=1e308")
    check_one_line(
        ran, "price: small: Invalid value: 1e+308: expected a number above 0 up to 1e+12"
    )
