"""The settings that a program can leave changed in a terminal, and the sequences that reset them.

The emulator's resets and the restoring of a real terminal (`restoring.py`) follow the same tables,
and a test changes each setting, resets it and compares. Numbers and names are those of xterm's
ctlseqs; 22 and 9;4 are the pointer's shape (xterm, kitty) and a progress bar (ConEmu, Windows
Terminal), ``CSI u`` is kitty's keyboard protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ON_AT_FIRST: Final = frozenset({7, 8, 25, 1007, 1035, 1070})
"""The private modes (DECSET) that are set by default: wrapping, keys that repeat, the cursor, the
wheel on the alternate screen, Num Lock, colours of a sixel picture's own. All others are off."""

ANSI_ON_AT_FIRST: Final = frozenset({12})
"""The modes of SM that are set by default: no local echo (SRM)."""

ALTERNATE_SCREEN: Final = frozenset({47, 1047, 1049})

ACTIONS: Final = frozenset({1048})
"""Private "modes" that act instead of setting something: one saves the cursor."""

ANSI: Final = 2
"""DECANM, whose reset has the terminal understand a VT52's sequences only."""

ORIGIN: Final = 6
"""DECOM, whose change moves the cursor."""

CURSOR_BLINKS: Final = 12
"""A mode whose default is the user's; the cursor's shape brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that is not a mode."""

    name: str

    keys: frozenset[str]
    """The sequences that change it, as the parser tells them: ``[`` with the private prefix,
    intermediate characters and final of a control sequence; those of an escape sequence; ``]`` with
    the number of an operating system command."""

    sets: str
    """A sequence that changes it, for tests."""

    resets: str
    """Puts it right. The cursor stays where it is."""


SETTINGS: Final = (
    Setting(
        name="margins",
        keys=frozenset({"[r", "[s"}),
        sets="\x1b[3;7r",
        resets="\x1b7\x1b[r\x1b8",
    ),
    Setting(
        name="keypad",
        keys=frozenset({"=", ">"}),
        sets="\x1b=",
        resets="\x1b>",
    ),
    Setting(
        name="character sets",
        keys=frozenset({"(", ")", "*", "+", "n", "o", "\x0e"}),
        sets="\x1b(0\x1b)0\x0e",
        resets="\x1b(B\x1b)B\x1b*B\x1b+B\x0f",
    ),
    Setting(
        name="encoding",
        keys=frozenset({"%@", "%G"}),
        sets="\x1b%@",
        resets="\x1b%G",
    ),
    Setting(
        name="style",
        keys=frozenset({"[m"}),
        sets="\x1b[1;4;31;42m",
        resets="\x1b[0m",
    ),
    Setting(
        name="protection",
        keys=frozenset({'["q', "V"}),
        sets='\x1b[1"q',
        resets='\x1b[0"q',
    ),
    Setting(
        name="link",
        keys=frozenset({"]8"}),
        sets="\x1b]8;;https://example.org\x1b\\",
        resets="\x1b]8;;\x1b\\",
    ),
    Setting(
        name="cursor shape",
        keys=frozenset({"[ q", f"[?{CURSOR_BLINKS}"}),
        sets="\x1b[6 q",
        resets="\x1b[0 q",
    ),
    Setting(
        name="keys with modifiers",
        keys=frozenset({"[>m", "[>n"}),
        sets="\x1b[>4;2m",
        resets="\x1b[>4m",
    ),
    Setting(
        name="encoding of keys with modifiers",
        keys=frozenset({"[>f"}),
        sets="\x1b[>4;1f",
        resets="\x1b[>4f",
    ),
    Setting(
        name="pointer shape",
        keys=frozenset({"]22"}),
        sets="\x1b]22;wait\x1b\\",
        resets="\x1b]22;\x1b\\",
    ),
    Setting(
        name="progress",
        keys=frozenset({"]9;4"}),
        sets="\x1b]9;4;1;50\x1b\\",
        resets="\x1b]9;4;0;0\x1b\\",
    ),
    Setting(
        name="directory",
        keys=frozenset({"]7"}),
        sets="\x1b]7;file:///tmp\x1b\\",
        resets="\x1b]7;\x1b\\",
    ),
    Setting(
        name="lamps",
        keys=frozenset({"[q"}),
        sets="\x1b[1q",
        resets="\x1b[0q",
    ),
    Setting(
        name="printer",
        keys=frozenset({"[i"}),
        sets="\x1b[5i",
        resets="\x1b[4i",
    ),
    Setting(
        name="status line",
        keys=frozenset({"[$}", "[$~"}),
        sets="\x1b[2$~\x1b[1$}",
        resets="\x1b[0$}\x1b[0$~",
    ),
)
"""Tab stops, titles and colours, which need more than a sequence, are not among them."""

COLOURS: Final = (4, 5, *range(10, 20))
"""The operating system commands that change colours: of the palette, special ones, and single ones
(foreground, background, cursor, …). The command with 100 more resets the same."""


def mode_reset(number: int) -> str:
    """Returns the sequence that puts a private mode right."""
    return f"\x1b[?{number}{'h' if number in ON_AT_FIRST else 'l'}"


def ansi_mode_reset(number: int) -> str:
    """Returns the sequence that puts a mode of SM right."""
    return f"\x1b[{number}{'h' if number in ANSI_ON_AT_FIRST else 'l'}"


def tabs_reset(columns: int) -> str:
    """Returns the sequences that set a tab stop every eight columns and no others; few terminals
    know the one that does this alone (DECST8C)."""
    stops = "".join(f"\x1b[{column}G\x1bH" for column in range(9, columns + 1, 8))
    return f"\x1b7\x1b[3g{stops}\x1b8"
