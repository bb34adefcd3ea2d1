"""What both directions of `cp` share."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from quicksand.errors import QuicksandError

from quicksand_tui.cli.output import complain, show_size

CONTENTS = "/."
"""Behind a source: what is in the directory, not the directory."""


class TransferError(QuicksandError):
    """Something cannot be copied; the message names it."""


class Tally:
    """How much has been copied, and what has not."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.failed = 0

    def describe(self, seconds: float) -> str:
        rate = show_size(self.bytes / seconds) if seconds else "0 B"
        return f"copied {self.files} files, {show_size(self.bytes)}, {rate}/s"

    def fail(self, path: str, reason: object) -> None:
        """Tell of one that was left out; the others go on."""
        self.failed += 1
        complain(reason, about="" if path in str(reason) else path)

    async def count(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """``chunks``, counted."""
        async for chunk in chunks:
            self.bytes += len(chunk)
            yield chunk


def split_contents(path: str) -> tuple[str, bool]:
    """A source without what marks it as "the contents of", and whether it was marked."""
    if path in (".", "/"):
        return path, True
    if path.endswith(CONTENTS):
        return path[: -len(CONTENTS)] or "/", True
    return path.rstrip("/") or "/", False
