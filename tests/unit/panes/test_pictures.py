"""Pictures that panes wait for, keep and forget."""

from __future__ import annotations

import gc
from typing import cast
from weakref import ref

import pytest
from PIL import Image
from quicksand_panes import pictures
from quicksand_panes.guest_terminal import LinkState, LinkStatus, Said
from quicksand_panes.pictures import HalfRows, PanePictures
from quicksand_panes.widgets import Pane
from quicksand_pixels.decoding.places import Part, Placed, Stored
from quicksand_pixels.text_cells import UPPER

from tests.unit.app.fakes import FakeService, until
from tests.unit.panes.test_panes_screen import opened, says
from tests.unit.pixels.guest import chunked, command, noise, packed

LARGE = chunked("a=T,f=24,s=600,v=600,i=7,o=z,c=20,r=5,C=1", packed(noise((600, 600))), 4096)
"""A picture that is decoded on a thread."""


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")


async def test_a_large_picture_is_answered_and_drawn_when_it_is_there() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,), (guest,) = workspace.panes, service.terminals
        screen = pane._pictures._screen
        async with screen.decoding:
            await says(pilot, guest, LARGE)
            assert screen.budget.waiting == 1 and guest.reports == []
            assert not coloured(pane)
        await until(lambda: guest.reports == [(b"\x1b_Gi=7;OK\x1b\\", 1)])
        assert screen.budget.waiting == 0
        assert coloured(pane)


def coloured(pane: Pane) -> list[str]:
    """The half cells in the pane's first rows."""
    return [part.text for y in range(5) for part in pane.render_line(y) if part.text == UPPER]


async def test_a_pane_that_is_closed_leaves_no_picture_waiting() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,), (guest,) = workspace.panes, service.terminals
        screen = pane._pictures._screen
        async with screen.decoding:
            await says(pilot, guest, LARGE * 3)
            await until(lambda: screen.budget.waiting == 3)
            await pane.remove()
        await until(lambda: screen.budget.waiting == 0)
        assert guest.reports == []


async def test_a_picture_of_the_terminal_before_does_not_end_the_replay() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,), (guest,) = workspace.panes, service.terminals
        screen = pane._pictures._screen
        async with screen.decoding:
            await says(pilot, guest, LARGE)
            guest.sink.status(LinkStatus(state=LinkState.OPEN, opening=2))
        await until(lambda: screen.budget.waiting == 0)
        assert guest.reports == [] and not pane.is_behind
        guest.say(b"~~~rest of a picture\x1b\\text", Said.BEFORE)
        await until(lambda: guest.unread == 0)
        assert pane.terminal.text(0) == "text"


def test_pictures_of_a_terminal_that_is_replaced_are_freed_at_once() -> None:
    made = PanePictures(cast(Pane, None), None)
    terminal = made.terminal(20, 5)
    terminal.feed(command("a=T,f=24,s=1,v=1,i=1", b"abc"))
    assert made._graphics is not None
    (placed,) = map(ref, made._graphics.places.placed)
    gc.disable()
    try:
        terminal = made.terminal(20, 5)
        assert placed() is None
    finally:
        gc.enable()
    made.close()
    terminal.feed(command("a=T,f=24,s=1,v=1,i=1", b"abc") + b"\x1bPq~\x1b\\")
    assert not any(run.style.picture for run in terminal.line(0))


def test_half_cells_of_all_pictures_are_within_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "HELD_MAX", 1 << 19)
    rows = HalfRows()
    whole = Stored(Image.new("RGBA", (1000, 1000), "#ff0000"))
    places = [Placed(whole, 1, 1000, 500, (1, 2), (0, 0, 1000, 1000)) for _ in range(3)]
    made = 0
    for placed in places:
        for row in range(0, 500, 8):
            for column in range(0, 1000, pictures.PIECE):
                assert rows.pixels(Part(placed, column, row)) == b"\xff\x00\x00\xff" * 2
                made += 1
                assert rows.held <= pictures.HELD_MAX
    assert made * 8 * pictures.PIECE > 2 * pictures.HELD_MAX
