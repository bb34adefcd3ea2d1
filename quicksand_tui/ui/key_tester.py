"""Shows the names of keys as the app gets them from this terminal."""

from __future__ import annotations

from textual import events
from textual.app import App, ComposeResult
from textual.widgets import RichLog, Static

from quicksand_tui.model.keymap import ALIKE, RESERVED, KeyNameError, key_text, parse_key

INTRO = "Press keys: the name that the config takes is shown. q twice ends it."


class KeyTester(App[None]):
    """Shows a line for each key."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "RichLog { border: none; }"

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def compose(self) -> ComposeResult:
        yield Static(INTRO, markup=False)
        yield RichLog(markup=False)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == self._last == "q":
            self.exit()
        self._last = event.key
        self.query_one(RichLog).write(describe_key(event.key))

    async def action_quit(self) -> None:
        self.exit()


def describe_key(key: str) -> str:
    """Returns the name of a key, and whether the config can use it."""
    name = key_text(key)
    shown = "'\"'" if name == '"' else f'"{name}"'
    if key in ALIKE:
        return f"{shown}  other terminals send {ALIKE[key]} for it"
    try:
        parse_key(name)
    except KeyNameError as error:
        return f"{shown}  {error}"
    if key in RESERVED:
        return f"{shown}  is reserved: {RESERVED[key]}"
    return shown
