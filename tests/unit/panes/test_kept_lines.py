"""The last lines of a terminal that is no more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.panes.last_lines import lines_of_output


def test_they_are_what_the_terminal_showed() -> None:
    output = b"$ make\r\n\x1b[31merror\x1b[m\r\n10%\r100%\r\n$ \x1b[2K\r$ l\bvi\r\n\r\n"
    assert lines_of_output(output, 80, 24, 10) == ("$ make", "error", "100%", "$ vi")


def test_there_are_as_many_as_asked_for() -> None:
    output = b"".join(b"line %d\r\n" % number for number in range(100))
    assert lines_of_output(output, 80, 24, 3) == ("line 97", "line 98", "line 99")


@given(output=st.binary(max_size=2000), columns=st.integers(1, 200), rows=st.integers(1, 60))
def test_whatever_a_guest_wrote_moves_no_cursor_here(
    output: bytes, columns: int, rows: int
) -> None:
    lines = lines_of_output(output, columns, rows, 10)
    assert len(lines) <= 10
    assert all(len(line.splitlines()) <= 1 and "\x1b" not in line for line in lines)
