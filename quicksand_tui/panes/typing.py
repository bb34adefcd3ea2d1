"""Input typed for a guest: sent at once, or kept until the guest it is meant for can take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import size_text
from quicksand_tui.panes.content import TYPED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.panes.content import GuestTerminal


class Typing:
    """Writes to the guest's terminal. Keeps input that comes while there is no terminal, or during
    a revert, for the guest after it."""

    def __init__(self, going_back: Callable[[], object]) -> None:
        """``going_back`` returns the job that is reverting the sandbox, or None."""
        self.guest: GuestTerminal | None = None
        self._kept = b""
        self._going_back = going_back
        self._went_back: object = None
        """The result of ``going_back`` when the terminal was last opened."""

    def write(self, data: bytes) -> None:
        if self.guest is not None and not self._waits:
            if data:
                self.guest.write(data)
        else:
            self._kept = (self._kept + data)[:TYPED_MAX]

    def opened(self) -> None:
        """Types the keys that were kept for the terminal that was just opened."""
        self._went_back = self._going_back()
        self.flush()

    def flush(self) -> None:
        kept, self._kept = self._kept, b""
        self.write(kept)

    def drop(self) -> None:
        """Forgets the keys that were kept: nobody can take them."""
        self._kept = b""

    def release(self) -> None:
        """Types the keys that were kept, if the revert is over."""
        if self._kept and self.guest is not None and not self._waits:
            self.flush()

    @property
    def _waits(self) -> bool:
        """Whether a revert is running that is not over for this terminal."""
        going = self._going_back()
        return going is not None and going != self._went_back


def refuse_pasted(text: str, *, is_open: bool) -> str:
    """Returns why a paste is not typed; "" if it can be."""
    if not is_open:
        return "Nothing was pasted: there is no program here to take it"
    if len(text.encode("utf-8", "replace")) > TYPED_MAX:
        return f"Nothing was pasted: a paste has {size_text(TYPED_MAX)} at most; copy a file"
    return ""
