"""`quicksand-tui record`: a sandbox's screen as an animated picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, say, told
from quicksand_tui.cli.runner import opened, run_async
from quicksand_tui.cli.screen.display import stopped_hint
from quicksand_tui.door.recordings import recorded_text
from quicksand_tui.model.amounts import age_text
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


@command_of("record")
def record_command(
    name: str, file: str, seconds: float, fps: float, scale: float, replace: bool
) -> int:
    """Record a sandbox's screen into an animated GIF, PNG or WebP.

    The recording ends after --seconds, with Ctrl-C or SIGTERM, or with the sandbox, and FILE is
    complete in each case. A revert does not end it. If a script starts it with &, end it by `kill
    PID`, because such a process does not get Ctrl-C.

    GIF has 256 colours; PNG and WebP have all. Nothing is written while the screen does not change.
    If the guest changes the screen's size, the picture is fitted into the first size.
    """

    async def main(signals: Signals) -> int:
        with opened(name, hint=stopped_hint(name), with_display=True) as sandbox:
            recording = sandbox.record(
                Path(file), seconds=seconds, fps=fps, scale=scale, replace=replace
            )
            async with recording as running:
                with signals.all_to(running.stop):
                    most = age_text(seconds, wide=True)
                    say(f"recording {clean(sandbox.name)} for {most} at most; Ctrl-C ends it")
                    done = await running.wait()
        say(recorded_text(done, told(done.path)))
        return Exit.OK

    return run_async(main)
