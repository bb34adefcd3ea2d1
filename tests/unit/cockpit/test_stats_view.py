"""Stats as lines, and bars."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from quicksand_tui.snapshot import ProcessView, UseHistory
from quicksand_tui.spark import sparkline
from quicksand_tui.stats_view import stats_lines
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import DB, GUEST, WEB


def test_bars_show_the_latest_at_the_right() -> None:
    assert sparkline([0, 50, 100], 5) == "  ▁▄█"
    assert sparkline([50], 2, top=100) == " ▄"
    assert sparkline([], 3) == "   "
    assert sparkline([0.0, 0.0], 4) == "  ▁▁"
    assert sparkline([0.001], 1, top=100) == "▁", "more than nothing is seen"


@given(st.lists(st.floats(0, 1e12), max_size=200), st.integers(0, 100), st.floats(0, 1e9))
def test_bars_have_their_width(values: list[float], width: int, top: float) -> None:
    assert cell_len(sparkline(values, width, top=top)) == width


@given(st.integers(20, 200))
def test_lines_fit(width: int) -> None:
    hostile = [
        ProcessView(pid=99999, user="x" * 32, rss=1 << 40, cpu_s=1e6, command=text)
        for text in HOSTILE
    ]
    guest = replace(GUEST, busiest=(*GUEST.busiest, *hostile))
    view = replace(WEB, history=UseHistory(cpu=(1.0, 2.0), memory=(5, 6), disk=(7, 8)))
    for line in stats_lines(view, guest, "", width)[1:4]:
        assert sum(cell_len(text) for text, _ in line) <= max(width, 40)


def test_why_the_guest_does_not_tell() -> None:
    lines = [
        "".join(text for text, _ in line) for line in stats_lines(DB, None, "it is stopped", 60)
    ]
    assert "it is stopped" in lines
    assert any(line.startswith("CPU      –") for line in lines)
