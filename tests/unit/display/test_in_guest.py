"""What a guest says of its pointer, its layout and its texts, true or not."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import pytest
from quicksand.display import in_guest
from quicksand.display.in_guest import Pointer, find_pointer, find_texts, has_other_layout
from quicksand.guest.agent.session import Session
from quicksand.guest.execution import ExecuteResult


class Guest:
    """Says the same to every script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said, self.code, self.hangs = "", 0, False
        self.session = cast("Session", object())
        monkeypatch.setattr(in_guest, "ask", self._ask)

    async def _ask(self, session: Session, script: str, *, timeout: float) -> ExecuteResult:
        if self.hangs:
            await asyncio.Event().wait()
        answer: dict[str, Any] = {"stdout": self.said, "stderr": "", "exit_code": self.code}
        return ExecuteResult(**answer)


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest(monkeypatch)


PLACE = "X=640\nY=400\nSCREEN=0\nWINDOW=1\n"


async def test_the_pointer(guest: Guest) -> None:
    guest.said = PLACE + "1280 800\n"
    found = await find_pointer(guest.session)
    assert found == Pointer(640, 400, 1280, 800)
    assert found.is_at(found.place) and found.is_at((16384, 16384))
    assert not found.is_at((0, 0))


@pytest.mark.parametrize(
    "said",
    [
        "",
        PLACE,
        PLACE + "0 0\n",
        PLACE + "640 800\n",
        PLACE + "99999 800\n",
        PLACE.replace("640", "-5") + "1280 800\n",
        PLACE.replace("640", "9" * 5000) + "1280 800\n",
        "\0" * 100_000,
    ],
)
async def test_a_pointer_that_cannot_be(guest: Guest, said: str) -> None:
    guest.said = said
    assert await find_pointer(guest.session) is None


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ('_XKB_RULES_NAMES = "evdev", "pc105", "us", "", ""\n', False),
        ('_XKB_RULES_NAMES = "evdev", "pc105", "us", "", "caps:escape"\n', False),
        ('_XKB_RULES_NAMES = "evdev", "pc105", "us", "dvorak", ""\n', True),
        ('_XKB_RULES_NAMES = "evdev", "pc105", "de", "", ""\n', True),
        ('_XKB_RULES_NAMES = "evdev", "pc105", "us,de", ",", ""\n', True),
        ("_XKB_RULES_NAMES:  not found.\n", False),
        ("", False),
    ],
)
async def test_layouts(guest: Guest, said: str, other: bool) -> None:
    guest.said = said
    assert await has_other_layout(guest.session) is other


def console(rows: int, columns: int, text: str) -> str:
    data = base64.encodebytes(text.encode("utf-32-le")).decode()
    return f"console\n  {rows}  {columns}\n{data}"


async def test_a_console_has_its_rows_and_what_goes_over_their_ends(guest: Guest) -> None:
    guest.said = console(2, 6, "Wört  in  漢 ")
    assert await find_texts(guest.session) == ["Wört", "in  漢", "Wört  in  漢 "]


async def test_titles(guest: Guest) -> None:
    guest.said = "titles\nDesktop\n\nTerminal - sh\n"
    assert await find_texts(guest.session) == ["Desktop", "Terminal - sh"]


@pytest.mark.parametrize(
    "said",
    [
        "console\n",
        "console\n 25\n",
        "console\n 25 80\nAAAA",
        "console\n 0 0\n",
        "console\n -1 -1\n",
        "console\n 1 1\nA",
        "console\n 99999999 99999999\n" + "A" * 1000,
    ],
)
async def test_a_console_that_cannot_be(guest: Guest, said: str) -> None:
    guest.said = said
    assert await find_texts(guest.session) is None


async def test_what_is_no_character_is_shown_as_such(guest: Guest) -> None:
    cells = b"A\0\0\0" + b"\xff" * 4 + b"\0\xd8\0\0"
    guest.said = "console\n 1 3\n" + base64.b64encode(cells).decode()
    found = await find_texts(guest.session)
    assert found is not None and found[0].startswith("A\N{REPLACEMENT CHARACTER}")


async def test_a_guest_that_does_not_answer(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    guest.code = in_guest.NO_SCREEN
    guest.said = PLACE + "1280 800\n"
    assert await find_pointer(guest.session) is None
    guest.code, guest.hangs = 0, True
    monkeypatch.setattr(in_guest, "ANSWER_S", 0.02)
    assert await find_pointer(guest.session) is None
    assert await find_texts(guest.session) is None
    assert await has_other_layout(guest.session) is False
