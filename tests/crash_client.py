"""A client of a sandbox that meets with an accident: run as a program by tests/crash.py.

It reads one order a line from stdin (see `Order`), works on the sandbox and answers with a line.
An accident is a kill -9 of itself, of QEMU, of a successor QEMU or of the keeper: after some
seconds, or at the n-th thing that it does (what it asks of QEMU, each file that it opens, renames,
removes). "keepers" are all there are. "pause" counts seconds from the instant at which the VM is
stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from quicksand import Sandbox
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.base.processes import ProcessKind, list_processes
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.qmp import Monitor
from quicksand.qemu.translations import QtestTranslations
from quicksand.records.layout import sandbox_dir
from quicksand.snapshots import image, in_place, layers, memory_copying, reverting
from quicksand.snapshots.guest_ram import GuestRam
from quicksand.snapshots.stepwise import StepWriter

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}


@dataclass
class Order:
    """What to do, and what is to happen meanwhile."""

    what: str
    name: str
    """The sandbox's."""
    tag: str = ""
    when: str = ""
    """"step", "time" or "pause"; "" for no accident."""
    at: float = 0
    targets: list[str] = field(default_factory=list)
    in_new_qemu: bool = False
    """Whether a revert is to need another QEMU."""


class Accident:
    """Waits for its moment; then it happens, as soon as all who are to die are there."""

    def __init__(self, order: Order, sandbox: Sandbox) -> None:
        self.order = order
        self.steps = 0
        self.struck = False
        entry = next(e for e in Sandbox.list() if e.id == sandbox.id)
        assert entry.run is not None
        self._pids = {"qemu": entry.run.qemu_pid, "keeper": entry.run.keeper_pid}
        self._root = str(sandbox_dir(paths(), sandbox.id).root)
        self._places = (str(paths().data), str(paths().runtime))
        self._busy = threading.Lock()
        self._over = False

    def end(self) -> None:
        """What has not happened by now will not."""
        with self._busy:
            self._over = True

    def step(self) -> None:
        self.steps += 1
        if self.order.when == "step" and self.steps >= self.order.at:
            self.strike()

    def look_at(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: what is done to files of sandboxes counts."""
        if event in FILE_EVENTS and any(
            isinstance(word, str | Path) and str(word).startswith(self._places)
            for word in arguments
        ):
            self.step()

    def begin(self, when: str) -> None:
        if self.order.when == when:
            timer = threading.Timer(self.order.at, self.strike_when_possible)
            timer.daemon = True
            timer.start()

    def strike_when_possible(self) -> None:
        while not self.strike():
            time.sleep(0.001)

    def strike(self) -> bool:
        """Kill the targets; False if one of them is not there yet."""
        if self._over or self.struck or not self._busy.acquire(blocking=False):
            return True
        try:
            if self._over:
                return True
            targets = list(self.order.targets)
            if "successor" in targets:
                found = self._find_successor()
                if found is None:
                    return False
                self._pids["successor"] = found
            self.struck = True
            if "keepers" in targets:
                self._kill_keepers()
            for target in targets:
                if target not in ("client", "keepers"):
                    os.kill(self._pids[target], signal.SIGKILL)
            if "client" in targets:
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        except ProcessLookupError:
            return True
        finally:
            self._busy.release()

    def _kill_keepers(self) -> None:
        """Those of clones, too, whose owner this client is."""
        for process in list_processes():
            if process.kind is ProcessKind.KEEPER and process.of.startswith(self._places[0]):
                process.send(signal.SIGKILL)

    def _find_successor(self) -> int | None:
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                words = (directory / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            ours = "qemu-system" in words[0] and any(self._root in word for word in words)
            if ours and int(directory.name) != self._pids["qemu"]:
                return int(directory.name)
        return None


current: Accident | None = None


def watch_files(event: str, arguments: tuple[Any, ...]) -> None:
    if current is not None:
        current.look_at(event, arguments)


async def work(order: Order) -> dict[str, Any]:
    """Do what is ordered; what went wrong is part of the answer."""
    global current  # noqa: PLW0603 - an audit hook cannot be taken back
    sandbox = Sandbox.attach(order.name)
    current = Accident(order, sandbox)
    started = time.monotonic()
    error, wrong = "", ""
    try:
        current.begin("time")
        await do(order, sandbox)
    except QuicksandError as caught:
        error = f"{type(caught).__name__}: {caught}"
    except Exception as caught:  # noqa: BLE001 - that is what is looked for
        wrong = "".join(traceback.format_exception(caught))
    finally:
        accident, current = current, None
        accident.end()
        sandbox.close()
    return {
        "error": error,
        "wrong": wrong,
        "steps": accident.steps,
        "seconds": time.monotonic() - started,
        "struck": accident.struck,
    }


def needs_new_qemu(needs: bool) -> Callable[..., Awaitable[str]]:
    original = in_place.why_not

    async def why_not(*arguments: Any) -> str:
        return "it was to be another one" if needs else await original(*arguments)

    return why_not


async def do(order: Order, sandbox: Sandbox) -> None:
    match order.what:
        case "checkpoint":
            await sandbox.checkpoint(order.tag)
        case "revert":
            with mock.patch.object(reverting, "why_not", needs_new_qemu(order.in_new_qemu)):
                await sandbox.revert(order.tag)
        case "delete":
            await sandbox.delete_checkpoint(order.tag)
        case "clone":
            for clone in await sandbox.clone(1):
                clone.detach()
                clone.close()


def tell_of_pauses() -> None:
    """Have an accident know when the VM is stopped, and count what is asked of QEMU and keeper."""
    execute, ask = Monitor.execute, KeeperLink.ask

    async def counted(self: Monitor, command: str, **arguments: Any) -> Any:
        accident = current
        if accident is not None:
            accident.step()
        result = await execute(self, command, **arguments)
        if accident is not None:
            if command == "stop":
                accident.begin("pause")
            accident.step()
        return result

    async def counted_ask(self: KeeperLink, op: str, **values: Any) -> dict[str, Any]:
        accident = current
        if accident is not None:
            accident.step()
        result = await ask(self, op, **values)
        if accident is not None:
            accident.step()
        return result

    Monitor.execute = counted  # type: ignore[method-assign]
    KeeperLink.ask = counted_ask  # type: ignore[method-assign]


def stream_more() -> None:
    """Copy in rounds, write images and merge layers with as little as the guest here uses; what is
    written counts, to a file or to the guest's memory."""
    memory_copying.ROUND_MIN, memory_copying.SLACK = 32 * 4096, 256 * 4096
    image.OVER_MIN = 1024 * 1024
    layers.AT_LEAST = 3
    write = StepWriter.write

    def counted(self: StepWriter, *arguments: Any, **named: Any) -> None:
        if current is not None:
            current.step()
        write(self, *arguments, **named)

    StepWriter.write = counted  # type: ignore[method-assign]
    move = GuestRam._move

    def counted_move(self: GuestRam, *arguments: Any, **named: Any) -> None:
        if current is not None:
            current.step()
        move(self, *arguments, **named)

    GuestRam._move = counted_move  # type: ignore[method-assign]
    say = QtestTranslations._say

    async def counted_say(self: QtestTranslations, *arguments: Any, **named: Any) -> None:
        if current is not None:
            current.step()
        await say(self, *arguments, **named)
        if current is not None:
            current.step()

    QtestTranslations._say = counted_say  # type: ignore[method-assign]


def main() -> None:
    tell_of_pauses()
    stream_more()
    sys.addaudithook(watch_files)
    for line in sys.stdin:
        answer = asyncio.run(work(Order(**json.loads(line))))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
