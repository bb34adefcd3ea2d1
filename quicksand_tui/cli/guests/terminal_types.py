"""Terminal types (TERM) in guests: one rule for all that show a guest's terminal in ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.errors import AgentRefusedError
from quicksand.base.regular import read_at_most

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

KNOWN = frozenset({"linux", "screen-256color", "tmux-256color", "xterm", "xterm-256color"})
"""Types that every Debian knows, so that the guest need not be asked."""

USUAL = "xterm-256color"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")

DIRECTORIES = ("/usr/share/terminfo", "/lib/terminfo", "/etc/terminfo")
BROUGHT = "/etc/terminfo"
"""The place of an entry of this host's: ncurses looks there for types that the system's own entries
lack (terminfo(5))."""

MAGIC = (b"\x1a\x01", b"\x1e\x02")
"""The beginnings of a compiled entry (term(5))."""
SIZE_MAX = 32 * 1024
"""The most bytes of an entry (term(5))."""


async def choose_term(sandbox: Sandbox, wanted: str) -> str:
    """Returns the type to tell a guest for a terminal of the type ``wanted``: that type if the
    guest knows it, or can be given this host's entry of it; else a common one."""
    if wanted in KNOWN:
        return wanted
    if not _NAME.fullmatch(wanted):
        return USUAL
    place = f"{wanted[0]}/{wanted}"
    for directory in DIRECTORIES:
        if await sandbox.files.exists(f"{directory}/{place}"):
            return wanted
    if (entry := _find_entry(wanted, os.environ)) is None:
        return USUAL
    try:
        await sandbox.files.write(f"{BROUGHT}/{place}", entry, mode=0o644, parents=True)
    except AgentRefusedError:  # its disk is full, or not to be written
        return USUAL
    return wanted


def _find_entry(name: str, environ: Mapping[str, str]) -> bytes | None:
    """Returns this host's compiled entry of a type; None if it has none."""
    for directory in _directories(environ):
        for letter in (name[0], f"{ord(name[0]):x}"):  # as ncurses has it here, and on macOS
            try:
                entry = read_at_most(directory / letter / name, SIZE_MAX + 1)
            except OSError:
                continue
            if len(entry) <= SIZE_MAX and entry.startswith(MAGIC):
                return entry
    return None


def _directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the directories where ncurses looks: TERMINFO names those of terminals themselves."""
    home = environ.get("HOME", "")
    named = (
        environ.get("TERMINFO", ""),
        f"{home}/.terminfo",
        *environ.get("TERMINFO_DIRS", "").split(":"),
        *DIRECTORIES,
    )
    yield from (Path(one) for one in named if one.startswith("/"))
