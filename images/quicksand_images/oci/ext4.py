"""Commands of debugfs, as lines of a file."""

from __future__ import annotations

from quicksand.base.errors import HostError

LINE_MAX = 1000
"""The most bytes of a command. debugfs reads its lines into BUFSIZ bytes (8192 with glibc, 1024
with musl; one less is left, debugfs/debugfs.c, source_file), and takes the rest of a longer one for
another command."""


def quoted(text: str) -> str:
    """Quote an argument of debugfs (libss: a quotation mark is doubled). Raises HostError for one
    that would begin another command: debugfs has commands that read and write host files."""
    if "\n" in text or "\0" in text:
        raise HostError(f"{text[:200]!r} cannot be given to debugfs")
    return '"' + text.replace('"', '""') + '"'


def command_line(command: str) -> bytes:
    """Return a command of debugfs as a line of a file. Raises HostError for one that debugfs would
    read as several."""
    line = command.encode("utf-8", "surrogateescape")
    if len(line) >= LINE_MAX or b"\n" in line:
        raise HostError(f"debugfs cannot be given {command[:200]!r}… ({len(line)} bytes)")
    return line + b"\n"
