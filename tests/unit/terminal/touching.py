"""Sequences that change a terminal, one for each setting that a program can leave changed."""

from __future__ import annotations

from quicksand_vt.modes import ANSI_FLAGS, ENCODINGS, PRIVATE_FLAGS, TRACKING
from quicksand_vt.setting_resets import (
    ALTERNATE_SCREEN,
    ANSI_ON_AT_FIRST,
    CURSOR_BLINKS,
    ON_AT_FIRST,
    SETTINGS,
)

MODES = {
    **{f"mode {n}": f"\x1b[?{n}{'l' if n in ON_AT_FIRST else 'h'}" for n in PRIVATE_FLAGS},
    f"mode {CURSOR_BLINKS}": f"\x1b[?{CURSOR_BLINKS}l",
    **{f"mode {n}": f"\x1b[?{n}h" for n in (*TRACKING, *ENCODINGS, *ALTERNATE_SCREEN)},
    **{
        f"ANSI mode {n}": f"\x1b[{n}{'l' if n in ANSI_ON_AT_FIRST else 'h'}"
        for n in (*ANSI_FLAGS, 12)
    },
}
OTHERS = {
    "tab stops": "\x1b[3g\x1b[5G\x1bH",
    "one tab stop": "\x1b[9G\x1b[g",
    "palette": "\x1b]4;1;rgb:12/34/56;200;#aabbcc\x1b\\",
    "foreground": "\x1b]10;#010203\x07",
    "background": "\x1b]11;#010203\x1b\\",
    "cursor colour": "\x1b]12;#010203\x1b\\",
    "three colours": "\x1b]10;#111111;#222222;#333333\x1b\\",
    "title": "\x1b]2;of the guest\x07",
    "title stack": "\x1b[22;0t\x1b]0;one\x07\x1b[22;2t\x1b]2;two\x07",
}
EVERY = {setting.name: setting.sets for setting in SETTINGS} | MODES | OTHERS
