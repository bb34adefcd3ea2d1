"""Mounts of a user who is not root: the guest may do what that user may, and is told of the rest.

Where the tests run as root, the sandbox is started in a user namespace in which root is a plain
user without capabilities. What belongs to somebody else needs root to be made.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.guest.execution import ExecuteResult

from tests.conftest import fresh_places, wait_for
from tests.integration.guests import say

pytestmark = pytest.mark.vm

AT = "/mnt/data"
STRANGER = 4711
AS_PLAIN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def quicksand(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of a plain user's."""
    argv = [*AS_PLAIN_USER] if os.geteuid() == 0 else []
    argv += [sys.executable, "-m", "quicksand_tui", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module", autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places shared by a module's tests, which have one guest."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture(scope="module")
def shared(places: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that the running sandbox "plain", of a plain user, has at AT."""
    directory = tmp_path_factory.mktemp("shared")
    started = quicksand("run", "debian", "-d", "--name", "plain", "-v", f"{directory}:{AT}")
    assert started.returncode == 0, started.stderr
    yield directory
    removed = quicksand("rm", "-f", "plain")
    assert removed.returncode == 0, removed.stderr


@pytest.fixture
def data(shared: Path) -> Iterator[Path]:
    """A directory with files of the user's own and of another user's, made anew for each test."""
    data = shared / f"{len(list(shared.iterdir()))}"
    for name in ("", "mine", "fixed", "theirs", "closed", "open"):
        (data / name).mkdir()
        (data / name).chmod(0o755)
        (data / name / "file").write_text(name)
        (data / name / "file").chmod(0o644)
    (data / "private").write_text("a secret")
    (data / "public").write_text("for all")
    (data / "public").chmod(0o644)
    (data / "read-only").write_text("fixed")
    (data / "read-only").chmod(0o444)
    (data / "private").chmod(0o600)
    (data / "closed").chmod(0o700)
    (data / "open").chmod(0o777)
    if os.geteuid() == 0:
        theirs = ["private", "public", "theirs", "theirs/file", "closed", "open", "open/file"]
        for name in theirs:
            os.chown(data / name, STRANGER, STRANGER)
    else:  # the same, as far as one can deny oneself something
        (data / "private").chmod(0)
        (data / "public").chmod(0o444)
        (data / "theirs").chmod(0o555)
        (data / "closed").chmod(0)
    (data / "fixed").chmod(0o555)
    yield data
    for name in ("fixed", "theirs", "closed"):
        (data / name).chmod(0o755)


@pytest.fixture
def at(data: Path) -> str:
    """Where the guest has `data`."""
    return f"{AT}/{data.name}"


@pytest.fixture
async def vm(shared: Path) -> AsyncIterator[Sandbox]:
    vm = Sandbox.attach("plain")
    yield vm
    vm.close()


async def try_it(vm: Sandbox, at: str, command: str) -> ExecuteResult:
    return await vm.execute(f"cd {at} && {command}", timeout=60)


def listing(data: Path) -> bytes:
    """All that there is; who is not root does not look into what is closed, and `ls` says so."""
    done = subprocess.run(["ls", "-lR", data], capture_output=True, check=False)
    assert done.returncode == (0 if os.geteuid() == 0 else 1)
    return done.stdout


DENIED = (
    "cat private", "echo x >> public", "> public", "ls closed", "cat closed/file",
    "touch theirs/new", "rm -f theirs/file", "mkdir theirs/new", "ln -s x theirs/new",
    "mkfifo theirs/new", "mv theirs/file mine/moved", "mv mine/file theirs/moved",
    "ln mine/file theirs/new", "mv mine/file theirs/file", "rmdir closed", "rm -r theirs",
    "touch fixed/new", "rm -f fixed/file", "mv fixed/file mine/taken", "echo x >> read-only",
    "truncate -s 0 public", "chmod 666 private",
)  # fmt: skip


async def test_what_the_user_may_not_the_guest_may_not(vm: Sandbox, data: Path, at: str) -> None:
    before = listing(data)
    is_root = os.geteuid() == 0
    tried = [
        command
        for command in DENIED
        # Whoever denies himself something can take that back.
        if is_root or command not in ("chmod 666 private", "rmdir closed")
    ]
    script = "; ".join(f"({command}) 2>&1 && echo was done; echo =" for command in tried)
    answers = (await try_it(vm, at, script)).stdout.split("=\n")[:-1]
    for command, answer in zip(tried, answers, strict=True):
        told = answer.strip().splitlines()
        assert told and all(
            "Permission denied" in line or "Operation not permitted" in line for line in told
        ), f"{command}: {told}"
    # Told that this is denied, the guest's client would delete the target and try again.
    result = await try_it(vm, at, "mv -f theirs/file mine/file")
    assert "Read-only file system" in result.stderr
    # Nothing has been lost on the way, and the mount is as it was.
    assert listing(data) == before
    assert (data / "theirs" / "file").read_text() == "theirs"
    assert await say(vm, f"cd {at} && cat public theirs/file mine/file") == "for alltheirsmine"


async def test_what_the_user_may_the_guest_may(vm: Sandbox, data: Path, at: str) -> None:
    listed = await say(vm, f"cd {at} && stat -c '%n %u %a' *")
    owners = {line.split()[0]: tuple(line.split()[1:]) for line in listed.splitlines()}
    assert owners["mine"] == ("0", "755"), "what is the user's is root's in the guest"
    if os.geteuid() == 0:
        assert owners["private"][0] != "0" and owners["private"][1] == "600"
    await say(vm, f"cd {at}/mine && echo x > new && chmod 750 new && mkdir d && mv file d/moved")
    new = data / "mine" / "new"
    assert (new.stat().st_mode & 0o7777, new.stat().st_uid) == (0o750, os.geteuid())
    assert (data / "mine" / "d" / "moved").read_text() == "mine"
    # Also what is in a directory of somebody else's that is open to all.
    await say(vm, f"cd {at}/open && echo x > new && mv file moved && rm moved")
    assert sorted(os.listdir(data / "open")) == ["new"]
    # Reading a tree goes on behind what may not be read.
    copied = await try_it(vm, at, "cp -r . /root/copy")
    assert copied.exit_code != 0
    assert len(copied.stderr.strip().splitlines()) == 2, copied.stderr
    assert await say(vm, "cat /root/copy/public /root/copy/theirs/file") == "for alltheirs"
    # The guest's root takes its own denial back, as on a disk.
    await say(vm, f"cd {at} && chmod 644 read-only && echo more >> read-only")
    assert (data / "read-only").read_text() == "fixedmore\n"


WRITER = """
exec 3>>mine/log
echo first >&3
touch open/ready
until [ -e open/go ]; do sleep 0.1; done
echo second >&3
exec 3>&-
touch open/done
"""


async def test_rights_that_are_taken_away_meanwhile(vm: Sandbox, data: Path, at: str) -> None:
    await vm.spawn(f"cd {at} && {WRITER}", detach=True)
    await asyncio.to_thread(wait_for, (data / "open" / "ready").exists, what="it to be open")
    await say(vm, f"cat {at}/mine/file {at}/fixed/file")
    log = (data / "mine" / "log").open()  # who is not root cannot read it later
    (data / "mine" / "log").chmod(0)
    (data / "fixed").chmod(0)
    # The guest has just looked at what it moves, so that it asks for that at once.
    moved = await try_it(vm, at, "mv -f fixed/file mine/file")
    assert moved.exit_code != 0
    assert (data / "mine" / "file").read_text() == "mine"
    (data / "open" / "go").touch()
    await asyncio.to_thread(wait_for, (data / "open" / "done").exists, what="the end of it")
    with log:
        assert log.read() == "first\nsecond\n", "what is open stays open"
    async with asyncio.timeout(60):
        while (await try_it(vm, at, "cat mine/log")).exit_code == 0:
            await asyncio.sleep(0.1)
    (data / "fixed").chmod(0o755)
    async with asyncio.timeout(60):
        while (await try_it(vm, at, "mv -f fixed/file mine/file")).exit_code != 0:
            await asyncio.sleep(0.1)
    assert (data / "mine" / "file").read_text() == "fixed"


async def test_an_archive_of_read_only_directories_is_unpacked(
    vm: Sandbox, data: Path, at: str
) -> None:
    """By a user of the guest's: its root relies on rights that root has, and this one has not."""
    await say(
        vm,
        "mkdir -p /tmp/t/d && cd /tmp/t && echo a > d/a && chmod 444 d/a && chmod 555 d"
        " && tar cf /tmp/t.tar -C /tmp t && chmod 644 /tmp/t.tar",
    )
    unpacked = await vm.execute(f"cd {at}/mine && tar xf /tmp/t.tar", user="nobody")
    assert unpacked.exit_code == 0, unpacked.stderr
    assert await say(vm, f"cat {at}/mine/t/d/a") == "a"
    refused = await try_it(vm, at, "cd mine && rm -r t/d")
    assert "Permission denied" in refused.stderr
    assert (data / "mine" / "t" / "d").stat().st_mode & 0o777 == 0o555
    assert (data / "mine" / "t" / "d" / "a").stat().st_mode & 0o777 == 0o444
    await say(vm, f"cd {at}/mine && chmod 755 t/d && rm -rf t")


async def test_what_the_user_cannot_read_cannot_be_mounted(
    vm: Sandbox, data: Path, at: str
) -> None:
    refused = quicksand("mount", "plain", f"{data / 'closed'}:/mnt/closed")
    assert refused.returncode == 1
    assert f"{data / 'closed'}" in refused.stderr
    assert "ermission denied" in refused.stderr
    # What can be read and not written is mounted, and the guest is told when it writes.
    mounted = quicksand("mount", "plain", f"{data / 'theirs'}:/mnt/theirs")
    assert mounted.returncode == 0, mounted.stderr
    assert await say(vm, "cat /mnt/theirs/file") == "theirs"
    result = await vm.execute("touch /mnt/theirs/new")
    assert "Permission denied" in result.stderr
