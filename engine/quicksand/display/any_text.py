"""Typing characters that a US keyboard does not have, with xdotool in the guest.

xdotool gives a spare key the character and presses it (XTEST). A text with one such character is
typed by xdotool as a whole: the X server has two ways in, and keeps no order between them.
"""

from __future__ import annotations

import shlex

from quicksand.agent.session import Session
from quicksand.display.keys import STROKES
from quicksand.errors import ConfigError, DisplayError
from quicksand.execution import command_params, run, spawn

TOOL = "xdotool"
DELAY_MS = 12
"""Between two characters. A program that gets a new character must fetch the changed keyboard map
before the next change, else it sees the later character."""

START_S = 30.0
"""Seconds for the tool's start, in an emulated guest that is busy."""

CHARACTER_S = 0.5
"""Seconds for one character, at most."""

NO_TOOL, NO_SCREEN = 97, 98

SCRIPT = f"""\
command -v {TOOL} >/dev/null || exit {NO_TOOL}
: "${{DISPLAY:=:0}}"
export DISPLAY
for cookie in "${{XAUTHORITY:-}}" /var/run/lightdm/root/:0 /home/*/.Xauthority; do
    if [ -n "$cookie" ]; then export XAUTHORITY="$cookie"; fi
    if {TOOL} getmouselocation >/dev/null 2>&1; then
        exec {TOOL} type --clearmodifiers --delay {DELAY_MS} --file -
    fi
done
exit {NO_SCREEN}
"""
"""Finds the X server of the desktop, as root, and types what comes on stdin."""


def needs_tool(text: str) -> bool:
    """Whether a US keyboard lacks a character of ``text``."""
    return any(character not in STROKES for character in text)


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
        is_lone = "\ud800" <= character <= "\udfff"
        if character not in STROKES and (is_lone or not character.isprintable()):
            raise ConfigError(
                f"the character {character!r} cannot be typed",
                hint='keys that are no characters are pressed: press_key("esc")',
            )


async def type_any(session: Session, text: str) -> None:
    """Type ``text`` by xdotool in the guest. Raises DisplayError if it has none, or no X server,
    or does not end; AgentError."""
    timeout = START_S + CHARACTER_S * len(text)
    params = command_params(SCRIPT, timeout=timeout, cwd=None, shell="/bin/sh", user=None, env=None)
    command = await spawn(session, params, stdin=True)
    result = await run(command, stdin=text.encode(), on_stdout=None, on_stderr=None)
    if result.exit_code == 0 and not result.timed_out:
        return
    missing = "".join(dict.fromkeys(c for c in text if c not in STROKES))[:20]
    if result.exit_code == NO_TOOL:
        raise DisplayError(
            f"a US keyboard does not have {missing!r}, and the guest has no {TOOL} to type it",
            hint=f"install {TOOL} in the guest; the image debian-desktop has it",
        )
    if result.exit_code == NO_SCREEN:
        raise DisplayError(
            f"a US keyboard does not have {missing!r}, and {TOOL} finds no X server to type it",
            hint="wait until the guest's desktop is there",
        )
    why = "did not end" if result.timed_out else result.stderr.strip()[:500]
    raise DisplayError(f"{TOOL} in the guest did not type the text: {shlex.quote(why)}")
