"""Typing characters that a US keyboard does not have, or on another layout, with xdotool in the
guest.

Spare keys get the characters (see `spare_keys`), and xdotool presses them (XTEST). A text with one
such character is typed by xdotool as a whole: the X server has two input paths, and keeps no order
between them.
"""

from __future__ import annotations

import asyncio
import shlex

from quicksand.base.errors import ConfigError, DisplayError
from quicksand.base.remedies import Remedy, Words
from quicksand.display.in_guest import NO_SCREEN, NO_TOOL, ask, find_server, need_tools
from quicksand.display.keys import STROKES
from quicksand.display.spare_keys import (
    SpareKeys,
    characters_on,
    missing,
    parts,
    xmodmap_lines,
)
from quicksand.guest.agent.session import Session
from quicksand.guest.execution import ExecuteResult

TOOLS = "xdotool xmodmap xprop"
DELAY_MS = 1
"""Between two characters."""

AGAIN_S = 2.0
"""Seconds to wait before a key gets another character: the last text may not be read yet."""

START_S = 30.0
"""Seconds for the tools' start, in an emulated guest that is busy."""

CHARACTER_S = 0.5
"""Seconds for one character, at most."""

PIECE = 200
"""Characters that are typed in one turn, some seconds; a longer text takes several."""

JOINERS = "\u200c\u200d"
"""Invisible characters that join others to emoji and to words of some scripts."""

FIND = need_tools(TOOLS) + find_server("xdotool getmouselocation >/dev/null")

PROPERTY = "_QUICKSAND_KEYS"
"""The property of the X server's root window that records the characters given to our keys. It ends
with the server, as these do."""

LOOK = FIND + f"xmodmap -pke && exec xprop -root -notype {PROPERTY}\n"
TYPE = (
    FIND
    + f"""\
if [ -n "$NEW_KEYS" ]; then printf %s "$NEW_KEYS" | xmodmap - || exit; fi
xprop -root -f {PROPERTY} 8s -set {PROPERTY} "$ALL_KEYS" &&
    exec xdotool type --clearmodifiers --delay {DELAY_MS} --file -
"""
)
"""Types the text on stdin."""


def needs_tool(text: str) -> bool:
    """Whether a US keyboard lacks a character of ``text``."""
    return any(character not in STROKES for character in text)


def can_be_typed(character: str) -> bool:
    """Whether there is a key for a character, or can be one."""
    return character in STROKES or character in JOINERS or character.isprintable()


def check_text(text: str, limit: int) -> None:
    """Raise ConfigError for a text that cannot be typed: longer than ``limit``, or with control
    characters other than line feed, tab and backspace."""
    if not isinstance(text, str):
        raise ConfigError(f"text must be a string, not {text!r}")
    if len(text) > limit:
        raise ConfigError(
            f"a text of {len(text)} characters is too long to be typed; {limit} is the most",
            hint="write it to a file in the guest",
        )
    for character in text:
        if not can_be_typed(character):
            raise ConfigError(
                f"the character {character!r} cannot be typed",
                hint=Words(
                    'keys that are no characters are pressed: press_key("esc"), or ',
                    Remedy("key", key="esc"),
                    python='keys that are no characters are pressed: press_key("esc")',
                ),
            )


async def type_any(session: Session, text: str) -> None:
    """Type ``text`` by xdotool in the guest, whatever its keyboard's layout. Raises DisplayError if
    the guest lacks a tool, an X server or spare keys, or does not finish; AgentError."""
    said = await _execute(session, LOOK, text, stdin="")
    keys = SpareKeys.parse(said.stdout, said.stdout.rpartition(PROPERTY)[2])
    known = characters_on(said.stdout, keys.codes)
    if not keys.count and missing(text, known):
        raise DisplayError("no key of the guest's keyboard is free for other characters")
    for part in parts(text, keys.count, known):
        new, again = keys.give(missing(part, known))
        if again:
            await asyncio.sleep(AGAIN_S)
        env = {"NEW_KEYS": xmodmap_lines(new), "ALL_KEYS": keys.record}
        await _execute(session, TYPE, part, stdin=part, env=env)


async def _execute(
    session: Session, script: str, text: str, *, stdin: str, env: dict[str, str] | None = None
) -> ExecuteResult:
    """Run a script for a text that is typed. Raises as `type_any`."""
    timeout = START_S + CHARACTER_S * len(text)
    result = await ask(session, script, timeout=timeout, stdin=stdin, env=env)
    if result.exit_code == 0 and not result.timed_out:
        return result
    lacking = "".join(missing(text))[:20]
    why = f"a US keyboard does not have {lacking!r}" if lacking else "the layout is not the US one"
    if result.exit_code == NO_TOOL:
        raise DisplayError(
            f"{why}, and the guest does not have what types it: " + TOOLS.replace(" ", ", "),
            hint="install these in the guest; the image debian-desktop has them",
        )
    if result.exit_code == NO_SCREEN:
        raise DisplayError(
            f"{why}, and xdotool finds no X server to type it",
            hint="wait until the guest's desktop is there",
        )
    said = "did not end" if result.timed_out else result.stderr.strip()[:500]
    raise DisplayError(f"xdotool in the guest did not type the text: {shlex.quote(said)}")
