"""After a revert that failed the old machine goes on, whatever of that is not possible."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import DiskSpaceError, HistoryError, MachineError
from quicksand.qemu.command import AGENT_HTTP_PORT
from quicksand.snapshots import successor
from quicksand.snapshots.present import Present
from quicksand.snapshots.taking import RunningSandbox


class Failing:
    """Does nothing that it is asked to, and notes what that was."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: object, **__: object) -> None:
            self.asked.append(name)
            raise self.error

        return fail


@pytest.fixture
def live(tmp_path: Path) -> Any:
    """A sandbox whose history, QEMU and keeper are of no use; `asked` is what they were asked."""
    asked: list[str] = []

    def settle() -> None:
        asked.append("settle")
        raise HistoryError("the head cannot be read")

    def sweep() -> None:
        asked.append("sweep")
        raise PermissionError(13, "Permission denied")

    async def ask(op: str, **_: object) -> None:
        asked.append(op)

    hypervisor = Failing(MachineError("QEMU does not answer\x1b[2J"))
    hypervisor.asked = asked
    run = SimpleNamespace(
        forwards=((8080, 80),), http_port=9090, vnc_port=None, paused=False, qemu_pid=0,
        forwarded=(),
    )  # fmt: skip
    return SimpleNamespace(
        run=run,
        hypervisor=hypervisor,
        keeper=SimpleNamespace(ask=ask),
        history=SimpleNamespace(sweep=sweep),
        settle_head=settle,
        log=tmp_path / "engine.log",
        asked=asked,
        is_unfinished=False,
    )


async def test_each_step_is_tried_and_what_was_not_possible_is_noted(live: Any) -> None:
    new: Any = Failing(MachineError("the keeper is gone"))
    shape: Any = None
    present = Present(live, shape, shape, keep=False)
    capture: Any = Failing(DiskSpaceError("no space left for node.json"))
    present._capture = capture
    live.resume = partial(RunningSandbox.resume, live)
    await successor._stay(live, new, present)
    # QEMU does not answer: whoever starts the sandbox finds out whether the present goes on.
    assert (new.asked, capture.asked) == (["remove"], [])
    assert live.asked == ["add_forward", "resume", "settle", "sweep", "guard"]
    told = [line.partition("could not ")[2] for line in live.log.read_text().splitlines()]
    assert told == [
        "remove the new machine: MachineError: the keeper is gone",
        f"forward tcp:127.0.0.1:9090-10.0.2.15:{AGENT_HTTP_PORT} again, unless it is still: "
        "MachineError: QEMU does not answer?[2J",
        "resume the guest: MachineError: QEMU does not answer?[2J",
        "write the head of the old machine: HistoryError: the head cannot be read",
        "remove files that nothing needs: PermissionError: [Errno 13] Permission denied",
    ]
