"""Sandboxes that end while a revert in place is under way: nothing is lost that was not given up,
and no guest runs on memory that is half another one's."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import QuicksandError
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.qemu import stopping
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots.reverting import Form

from tests.conftest import wait_for
from tests.integration.guests import say

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template", "patient")]

TRIES = 5


async def begin(vm: Sandbox) -> None:
    """A checkpoint to which the next revert happens in place, and something else since."""
    await say(vm, "echo one > /root/f; sync")
    await vm.checkpoint("one")
    await vm.revert("one", keep_now=False)
    await say(vm, "echo two > /root/f; sync")


async def test_a_qemu_that_ends_before_the_present_is_given_up_starts_with_its_disk(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(vm)
    runtime, ask = runtime_dir(places, vm.id), KeeperLink.ask
    entry = next(entry for entry in Sandbox.list() if entry.id == vm.id)
    assert entry.run is not None
    qemu = entry.run.qemu_pid

    async def too_late(self: KeeperLink, op: str, **values: Any) -> Any:
        if op == "turn":
            os.kill(qemu, signal.SIGKILL)
            await asyncio.to_thread(wait_for, lambda: not runtime.root.exists(), what="its end")
        return await ask(self, op, **values)

    with monkeypatch.context() as patch:
        patch.setattr(KeeperLink, "ask", too_late)
        with pytest.raises(QuicksandError):
            await vm.revert("one")
    await asyncio.to_thread(wait_for, lambda: not vm.is_running, what="the end of its keeper")
    await vm.stop()
    await vm.start()
    assert await say(vm, "cat /root/f") == "two"
    await vm.checkpoint("after")
    await vm.revert("one")
    assert await say(vm, "cat /root/f") == "one"


async def test_stopping_resumes_no_paused_guest_that_somebody_reverts(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(vm)
    await vm.pause()
    said: list[str] = []
    execute = Monitor.execute

    async def noted(self: Monitor, command: str, **arguments: Any) -> Any:
        said.append(command)
        return await execute(self, command, **arguments)

    monkeypatch.setattr(Monitor, "execute", noted)
    monkeypatch.setattr(stopping, "HISTORY_WAIT_S", 0.1)
    lock = try_lock(sandbox_dir(places, vm.id).history_lock)
    assert lock is not None
    try:
        await vm.stop()
    finally:
        os.close(lock)
    assert "cont" not in said
    assert not vm.is_running


async def test_qemu_s_messages_are_not_full_of_what_it_forgot(vm: Sandbox, places: Paths) -> None:
    for _ in range(TRIES):
        await begin(vm)
        if (await vm.revert("one")).revert_form == Form.WARM:
            break
        await vm.delete_checkpoint("one")
    else:
        pytest.fail("a processor was in the midst of something at each checkpoint")
    place = sandbox_dir(places, vm.id)
    assert "memset" not in place.qemu_log.read_text()
