"""Commands of `quicksand-tui` as a shell starts them: whole processes."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE


async def run_process(*words: str) -> tuple[float, bytes]:
    """Returns the seconds of a command until its process has ended, and its output on stdout.
    Raises RuntimeError if it fails."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "quicksand_tui", *words, stdout=PIPE, stderr=PIPE
    )
    output, complaint = await process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()
        raise RuntimeError(f"`{' '.join(words)}` exited with {process.returncode}: {said}")
    return seconds, output
