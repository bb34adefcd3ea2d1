"""The text format of metrics."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_e2b import exposition
from quicksand_e2b.exposition import Histogram, counter, gauge, render

from tests.each import each


def test_a_metric_has_its_help_its_kind_and_its_values() -> None:
    metrics = [
        gauge("free_bytes", "What is free.", [({}, 5), ({"disk": "a"}, 0.5)]),
        counter("reads_total", "A \\ and\na line.", [({"a": "b", "c": "d"}, math.inf)]),
    ]
    assert render(metrics) == (
        "# HELP free_bytes What is free.\n"
        "# TYPE free_bytes gauge\n"
        "free_bytes 5\n"
        'free_bytes{disk="a"} 0.5\n'
        "# HELP reads_total A \\\\ and\\na line.\n"
        "# TYPE reads_total counter\n"
        'reads_total{a="b",c="d"} +Inf\n'
    )


def test_a_histogram_counts_what_is_at_most_each_bound() -> None:
    found = Histogram("work_seconds", "Time.", (0.1, 1))
    for value in (0.1, 0.5, 0.5, 7):
        found.observe(value, kind="x")
    assert render([found.metric()]).splitlines()[2:] == [
        'work_seconds_bucket{kind="x",le="0.1"} 1',
        'work_seconds_bucket{kind="x",le="1"} 3',
        'work_seconds_bucket{kind="x",le="+Inf"} 4',
        'work_seconds_sum{kind="x"} 8.1',
        'work_seconds_count{kind="x"} 4',
    ]


@given(st.text())
def test_no_value_of_a_label_breaks_a_line(text: str) -> None:
    (line,) = render([gauge("a", "b", [({"c": text}, 1)])]).split("\n")[2:-1]
    quoted = re.fullmatch(r'a\{c="((?:[^"\\\n]|\\["\\n])*)"\} 1', line)
    assert quoted is not None
    plain = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), quoted[1])
    assert plain == text.encode("utf-8", "replace").decode()


@each("name", ["", "Ä", "a b", "1a", 'a"'])
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a metric"):
        render([gauge(name, "", [])])
    with pytest.raises(ValueError, match="is no name of a label"):
        render([gauge("a", "", [({name: "x"}, 1)])])


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SERIES_MAX", 3)
    found = Histogram("a", "", ())
    for number in range(9):
        found.observe(1, b=str(number))
    assert render([found.metric()]).count("a_count") == 3
    assert render([gauge("b", "", [({"c": str(n)}, n) for n in range(9)])]).count("\n") == 5
