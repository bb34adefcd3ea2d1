"""One VM with a writable mount for all tests of a module.

Its guest has more programs than its image: the host's `/usr` and Python are mounted there, too,
read-only, and `chroot` makes them a system. So git, sqlite and a whole Python run in the guest
without anything to be downloaded, and every one of them is read through a mount.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.paths import Paths

from tests.conftest import fresh_places

ROOT = "/mnt/root"
"""In the guest: the root of the system that the host's programs are."""
WORK = "/work"
"""Below it: the host's directory under test."""
PROGRAMS = Path(__file__).parent / "in_guest"
DEEP = "/usr"


@dataclass(frozen=True, slots=True)
class Both:
    """A directory of the host, and the guest that has it mounted."""

    vm: Sandbox
    host: Path
    name: str

    @property
    def guest(self) -> str:
        """The directory as the guest itself sees it."""
        return f"{ROOT}{WORK}/{self.name}"

    async def run(self, command: str, *, within: float = 60) -> str:
        """What a command of the host's prints that runs in the guest, in the directory, and
        succeeds."""
        inner = f"cd {WORK}/{shlex.quote(self.name)} && {command}"
        words = ["env", "-i", f"PATH={PATH}", "HOME=/tmp", "LANG=C.UTF-8", "sh", "-c", inner]
        result = await self.vm.execute(f"chroot {ROOT} {shlex.join(words)}", timeout=within)
        assert result.exit_code == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result.stdout.strip()

    async def python(self, program: str, *words: str, within: float = 60) -> str:
        """The same for one of our programs (in_guest/)."""
        argv = [sys._base_executable, "-I", "-S", f"/tmp/{program}.py", *words]  # type: ignore[attr-defined]
        return await self.run(shlex.join(argv), within=within)


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def mounts_of(shared: Path) -> list[Mount]:
    """The directory under test, and the programs."""
    trees = [DEEP]
    if not sys.base_prefix.startswith(f"{DEEP}/") and sys.base_prefix != DEEP:
        trees.append(sys.base_prefix)
    programs = [Mount(tree, f"{ROOT}{tree}", readonly=True) for tree in trees]
    return [Mount(str(shared), f"{ROOT}{WORK}"), *programs]


async def make_root(vm: Sandbox) -> None:
    """Have what is mounted be a system."""
    await vm.files.mkdir(f"{ROOT}/tmp")
    commands = [f"cd {ROOT}", "mkdir -p dev proc"]
    commands += [f"ln -s usr/{name} {name}" for name in ("bin", "sbin", "lib", "lib64")]
    commands += ["mount --rbind /dev dev", "mount -t proc proc proc"]
    result = await vm.execute(" && ".join(commands))
    assert result.exit_code == 0, result.stderr
    for program in PROGRAMS.glob("*.py"):
        await vm.files.write(f"{ROOT}/tmp/{program.name}", program.read_bytes())


@pytest.fixture(scope="module", autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places shared by a module's tests."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture(scope="module")
def shared(places: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory that the running sandbox "mounted" has at WORK."""
    directory = tmp_path_factory.mktemp("shared")

    async def start() -> None:
        vm = Sandbox(image="debian", name="mounted", ephemeral=True, mounts=mounts_of(directory))
        await vm.start()
        await make_root(vm)
        vm.detach()
        vm.close()

    async def stop() -> None:
        await Sandbox.attach("mounted").kill()

    asyncio.run(start())
    yield directory
    asyncio.run(stop())


@pytest.fixture
async def both(shared: Path, request: pytest.FixtureRequest) -> AsyncIterator[Both]:
    """An empty directory that is mounted."""
    name = f"{len(list(shared.iterdir()))}"
    directory = shared / name
    directory.mkdir()
    vm = Sandbox.attach("mounted")
    yield Both(vm, directory, name)
    vm.close()
