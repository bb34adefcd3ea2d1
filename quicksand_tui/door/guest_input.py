"""Keys, texts and the pointer on their way to a guest, in their order.

Keys and the pointer go over VNC, at once. Characters that a US keyboard lacks are typed by
`Sandbox.type_text`, which takes longer; all later input waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from quicksand.base.errors import QuicksandError
from quicksand.display.any_text import can_be_typed
from quicksand.display.keys import STROKES
from quicksand_pixels import Chord, strokes

from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.display.rfb import RfbClient
    from quicksand.sandbox import Sandbox

WAITING_MAX = 10_000
"""The most keys and places that wait for a guest that takes none; later ones are dropped."""

TEXT_MAX = 64 * 1024
"""The most characters of a text that wait, as many as `Sandbox.type_text` takes; later ones are
dropped."""


class _Place(NamedTuple):
    """The next place of the pointer."""

    x: int
    y: int
    width: int
    """Pixels of the guest's screen, on which `x` and `y` lie."""
    buttons: int
    moves: bool
    """The buttons are as before, so that only the end of a movement matters."""


class GuestInput:
    """The way to one QEMU. `run` sends the input that the other methods take, which never wait."""

    def __init__(self, client: RfbClient, sandbox: Sandbox, told: Callable[[str], None]) -> None:
        """``told`` is called with the reason why a text could not be typed."""
        self._client = client
        self._sandbox = sandbox
        self._told = told
        self._waiting: deque[Chord | str | _Place] = deque()
        self._more = asyncio.Event()
        self._buttons = 0

    def press(self, chord: Chord) -> None:
        """Presses a key and releases it."""
        text = _text_of(chord)
        if text and (text not in STROKES or isinstance(self._last, str)):
            self.type(text)
        else:
            self._put(chord)

    def type(self, text: str) -> None:
        """Types a text, at the pace at which guests take it, without characters that no key
        types."""
        text = "".join(filter(can_be_typed, text.replace("\r\n", "\n").replace("\r", "\n")))
        last = self._last
        if isinstance(last, str):
            self._waiting[-1] = (last + text)[:TEXT_MAX]
        elif text:
            self._put(text[:TEXT_MAX])

    def point(self, x: int, y: int, buttons: int, width: int) -> None:
        """Moves the pointer to a pixel of a screen of this width, with VNC's ``buttons`` held."""
        moves, self._buttons = buttons == self._buttons, buttons
        last = self._last
        if moves and isinstance(last, _Place) and last.moves:
            self._waiting.pop()
        self._put(_Place(x, y, width, buttons, moves))

    @property
    def _last(self) -> Chord | str | _Place | None:
        return self._waiting[-1] if self._waiting else None

    def _put(self, what: Chord | str | _Place) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(what)
            self._more.set()

    async def run(self) -> None:
        """Sends the input until it is cancelled. Raises DisplayError when the guest is gone."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, what: Chord | str | _Place) -> None:
        if isinstance(what, _Place):
            await self._client.pointer(what.x, what.y, what.buttons, width=what.width)
        elif isinstance(what, Chord):
            for stroke in strokes(what):
                await self._client.key(stroke.keysym, stroke.down)
        else:
            await self._try(self._sandbox.type_text(what))

    async def _try(self, typing: Awaitable[None]) -> None:
        try:
            await typing
        except QuicksandError as error:
            why = error.args[0] if error.args else error
            self._told(clean(f"not typed: {why}"))


def _text_of(chord: Chord) -> str:
    """Returns the character that a chord types; "" if it is a key, or a command."""
    if chord.control or chord.alt or chord.super or len(chord.key) != 1:
        return ""
    return chord.key
