"""Stands in the place of a shell that is not open yet, and takes the keys typed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status
from quicksand_panes.guest_terminal import TYPED_MAX
from quicksand_panes.messages import PaneChanged
from quicksand_vt import Terminal
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from quicksand_tui.model.keymap import Keymap, Prefix
    from quicksand_tui.model.shown_sandboxes import SandboxView

SHOWN_MAX = 400
"""The number of typed characters, the last ones, shown while the shell is awaited."""

NEW = "new:"
"""The first characters of a sandbox's id until it has its own; its name follows."""


class Awaited:
    """Keys typed for shells that are being opened, by the ids of their sandboxes and by the
    terminals chosen there (`LinkStatus.terminal_name`; "" for the one in front). The latest choice
    is the last."""

    def __init__(self) -> None:
        self._typed: dict[str, dict[str, bytes]] = {}

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._typed

    def begin(self, sandbox_id: str, terminal: str = "") -> bool:
        """Notes that a sandbox's terminal is awaited; returns False if one was already."""
        is_new = sandbox_id not in self._typed
        typed = self._typed.setdefault(sandbox_id, {})
        typed[terminal] = typed.pop(terminal, b"")
        return is_new

    def chosen_in(self, sandbox_id: str) -> list[str]:
        """Returns the terminals that were chosen meanwhile, the latest at the end."""
        return list(self._typed.get(sandbox_id, ()))

    def add(self, sandbox_id: str, data: bytes) -> None:
        typed = self._typed[sandbox_id]
        chosen = next(reversed(typed))
        typed[chosen] = (typed[chosen] + data)[:TYPED_MAX]

    def typed_for(self, sandbox_id: str) -> bytes:
        """Returns the keys typed for the terminal that was chosen last."""
        return next(reversed(self._typed.get(sandbox_id, {"": b""}).values()))

    def end(self, sandbox_id: str) -> dict[str, bytes]:
        """Ends the wait; returns the keys typed meanwhile, by the terminal that was chosen."""
        return self._typed.pop(sandbox_id, {})

    def adopt(self, sandbox: SandboxView) -> bool:
        """Follows a new sandbox to the id that it has by now; returns False if it is not new."""
        if (typed := self._typed.pop(f"{NEW}{sandbox.name}", None)) is None:
            return False
        self._typed[sandbox.id] = typed
        return True


class WaitingShell(Static, can_focus=True):
    """Takes keys that are meant for a shell that is being opened, so that none is read as a
    command. As in a pane, keys after the prefix are commands."""

    prefixed: reactive[bool] = reactive(False, init=False)
    """The prefix was typed, so the next key is a command."""

    class Prefixed(Message):
        """A key was typed after the prefix."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(
        self,
        prefix: Callable[[], Prefix],
        waits: Callable[[], bool],
        take: Callable[[bytes], None],
        **options: Any,
    ) -> None:
        """``waits`` returns whether keys are meant for a shell, and ``take`` takes those; other
        keys are commands."""
        super().__init__(markup=False, **options)
        self._prefix = prefix
        self._waits = waits
        self._take = take
        self._usual = Terminal()

    @property
    def takes_raw_keys(self) -> bool:
        """Whether it gets keys as `RawInput` from the app's own driver."""
        return self._waits()

    def type(self, data: bytes) -> None:
        """Takes keys, given as the bytes that a terminal sends."""
        self._take(data)

    def take_key(self, key: events.Key) -> bool:
        """Takes a key; returns False if it is a command."""
        if not self._waits():
            return False
        if self.prefixed:
            self.prefixed = False
            self.post_message(self.Prefixed(key.key))
        elif key.key == self._prefix().key:
            self.prefixed = True
        elif data := self._usual.encode_key(key.key, key.character):
            self._take(data)
        return True

    def on_key(self, event: events.Key) -> None:
        if self.take_key(event):
            event.stop()
            event.prevent_default()

    def on_paste(self, event: events.Paste) -> None:
        """Takes a paste of one line: whether a program runs each of several is not known yet."""
        if self._waits() and len(event.text.splitlines()) <= 1:
            event.stop()
            self._take(event.text.encode("utf-8", "replace"))

    def on_blur(self) -> None:
        self.prefixed = False

    def watch_prefixed(self) -> None:
        self.post_message(PaneChanged())


def no_shell_text(sandbox: SandboxView | None, keymap: Keymap) -> str:
    """Says why there is no shell of a sandbox that has none open."""
    if sandbox is None:
        return ""
    if sandbox.state is Status.RUNNING:
        return f"{keymap.hint('shell')} opens a shell here."
    if sandbox.state is Status.PAUSED:
        return f"It is paused: {keymap.hint('pause')} resumes it."
    return f"It is {sandbox.state.value}: there is nothing to open a shell in."


def typed_text(data: bytes) -> str:
    """Returns what was typed as it is shown while its shell is awaited: Enter as a sign, and other
    keys without a character as shells echo them.

    >>> typed_text(b"ls\\r\\x03")
    'ls⏎\\n^C'
    """
    shown = []
    for character in data.decode("utf-8", "replace")[-SHOWN_MAX:]:
        if character in "\r\n":
            shown.append("⏎\n")
        elif ord(character) < 0x20 or ord(character) == 0x7F:
            shown.append(f"^{chr(ord(character) ^ 0x40)}")
        else:
            shown.append(sanitise(character))
    return "".join(shown)
