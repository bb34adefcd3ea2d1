"""Commands in guests, on the engine's loop."""

from __future__ import annotations

import asyncio
import time

from quicksand_tui.failures import Failure, OperationError
from quicksand_tui.run_many import CommandOutput
from quicksand_tui.text import sanitise_lines

OUTPUT_MAX = 64 * 1024
"""Bytes of a command's output that are kept; more is read and dropped, so that it goes on."""
LINES_MAX = 5000
ONE_STREAM = "exec 2>&1; "
"""Only within the guest is known in which order both streams were written."""
PATIENCE_S = 15.0
"""For a guest that does not answer, beyond the command's own time."""


async def run_command(sandbox_id: str, command: str, *, timeout_s: float) -> CommandOutput:
    """Run a shell's command in a running sandbox, as root, to its end. Raises QuicksandError when
    the guest cannot be asked, OperationError when it does not answer. Cancelling ends it."""
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.attach(sandbox_id)
    kept, is_cut = bytearray(), False
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s + PATIENCE_S):
            async with await sandbox.spawn(ONE_STREAM + command, timeout=timeout_s) as running:
                async for _, data in running.output():
                    room = OUTPUT_MAX - len(kept)
                    kept += data[:room]
                    is_cut = is_cut or len(data) > room
    except TimeoutError:
        raise OperationError(
            Failure(title="The command did not run", message="the guest does not answer")
        ) from None
    finally:
        sandbox.close()
    status = running.status
    assert status is not None
    lines = sanitise_lines(kept.decode("utf-8", "replace"))
    if lines and not lines[-1]:
        lines.pop()
    return CommandOutput(
        exit_code=status.exit_code,
        seconds=time.monotonic() - started,
        lines=tuple(lines[:LINES_MAX]),
        is_cut=is_cut or len(lines) > LINES_MAX,
        timed_out=status.timed_out,
    )
