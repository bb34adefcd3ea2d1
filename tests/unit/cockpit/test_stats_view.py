"""Stats as lines, and bars."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from quicksand.things.sandbox_facts import GuestTraffic, TrafficRates
from rich.cells import cell_len

from quicksand_tui.model.amounts import sparkline
from quicksand_tui.model.shown_sandboxes import ProcessView, UseHistory
from quicksand_tui.views.overview import stats_lines
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


def test_the_network_is_told_as_totals_and_then_as_rates() -> None:
    guest = replace(GUEST, traffic=GuestTraffic(received=3 << 20, sent=2048))
    rates = TrafficRates(received=1 << 20, sent=1024, history=(0.0, 5.0, 9.0))
    for told, expected in ((None, "↓ 3.0M ↑ 2.0K in all"), (rates, "↓ 1.0M/s ↑ 1.0K/s")):
        lines = texts_of(stats_lines(WEB, guest, "", 60, told))
        (line,) = [line for line in lines if line.startswith("Network")]
        assert expected in line and cell_len(line) <= 60
    without = stats_lines(WEB, replace(GUEST, traffic=None), "", 60)
    assert not any("Network" in line for line in texts_of(without))


def texts_of(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_why_the_guest_does_not_tell() -> None:
    lines = texts_of(stats_lines(DB, None, "it is stopped", 60))
    assert "it is stopped" in lines
    assert any(line.startswith("CPU      –") for line in lines)
