"""A guest's disk that the agent holds still for a save."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentRefusedError, AgentUnreachableError
from quicksand.guest.execution import ExecuteResult

from tests.conftest import PATIENCE_S, Patience, in_time

pytestmark = pytest.mark.vm

FREEZE_S = 10
"""The longest that a freeze lasts."""


@pytest.fixture
async def other(vm: Sandbox) -> AsyncIterator[Sandbox]:
    """A second client of the same sandbox, with a session of its own."""
    sandbox = Sandbox.attach(vm.name)
    await sandbox.ping()
    yield sandbox
    sandbox.close()


async def until(
    condition: Callable[[], Awaitable[bool]], *, what: str, seconds: float = PATIENCE_S
) -> None:
    """Wait until the guest says that ``condition`` is true."""
    patience = Patience(seconds)
    while not await condition():
        assert not patience.is_over(), f"waited {seconds} s for {what}"
        await asyncio.sleep(0.02)


async def while_frozen(vm: Sandbox, attempt: Callable[[], Awaitable[None]]) -> None:
    """Do what must come before a freeze ends by itself: a busy host may take longer for that, but
    not each time."""
    for is_last in (False, False, True):
        started = time.monotonic()
        try:
            await attempt()
        except (AssertionError, AgentRefusedError, pytest.fail.Exception):
            if is_last or time.monotonic() - started < FREEZE_S - 1:
                raise
        else:
            return
        await vm.execute("echo >/root/thawed", timeout=60)


async def states(vm: Sandbox, mark: str) -> list[str]:
    """The states of the guest's processes whose command contains ``mark``."""
    return [process.state for process in await vm.processes() if mark in process.command]


async def start_write(vm: Sandbox, name: str) -> asyncio.Task[ExecuteResult]:
    """A command that writes to the root; returns once the kernel has stopped it."""
    script = f"echo text >/root/{name}; cat /root/{name}"
    write = asyncio.create_task(vm.execute(script, timeout=30))

    async def waits() -> bool:
        return "D" in await states(vm, f"/root/{name}")

    await until(waits, what="the write to wait for the thaw", seconds=FREEZE_S)
    return write


async def refusal(vm: Sandbox, method: str, **params: object) -> str:
    with pytest.raises(AgentRefusedError) as caught:
        await vm.request(method, params)
    return caught.value.code


async def test_a_frozen_root_is_read_but_not_written_until_the_thaw(
    vm: Sandbox, other: Sandbox
) -> None:
    async def attempt() -> None:
        await vm.execute("rm -f /root/held")
        assert await refusal(vm, "thaw") == "not_frozen"
        assert await vm.request("freeze", {"seconds": FREEZE_S}) == {}
        write = await start_write(vm, "held")
        assert (await vm.execute("cat /etc/passwd")).stdout.startswith("root:")
        assert not await vm.files.exists("/root/held")
        assert await refusal(vm, "freeze") == "frozen"
        assert await refusal(other, "freeze") == "frozen"
        assert await refusal(other, "thaw") == "not_frozen"
        assert not write.done()
        assert 0 < (await vm.request("thaw"))["frozen_s"] < FREEZE_S
        assert (await write).stdout == "text\n"
        assert await refusal(vm, "thaw") == "not_frozen"

    await while_frozen(vm, attempt)


async def test_a_freeze_ends_by_itself_and_its_thaw_is_refused(vm: Sandbox) -> None:
    assert await refusal(vm, "freeze", seconds=10.5) == "bad_request"
    started = time.monotonic()
    await vm.request("freeze", {"seconds": 1})
    assert (await vm.execute("echo text >/root/late; cat /root/late")).stdout == "text\n"
    assert time.monotonic() - started >= 0.9
    with pytest.raises(AgentRefusedError, match="time was over") as caught:
        await vm.request("thaw")
    assert caught.value.code == "not_frozen"
    await vm.request("freeze", {"seconds": 10})
    await vm.request("thaw")


async def test_the_end_of_its_session_thaws_at_once(vm: Sandbox) -> None:
    async def attempt() -> None:
        other = Sandbox.attach(vm.name)
        try:
            await other.ping()
            started = time.monotonic()
            await other.request("freeze", {"seconds": FREEZE_S})
            write = await start_write(vm, "left")
        finally:
            other.close()
        assert (await write).stdout == "text\n"
        assert time.monotonic() - started < FREEZE_S - 1

    await while_frozen(vm, attempt)


async def test_a_frozen_guest_is_frozen_by_others_too(vm: Sandbox) -> None:
    await vm.execute("fsfreeze --freeze /")
    assert await refusal(vm, "freeze") == "frozen"
    await vm.execute("fsfreeze --unfreeze /")

    async def attempt() -> None:
        await vm.request("freeze", {"seconds": FREEZE_S})
        await vm.execute("fsfreeze --unfreeze /")
        with pytest.raises(AgentRefusedError, match="something in the guest") as caught:
            await vm.request("thaw")
        assert caught.value.code == "not_frozen"

    await while_frozen(vm, attempt)


async def test_an_upload_that_breaks_off_while_frozen_holds_nobody_up(vm: Sandbox) -> None:
    """What it has begun is removed after the thaw, for which the agent must not wait."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    async def has_begun() -> bool:
        return any(f.name.startswith(".quicksand-") for f in await vm.files.list("/root"))

    async def session_is_gone() -> bool:
        return not await states(vm, "sleep 1234")

    async def is_removed() -> bool:
        return not await has_begun()

    async def attempt() -> None:
        other = Sandbox.attach(vm.name)
        try:
            upload = asyncio.create_task(other.files.write("/root/upload", chunks()))
            command = asyncio.create_task(other.execute("sleep 1234"))
            await until(has_begun, what="the upload to begin")
            await vm.request("freeze", {"seconds": FREEZE_S})
        finally:
            other.close()
        upload.cancel()
        await asyncio.gather(upload, command, return_exceptions=True)
        await until(session_is_gone, what="the end of the other session")
        await vm.request("thaw")
        await until(is_removed, what="the unfinished file to go")

    await while_frozen(vm, attempt)


async def test_an_agent_that_is_killed_leaves_nothing_frozen(vm: Sandbox) -> None:
    """Not even when one of its own threads waits to write, which keeps it from ending."""

    async def attempt() -> None:
        other = Sandbox.attach(vm.name)
        try:
            await other.ping()
            agent = (await vm.request("ping"))["pid"]
            await vm.request("freeze", {"seconds": FREEZE_S})
            upload = asyncio.create_task(other.files.write("/root/upload", b"text"))

            async def its_thread_waits() -> bool:
                threads = (await vm.execute(f"cat /proc/{agent}/task/*/status")).stdout
                return "State:\tD" in threads

            await until(its_thread_waits, what="the upload to wait", seconds=FREEZE_S)
            with pytest.raises(AgentUnreachableError):
                await vm.execute(f"kill -9 {agent}")
            await asyncio.gather(upload, return_exceptions=True)
        finally:
            other.close()
        assert (await vm.execute("echo text >/root/after; cat /root/after")).stdout == "text\n"
        assert (await vm.request("ping"))["pid"] != agent

    await while_frozen(vm, attempt)


async def test_volatile_names_what_only_memory_holds(vm: Sandbox) -> None:
    mount = "mkdir -p /mnt/tm\\ p && mount -t tmpfs -o size=8m none /mnt/tm\\ p"
    assert (await vm.execute(mount)).exit_code == 0
    # Nothing without data, no system's own, nothing that the disk holds.
    await vm.execute("mkdir -p a/b e; touch e/none /run/none; echo x >/run/x", cwd="/mnt/tm p")
    await vm.execute("mount --bind /root a", cwd="/mnt/tm p")
    await vm.files.write("/root/on-disk", b"1")
    assert await vm.request("volatile") == {"paths": [], "truncated": False}
    await vm.execute("umount a", cwd="/mnt/tm p")
    await vm.files.write("/mnt/tm p/a/b/one", bytes(3000))
    await vm.files.write("/mnt/tm p/a/two", bytes(1000))
    await vm.files.write("/mnt/tm p/\udcff", b"x")
    await vm.files.write("/dev/shm/shared", b"12")
    assert await vm.request("volatile") == {
        "paths": [
            {"path": "/mnt/tm p/a", "bytes": 4000, "entries": 2},
            {"path": "/dev/shm/shared", "bytes": 2, "entries": 1},
            {"path_b64": base64.b64encode(b"/mnt/tm p/\xff").decode(), "bytes": 1, "entries": 1},
        ],
        "truncated": False,
    }
    await vm.execute("umount '/mnt/tm p'; rm /dev/shm/shared /run/x")
    assert (await vm.request("volatile"))["paths"] == []


async def test_a_look_at_a_great_many_files_ends(vm: Sandbox) -> None:
    await vm.execute("mkdir -p /mnt/many && mount -t tmpfs -o size=64m none /mnt/many")
    await vm.execute(
        "seq 12000 | xargs -n 1000 sh -c 'for n; do echo x >$n; done' -", cwd="/mnt/many"
    )
    found: dict[str, Any] = {}

    async def look() -> float:
        started = time.monotonic()
        found.update(await vm.request("volatile"))
        return time.monotonic() - started

    assert await in_time(look, 5)
    assert found["truncated"]
    assert len(found["paths"]) == 50
    await vm.execute("umount /mnt/many")
