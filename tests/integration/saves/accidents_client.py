"""Saves a sandbox again and again until it is killed, or kills QEMU: at the n-th thing that it does
to a file. Run by test_accidents.py: NAME WORKSPACE VICTIM STEPS."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from quicksand import Sandbox

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}


class Countdown:
    """Kills when it is over."""

    def __init__(self, steps: int, victim: int, places: tuple[str, ...]) -> None:
        self.left = steps
        self.victim = victim
        self.places = places

    def look_at(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in EVENTS:
            return
        if any(str(x).startswith(self.places) for x in arguments if isinstance(x, str | Path)):
            self.left -= 1
            if self.left == 0:
                os.kill(self.victim, signal.SIGKILL)


async def main() -> None:
    name, workspace, victim, steps = sys.argv[1:]
    sandbox = Sandbox.attach(name)
    entry = next(e for e in Sandbox.list() if e.name == name)
    assert entry.run is not None
    pid = os.getpid() if victim == "client" else entry.run.qemu_pid
    own = str(sandbox._parts.life.registry.paths.sandboxes / entry.id)
    countdown = Countdown(int(steps), pid, (workspace, own))
    sys.addaudithook(countdown.look_at)
    await sandbox.save("env", workspace=workspace, note=steps)
    print("saved", flush=True)


asyncio.run(main())
