"""Rows of the scrollback that are cut: as rows of the screen are, but without unpacking them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_vt.cell_rows import Row
from quicksand_vt.packing import Packed, Packer
from quicksand_vt.style import PLAIN, Attribute, Styles

from tests.conftest import examples

STYLES = (
    PLAIN,
    PLAIN._replace(attributes=int(Attribute.BOLD)),
    PLAIN._replace(picture=7),
    PLAIN._replace(picture=0xFFFFFFFF),
)


def row_of(text: str, styles: list[int], wrap: int = 0, mark: int = 0) -> Row:
    row = Row(len(text))
    row.cells[:] = text
    row.styles[:] = [STYLES[number] for number in styles]
    row.used = row.styled = len(text)
    row.wrap, row.mark = wrap, mark
    row.pictured = any(number > 1 for number in styles)
    return row


@settings(max_examples=examples(300))
@given(
    cells=st.lists(
        st.tuples(st.sampled_from("ab  "), st.integers(0, len(STYLES) - 1)),
        min_size=1,
        max_size=12,
    ),
    wrap=st.integers(0, 1),
    mark=st.integers(0, 7),
    columns=st.integers(1, 12),
)
def test_a_row_is_cut_as_on_the_screen(
    cells: list[tuple[str, int]], wrap: int, mark: int, columns: int
) -> None:
    packer = Packer(Styles())
    text, styles = "".join(text for text, _ in cells), [style for _, style in cells]
    packed = Packed(*packer.pack(row_of(text, styles, wrap, mark)))
    cut = packer.cut(packed, columns)
    if len(packed.text) <= columns:
        assert cut is packed
    else:
        shorter = row_of(text[:columns], styles[:columns], 0, mark)
        assert cut == Packed(*packer.pack(shorter))


def test_a_row_of_a_picture_is_cut_without_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = Packer(Styles())
    packed = Packed(*packer.pack(row_of("x" * 10, [2, 3] * 5)))

    def fail(*_: object) -> None:
        raise AssertionError("this takes long")

    monkeypatch.setattr(Packer, "unpack", fail)
    monkeypatch.setattr(Packer, "cells", fail)
    assert packer.cut(packed, 4).text == "xxxx"
    assert packer.cut(packed, 4).has_pictures
