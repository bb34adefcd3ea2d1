"""Files and terminals of a real guest."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentRefusedError, CommandFailedError
from quicksand.guest.shell import Shell

pytestmark = pytest.mark.vm


@pytest.fixture
async def directory(vm: Sandbox) -> AsyncIterator[str]:
    """An empty directory in the guest."""
    await vm.files.mkdir("/tmp/t")
    yield "/tmp/t"
    await vm.files.remove("/tmp/t", recursive=True)


async def test_a_file_comes_back_as_it_went(vm: Sandbox, directory: str) -> None:
    content = os.urandom(3_000_000)
    assert await vm.files.write(f"{directory}/f", content, mode=0o640) == len(content)
    assert await vm.files.read(f"{directory}/f") == content
    found = await vm.files.stat(f"{directory}/f")
    assert (found.type, found.size, found.mode, found.uid) == ("file", len(content), 0o640, 0)


async def test_parts_empty_files_and_appending(vm: Sandbox, directory: str) -> None:
    await vm.files.write(f"{directory}/f", "0123456789")
    assert await vm.files.read(f"{directory}/f", offset=3, length=4) == b"3456"
    await vm.files.write(f"{directory}/f", "ab", append=True)
    assert await vm.files.read_text(f"{directory}/f") == "0123456789ab"
    assert await vm.files.write(f"{directory}/e", b"") == 0
    assert await vm.files.read(f"{directory}/e") == b""


async def test_a_large_file_is_streamed_both_ways(vm: Sandbox, directory: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(8):
            yield bytes(1024 * 1024)

    await vm.files.write(f"{directory}/big", chunks())
    digest, size = hashlib.sha256(), 0
    async for chunk in vm.files.stream(f"{directory}/big"):
        digest.update(chunk)
        size += len(chunk)
    assert size == 8 * 1024 * 1024
    assert digest.digest() == hashlib.sha256(bytes(size)).digest()


async def test_an_interrupted_write_leaves_the_old_file_and_no_litter(
    vm: Sandbox, directory: str
) -> None:
    await vm.files.write(f"{directory}/f", "old")

    async def broken() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise RuntimeError("broke")

    other = Sandbox.attach(vm.name)
    with pytest.raises(RuntimeError):
        await other.files.write(f"{directory}/f", broken())
    other.close()
    assert await vm.files.read(f"{directory}/f") == b"old"
    async with asyncio.timeout(60):
        while [f.name for f in await vm.files.list(directory)] != ["f"]:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "name",
    ["a b", "a,b=c", "qu\"o'te", "-rf", "new\nline", "ünï", "\udcff\udcfe", "x" * 255],
    ids=ascii,
)
async def test_any_name_works(vm: Sandbox, directory: str, name: str) -> None:
    await vm.files.write(f"{directory}/{name}", "x")
    assert [f.name for f in await vm.files.list(directory)] == [name]
    await vm.files.rename(f"{directory}/{name}", f"{directory}/{name[:200]}2")
    assert await vm.files.read(f"{directory}/{name[:200]}2") == b"x"


async def test_a_directory_with_many_entries_is_listed_whole(vm: Sandbox, directory: str) -> None:
    await vm.execute("seq -f %05g 2500 | xargs touch", cwd=directory)
    names = [f.name for f in await vm.files.list(directory)]
    assert names == [f"{n:05}" for n in range(1, 2501)]


async def test_links_are_never_followed_by_remove(vm: Sandbox, directory: str) -> None:
    await vm.files.mkdir(f"{directory}/keep")
    await vm.files.write(f"{directory}/keep/f", "x")
    await vm.files.symlink(f"{directory}/link", f"{directory}/keep")
    assert (await vm.files.stat(f"{directory}/link", follow=False)).target == f"{directory}/keep"
    await vm.files.remove(f"{directory}/link", recursive=True)
    assert await vm.files.exists(f"{directory}/keep/f")


async def test_refusals_have_codes_and_name_the_path(vm: Sandbox, directory: str) -> None:
    await vm.files.write(f"{directory}/f", "x")
    for operation, code in (
        (vm.files.read(f"{directory}/none"), "not_found"),
        (vm.files.mkdir(f"{directory}/f"), "exists"),
        (vm.files.rename(f"{directory}/none", f"{directory}/g"), "not_found"),
        (vm.files.write(f"{directory}/none/f", "x"), "not_found"),
    ):
        with pytest.raises(AgentRefusedError, match=directory) as caught:
            await operation
        assert caught.value.code == code


async def test_refusals_are_the_errors_of_python_too(vm: Sandbox, directory: str) -> None:
    await vm.files.write(f"{directory}/f", "x")
    for operation, expected in (
        (vm.files.read(f"{directory}/none"), FileNotFoundError),
        (vm.files.stat(f"{directory}/none"), FileNotFoundError),
        (vm.files.mkdir(f"{directory}/f"), FileExistsError),
        (vm.files.read(directory), IsADirectoryError),
        (vm.files.write(directory, "x"), IsADirectoryError),
        (vm.files.list(f"{directory}/f"), NotADirectoryError),
    ):
        with pytest.raises(expected) as caught:
            await operation
        assert isinstance(caught.value, AgentRefusedError)


async def test_a_command_can_be_checked(vm: Sandbox) -> None:
    assert (await vm.execute("true", check=True)).ok
    script = "echo begun; echo why it failed >&2; exit 3"
    with pytest.raises(CommandFailedError, match="exited with code 3\nwhy it failed") as failed:
        await vm.execute(script, check=True)
    assert (failed.value.exit_code, failed.value.stdout) == (3, "begun\n")
    with pytest.raises(CommandFailedError, match="killed at its timeout"):
        await vm.execute("sleep 60", timeout=0.5, check=True)


async def test_users_come_and_go(vm: Sandbox) -> None:
    await vm.create_user("alice")
    with pytest.raises(AgentRefusedError) as caught:
        await vm.create_user("alice")
    assert caught.value.code == "exists"
    assert (await vm.execute("id -un; pwd", user="alice")).stdout == "alice\n/home/alice\n"
    assert (await vm.execute("sudo -n true", user="alice")).exit_code != 0
    await vm.delete_user("alice")
    assert not await vm.files.exists("/home/alice")
    with pytest.raises(AgentRefusedError):
        await vm.execute("true", user="alice")


async def read_until(shell: Shell, mark: bytes) -> bytes:
    """Output up to and including ``mark``."""
    seen = b""
    async with asyncio.timeout(60):
        async for data in shell.output():
            seen += data
            if mark in seen:
                return seen
    raise AssertionError(f"the terminal ended without {mark!r}: {seen!r}")


async def test_a_terminal_has_its_size_and_is_resized(vm: Sandbox) -> None:
    shell = await vm.shell(columns=91, rows=33)
    await shell.write(b"stty size; tty\n")
    assert b"33 91" in await read_until(shell, b"/dev/pts/")
    await shell.resize(100, 40)
    await shell.write(b"stty size; echo do''ne\n")
    assert b"40 100" in await read_until(shell, b"done")
    await shell.close()


async def test_a_terminal_outlives_its_client_and_replays(vm: Sandbox) -> None:
    other = Sandbox.attach(vm.name)
    shell = await other.shell()
    await shell.write(b"X=42; echo rea''dy\n")
    await read_until(shell, b"ready")
    name = shell.session
    other.close()
    assert name in [info.session for info in await vm.shells() if info.alive]
    again = await vm.attach_shell(name)
    await again.write(b"echo X=$X.\n")
    seen = await read_until(again, b"X=42.")
    assert b"ready" in seen
    await again.write(b"exit 9\n")
    async for _ in again.output():
        pass
    assert again.status is not None
    assert again.status.exit_code == 9


async def test_interrupt_reaches_the_foreground(vm: Sandbox) -> None:
    shell = await vm.shell()
    await shell.write(b"echo st''art; sleep 100; echo co''de=$?\n")
    await read_until(shell, b"start")
    # Before it runs, bash would take the key for itself and begin it all the same.
    async with asyncio.timeout(60):
        while (await vm.execute("pgrep -x sleep")).exit_code:
            await asyncio.sleep(0.05)
    await shell.write(b"\x03")
    # What is typed before the prompt the shell may drop.
    await read_until(shell, b"# ")
    await shell.write(b"echo co''de=$?\n")
    assert b"code=130" in await read_until(shell, b"code=130")
    await shell.close()


async def test_information_is_plausible(vm: Sandbox) -> None:
    stats = await vm.stats()
    assert 300 * 2**20 < stats.guest_memory_total <= 512 * 2**20
    assert 0 < stats.guest_memory_available <= stats.guest_memory_total
    assert stats.guest_disk_total > 2**30
    assert stats.host.rss > 50 * 2**20
    assert stats.guest_traffic is not None
    # The host lets nothing through, but has an address there.
    await vm.execute("timeout 5 bash -c '</dev/tcp/10.0.2.2/1'", timeout=30)
    traffic = (await vm.stats()).guest_traffic
    assert traffic is not None
    assert stats.guest_traffic.received < traffic.received < 2**20
    assert stats.guest_traffic.sent < traffic.sent < 2**20
    assert any("agent" in process.command for process in await vm.processes())
