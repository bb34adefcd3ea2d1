"""Puts a real terminal right after hostile output that went to it as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quicksand_vt.parser import Parser
from quicksand_vt.setting_resets import (
    ACTIONS,
    ALTERNATE_SCREEN,
    ANSI,
    ANSI_ON_AT_FIRST,
    COLOURS,
    CURSOR_BLINKS,
    ON_AT_FIRST,
    ORIGIN,
    SETTINGS,
    ansi_mode_reset,
    mode_reset,
    tabs_reset,
)

MODES_MAX: Final = 256
KEYBOARD_MAX: Final = 64
TITLES_MAX: Final = 10
"""The depth of xterm's stack of titles."""
COLOURS_MAX: Final = 64
"""Of more colours than this, all are reset."""

_CANCEL: Final = "\x18"
"""Ends the sequence in which the output broke off (ECMA-48, CAN)."""
_SAVE_TITLE, _BRING_TITLE_BACK = "\x1b[22;0t", "\x1b[23;0t"
_LAST_ROW: Final = "\x1b[999;1H"

_BY_KEY: Final = {key: setting for setting in SETTINGS for key in setting.keys}


class _Keyboard:
    """Changes of one screen's keyboard mode (kitty): each screen has its own stack."""

    def __init__(self) -> None:
        self.pushed = 0
        self.changed = False

    def reset(self) -> str:
        return "\x1b[<u" * self.pushed + ("\x1b[=0u" if self.changed else "")


class Restoring:
    """Keeps track of the changes that output makes in a terminal. Never raises; memory is bounded.

    The output itself is not changed, so this is for one terminal from the first byte on."""

    def __init__(self) -> None:
        self._seen = False
        """There was an escape sequence."""
        self._modes: set[int] = set()
        self._ansi_modes: set[int] = set()
        self._touched: set[str] = set()
        """Names of `SETTINGS`."""
        self._tabs = False
        self._main, self._alternate = _Keyboard(), _Keyboard()
        self._titles = 0
        """The number of titles that the program has put on the stack."""
        self._colours: dict[str, None] = {}
        """The operating system commands that reset colours."""
        self._parser = Parser(self)
        self.controls: Mapping[str, Callable[[], object]] = {
            "\r\n": lambda: None,
            "\x0e": lambda: self._touch("\x0e"),
        }

    def feed(self, data: bytes) -> bytes:
        """Reads output, cut anywhere. Returns what the terminal must get before it: mostly
        nothing, once the sequence that keeps the terminal's own title."""
        if b"\x1b" not in data and b"\x0e" not in data and not self._parser.unfinished:
            return b""
        first = not self._seen and b"\x1b" in data
        self._seen = True
        self._parser.feed(data)
        return _SAVE_TITLE.encode() if first else b""

    def undo(self, columns: int = 80) -> bytes:
        """Returns the sequences that put a terminal of so many columns right; b"" if nothing has
        changed it."""
        if not self._seen:
            return b""
        parts = [_CANCEL] if b"\x1b" in self._parser.unfinished else []
        if ANSI in self._modes:
            parts.append("\x1b<")
        shown = sorted(self._modes & ALTERNATE_SCREEN)
        if shown:
            # The other modes belong to the normal screen.
            parts += [self._alternate.reset(), *map(mode_reset, shown)]
        parts.append(self._main.reset())
        others = self._modes - ALTERNATE_SCREEN - {ANSI, CURSOR_BLINKS}
        parts += map(mode_reset, sorted(others))
        parts += map(ansi_mode_reset, sorted(self._ansi_modes))
        if ORIGIN in others:
            parts.append(_LAST_ROW)  # the first row, where the cursor is now, has text
        parts += [setting.resets for setting in SETTINGS if setting.name in self._touched]
        if self._tabs:
            parts.append(tabs_reset(columns))
        parts += [f"\x1b]{reset}\x1b\\" for reset in self._colours]
        parts += [_BRING_TITLE_BACK] * (self._titles + 1)
        return "".join(parts).encode("ascii")

    # The parser's sink

    def write(self, text: str) -> None:
        pass

    def sgr(self, params: str) -> None:
        self._touch("[m")

    def csi(self, params: str, final: str) -> None:
        private, numbers = "", params
        if params and params[0] in "<=>?":
            private, numbers = params[0], params[1:]
        key = f"[{private}{final}"
        self._touch(key)
        handler = _SEQUENCES.get(key)
        if handler is not None:
            words = numbers.split(";")
            handler(self, [int(word[:6]) if word.isdecimal() else 0 for word in words])

    def escape(self, final: str) -> None:
        if final == "c":
            self._reset()
        elif final == "H":
            self._tabs = True
        elif final[0] in "()*+":
            self._touch(final[0])
        else:
            self._touch(final)

    def string(self, kind: str, data: str, end: str, *, complete: bool) -> None:
        number, _, rest = data.partition(";")
        if kind != "]" or not complete or not _is_number(number):
            return
        if len(number) < 3 and int(number) in COLOURS:
            self._change_colours(int(number), rest)
        elif number == "9":
            self._touch("]9;4" if rest.startswith("4;") else "")
        else:
            self._touch(f"]{number}")

    # What changes what

    def _touch(self, key: str) -> None:
        if (setting := _BY_KEY.get(key)) is not None:
            self._touched.add(setting.name)

    def _reset(self) -> None:
        """RIS."""
        self._modes.clear()
        self._ansi_modes.clear()
        self._main, self._alternate = _Keyboard(), _Keyboard()

    def set_modes(self, numbers: list[int], value: bool) -> None:
        """Takes DECSET and DECRST."""
        for number in numbers:
            self._touch(f"[?{number}")
            if value == (number in ON_AT_FIRST):
                self._modes.discard(number)
            elif len(self._modes) < MODES_MAX and number not in ACTIONS:
                self._modes.add(number)

    def bring_modes_back(self, numbers: list[int]) -> None:
        """Takes XTRESTORE, whose effect only the terminal knows."""
        room = MODES_MAX - len(self._modes)
        self._modes.update(number for number in numbers[:room] if number not in ACTIONS)

    def set_ansi_modes(self, numbers: list[int], value: bool) -> None:
        """Takes SM and RM."""
        for number in numbers:
            if value == (number in ANSI_ON_AT_FIRST):
                self._ansi_modes.discard(number)
            elif len(self._ansi_modes) < MODES_MAX:
                self._ansi_modes.add(number)

    @property
    def _keyboard(self) -> _Keyboard:
        return self._alternate if self._modes & ALTERNATE_SCREEN else self._main

    def push_keys(self, numbers: list[int]) -> None:
        """Takes kitty's push of a keyboard mode."""
        self._keyboard.pushed = min(KEYBOARD_MAX, self._keyboard.pushed + 1)

    def pop_keys(self, numbers: list[int]) -> None:
        """Takes kitty's pop of keyboard modes."""
        self._keyboard.pushed = max(0, self._keyboard.pushed - (numbers[0] or 1))

    def set_keys(self, numbers: list[int]) -> None:
        """Takes kitty's change of the keyboard mode."""
        self._keyboard.changed = True

    def change_tabs(self, numbers: list[int]) -> None:
        """Takes TBC."""
        self._tabs = True

    def move_titles(self, numbers: list[int]) -> None:
        """Takes XTWINOPS, of which two push and pop titles."""
        if numbers[0] == 22:
            self._titles = min(TITLES_MAX, self._titles + 1)
        elif numbers[0] == 23:
            self._titles = max(0, self._titles - 1)

    def _change_colours(self, number: int, rest: str) -> None:
        words = rest.split(";")
        if number < 10:
            pairs = zip(words[::2], words[1::2], strict=False)
            indices = [index for index, spec in pairs if spec != "?" and _is_number(index)]
            resets = [f"{100 + number};{index[:3]}" for index in indices]
        else:
            each = enumerate(words[:10], number)
            resets = [str(100 + one) for one, spec in each if spec != "?" and one in COLOURS]
        self._colours.update(dict.fromkeys(resets))
        if len(self._colours) > COLOURS_MAX:
            kept = [reset for reset in self._colours if ";" not in reset]
            self._colours = dict.fromkeys([*kept, "104", "105"])


def _is_number(word: str) -> bool:
    """Whether a word of an operating system command is a number; other scripts have digits, too."""
    return word.isascii() and word.isdecimal()


_SEQUENCES: Final[Mapping[str, Callable[[Restoring, list[int]], None]]] = {
    "[?h": lambda restoring, numbers: restoring.set_modes(numbers, True),
    "[?l": lambda restoring, numbers: restoring.set_modes(numbers, False),
    "[?r": Restoring.bring_modes_back,
    "[h": lambda restoring, numbers: restoring.set_ansi_modes(numbers, True),
    "[l": lambda restoring, numbers: restoring.set_ansi_modes(numbers, False),
    "[>u": Restoring.push_keys,
    "[<u": Restoring.pop_keys,
    "[=u": Restoring.set_keys,
    "[g": Restoring.change_tabs,
    "[?W": Restoring.change_tabs,
    "[t": Restoring.move_titles,
}
