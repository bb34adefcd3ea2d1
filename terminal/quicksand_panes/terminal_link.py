"""A pane's link to its terminal: opened, opened again, left, ended; the input typed for it, and its
output: repeated, waiting to be parsed, and its last lines."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from quicksand_panes.guest_terminal import TYPED_MAX, LinkState, LinkStatus, Said, after_string

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from quicksand_panes.guest_terminal import GuestTerminal, OpenTerminal, Sink
    from quicksand_panes.messages import Shown


class Link:
    """Opens the terminal that `Shown.status` names, or a new one."""

    def __init__(
        self,
        open_terminal: OpenTerminal,
        directory: str,
        shown: Shown,
        typing: Typing,
        sink: Sink,
    ) -> None:
        """A new terminal begins in ``directory``, if the guest has that."""
        self._open_terminal = open_terminal
        self._directory = directory
        self._shown = shown
        self._typing = typing
        self._sink = sink
        self._renews = False
        """It waits for `go_on` to open a terminal."""

    def begin(self) -> None:
        """Opens it once the pane has its size."""
        if self._shown.status.state is not LinkState.DELETED and not self._renews:
            self._connect()

    def _connect(self) -> None:
        before, terminal = self._shown.status, self._shown.terminal
        self._wait_for(before.session, before.birth)
        self._typing.guest = self._open_terminal(
            before.session,
            (terminal.columns, terminal.rows),
            self._sink,
            birth=before.birth,
            directory=self._directory,
        )
        self._typing.flush()

    def _wait_for(self, session: str = "", birth: str = "") -> None:
        self._sink.status(LinkStatus(state=LinkState.CONNECTING, session=session, birth=birth))

    def reopen(self) -> bool:
        """Opens a new terminal in place of one that is over; returns False if its machine does not
        run."""
        if not self._shown.status.runs:
            return False
        if self._shown.status.state is not LinkState.DELETED:
            self.leave()
            self._shown.status = LinkStatus(state=LinkState.CONNECTING)
            self._connect()
        return True

    def renew(self) -> None:
        """Lets the pane take keys for a terminal that `go_on` opens in place of one that is
        over."""
        before = self._shown.status
        self.leave()
        self._renews = True
        if before.state is LinkState.LOST:
            self._wait_for(before.session, before.birth)
        else:
            self._wait_for()

    def go_on(self, terminals: Container[str] | None) -> None:
        """Opens the terminal that it had if that is among ``terminals`` (their names as in
        `LinkStatus`), else a new one. With None there is no guest, and the keys typed for it are
        dropped."""
        if not self._renews:
            return
        self._renews = False
        if terminals is None:
            self._typing.drop()
        elif self._shown.status.terminal_name not in terminals:
            self._shown.status = LinkStatus(state=LinkState.CONNECTING)
        self._connect()

    def report(self, data: bytes) -> None:
        """Sends answers, mouse and focus reports, unless output is still being replayed or the
        guest is gone: then nothing waits for them."""
        status, guest = self._shown.status, self._typing.guest
        is_open = status.state is LinkState.OPEN and self._shown.caught_up
        if guest is not None and data and is_open:
            guest.report(data, status.opening)

    def mark_deleted(self, text: str) -> None:
        """Shows that its machine was deleted; the screen stays."""
        if self._shown.status.state is not LinkState.DELETED:
            self.leave()
            self._sink.status(LinkStatus(state=LinkState.DELETED, text=text))

    def leave(self) -> None:
        """Closes the connection; the guest's terminal stays."""
        self._renews = False
        if self._typing.guest is not None:
            self._typing.guest.leave()
            self._typing.guest = None

    def end(self) -> None:
        """Ends the program."""
        if self._typing.guest is not None:
            self._typing.guest.end()
            self._typing.guest = None


class Typing:
    """Writes to the guest's terminal. Keeps input that comes while there is no terminal, or during
    a revert, for the guest after it."""

    def __init__(self, going_back: Callable[[], object]) -> None:
        """``going_back`` returns the work that takes the machine back, or None."""
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
        return f"Nothing was pasted: a paste has {TYPED_MAX / 2**20:.1f}M at most; copy a file"
    return ""


SLICE = 4 * 1024
"""Bytes parsed at once, which takes 1 ms; for the worst hostile input about 100 ms (measured)."""


class ReplayStart:
    """Applies `after_string` to a guest's repeated output, piece by piece."""

    def __init__(self) -> None:
        self._held = b""
        self._is_over = False

    def cut(self, data: bytes, said: Said) -> bytes:
        """Returns the part of the next piece that is to be parsed."""
        if self._is_over:
            return data
        data, self._held = self._held + data, b""
        if said is not Said.BEFORE:
            self._is_over = True
        elif b"\x1b" in data[:-1]:
            self._is_over = True
            return after_string(data)
        else:
            self._held, data = data, b""
        return data


class Backlog:
    """Keeps output in its order, until the frame clock has time for it."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[bytes, Said]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, data: bytes, said: Said) -> None:
        self._pieces.append((data, said))

    def take(self) -> tuple[bytes, Said]:
        """Removes the next slice; returns it, and how it was said."""
        data, said = self._pieces.popleft()
        if len(data) > SLICE:
            self._pieces.appendleft((data[SLICE:], said))
        return data[:SLICE], said

    def drop(self) -> int:
        """Drops all output; returns the number of its bytes."""
        dropped = sum(len(data) for data, _ in self._pieces)
        self._pieces.clear()
        return dropped
