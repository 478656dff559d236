"""Plots: the newest result of each scenario, as SVG that loads nothing from elsewhere."""

import io
import json
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench import plots
from bench.runs import RunFailed

SALE = {
    "scenario": "sale",
    "rate_per_s": 400.0,
    "unit": "orders/s",
    "connections": 50,
    "p99_ms": 80.0,
    "percentiles_ms": {"50": 10.0, "99": 80.0},
    "series": {
        "accepted/s": [[1, 900.0], [2, 950.0]],
        "orders/s": [[1, 300.0], [2, 420.0]],
        "lag (s)": [[1, 0.5]],
        "waiting": [[1, 1200]],
    },
}
ACCEPT = [
    {"scenario": "accept", "rate_per_s": rate, "connections": n, "p99_ms": 20.0, "unit": "a/s"}
    for n, rate in ((200, 1.0), (10, 2_000.0), (200, 5_000.0))
]
GROWTH = {
    "scenario": "growth",
    "rate_per_s": 900.0,
    "unit": "orders/s",
    "connections": 200,
    "orders_per_s_by_history": {"0": 910.0, "100000": 905.0},
}


def test_curves_of_one_kind_share_a_plot():
    assert {name: list(one) for name, one in plots.families(SALE["series"]).items()} == {
        "rates": ["accepted/s", "orders/s"],
        "lag": ["lag (s)"],
        "waiting": ["waiting"],
    }


def test_the_newest_counts():
    assert list(plots.by_connections(ACCEPT)) == [10, 200]
    assert plots.by_connections(ACCEPT)[200]["rate_per_s"] == 5_000.0
    assert plots.newest([SALE, SALE | {"rate_per_s": 2}, ACCEPT[0]], has="series") == SALE | {
        "rate_per_s": 2
    }


def test_every_kind_is_drawn_without_scripts_or_strangers():
    pictures = plots.draw({"sale": [SALE], "accept": ACCEPT, "growth": [GROWTH]})
    assert set(pictures) == {
        "sale-rates",
        "sale-lag",
        "sale-waiting",
        "latency-answers",
        "accept-connections",
        "growth-history",
    }
    for text in pictures.values():
        tree = ElementTree.fromstring(text)  # noqa: S314  (our own)
        assert tree.tag.endswith("svg")
        assert not [part for part in tree.iter() if part.tag.endswith("script") and part.get("src")]
        assert not [
            value
            for part in tree.iter()
            for name, value in part.attrib.items()
            if name.endswith("href") and not value.startswith("#")
        ]
    assert "400 orders/s" in pictures["sale-rates"]
    assert "100 000" in pictures["growth-history"]


def test_latencies_of_answers_and_of_orders_are_drawn_apart():
    steady = SALE | {"scenario": "steady", "percentiles_ms": {"50": 900.0}}
    pictures = plots.draw({"sale": [SALE], "steady": [steady]})
    assert ">steady<" in pictures["latency-orders"]
    assert ">steady<" not in pictures["latency-answers"]


def test_equal_results_make_equal_files():
    assert plots.draw({"sale": [SALE]}) == plots.draw({"sale": [SALE]})


def test_files_are_read_whether_they_hold_one_result_or_many(tmp_path):
    one, many = tmp_path / "one.json", tmp_path / "many.json"
    one.write_text(json.dumps(SALE))
    many.write_text(json.dumps([GROWTH]))
    assert plots.draw_all(Console(file=io.StringIO()), [one, many], tmp_path / "images") == 0
    assert (tmp_path / "images" / "bench-growth-history.svg").exists()
    one.write_text(json.dumps(ACCEPT[0]))
    with pytest.raises(RunFailed, match="no result"):
        plots.draw_all(Console(file=io.StringIO()), [one], tmp_path)
