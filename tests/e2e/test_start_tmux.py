"""The app's start as a person sees it, in tmux: the list at once, and no key that is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import APP, left_clean
from tests.e2e.tmux import Terminal
from tests.unit.app.test_reader import make


@pytest.mark.parametrize(
    "size",
    [
        pytest.param((80, 24), marks=pytest.mark.soak),
        (120, 36),
        pytest.param((200, 50), marks=pytest.mark.soak),
    ],
)
def test_keys_that_are_typed_at_once_act_on_the_list(size: tuple[int, int], places: Paths) -> None:
    for number in range(3):
        make(places, number)
    columns, rows = size
    looks = Path(os.environ["QUICKSAND_STATE_DIR"]) / "app.json"
    for is_first in (True, False):
        with Terminal(APP, columns=columns, rows=rows) as terminal:
            # Before the program has even begun; the second time into the outline.
            terminal.type("j")
            terminal.sees("3 stopped", "Tree of box-1")
            terminal.press("/")
            terminal.type("box-2")
            terminal.press("Enter")
            terminal.sees("1 of 3", "Tree of box-2")
            terminal.press("Escape")
            terminal.press("q")
            left_clean(terminal, 0)
        if is_first:
            wait_for(looks.exists, what="the looks to be kept")
            assert json.loads(looks.read_text())["outline"]["title"] is not None
