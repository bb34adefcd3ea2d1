"""A sandbox in which a build runs the programs that this host lacks: apt, mke2fs and debugfs.

It boots from an image that is here or published, has its own network and no access to the host
except to the files handed to it, and dies with the build. Everything that comes out is checked as
if a mirror had sent it, or is the requested file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from quicksand.base.arch import Architecture
from quicksand.base.error_text import size_text
from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import create
from quicksand.base.removal import remove
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import TAIL_LINES, ToolError
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.guest import execution
from quicksand.guest.agent.session import Session
from quicksand.guest.guest_files import files_of
from quicksand.qemu import debs
from quicksand.records.config import NetworkMode, SandboxConfig

from quicksand_images.bases import hold_base, look_at
from quicksand_images.benches import Bench, HostBench, Opened
from quicksand_images.disk import ERRORS_MAX, Makers, Plan, plan_debugfs, require_filesystem_tools
from quicksand_images.in_vm import INSTALL_S, build_config, run_machine
from quicksand_images.log import BuildLog
from quicksand_images.packages import Packages
from quicksand_images.recipe import System
from quicksand_images.sources import find_mirrors, from_inside, proxies
from quicksand_images.toolbox import Tool, lacking_programs
from quicksand_images.workshop_apt import open_there
from quicksand_images.workshop_image import FILESYSTEM_TOOLS, Found, find_image

WORK = "/quicksand-workshop"
"""The directory of a build in its sandbox."""

DISK_BYTES = 64 * 1024**3
"""The least size of the sandbox's disk: a file system and its sources lie there side by side, and
the published Alpine has a disk of 1 GiB. Unwritten space takes none here."""

FILE_MAX = 1 << 40
"""The most bytes of a resulting file system, with its holes; a recipe gives its size."""

OUTPUT_MAX = 16 * 1024 * 1024
"""The most bytes of a program's output there that are kept; apt's lists have some 100 KB."""

APT_PROGRAMS = ("apt-get", "apt-cache", "apt-config", "dpkg-deb")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GET = """\
if command -v mke2fs >/dev/null && command -v debugfs >/dev/null; then exit 0; fi
if command -v apt-get >/dev/null; then
    apt-get -q update
    apt-get -q -y --no-install-recommends install e2fsprogs
else
    apk add --no-cache e2fsprogs e2fsprogs-extra
fi
"""


class Workshop:
    """The running sandbox. Methods raise ToolError for a program that fails there, AgentError."""

    def __init__(self, session: Session, log: BuildLog, env: Mapping[str, str]) -> None:
        self.files = files_of(session)
        self._session = session
        self._log = log
        self._env = env

    async def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        cwd: str = WORK,
        stdin: BinaryIO | None = None,
    ) -> str:
        """Run a program to its end, as root; return its stdout. The log gets its output. Raises
        HostError if that is too large."""
        hear = self._log.write
        params = execution.command_params(
            list(argv),
            timeout=INSTALL_S,
            cwd=cwd,
            shell="/bin/sh",
            user=None,
            env={**self._env, **(env or {})},
        )
        command = await execution.spawn(self._session, params, stdin=stdin is not None)
        result = await execution.run(
            command, stdin=stdin, on_stdout=hear, on_stderr=hear, most=OUTPUT_MAX
        )
        if result.exit_code:
            lines = (result.stdout + result.stderr).splitlines()
            said = "\n".join(lines[-TAIL_LINES:]).strip()
            raise ToolError(
                f"{argv[0]} failed with exit code {result.exit_code} in the build's sandbox:"
                f"\n{said}",
                output=said,
                exit_code=result.exit_code,
            )
        if result.truncated:
            raise HostError(
                f"{argv[0]} says more than {size_text(OUTPUT_MAX)} in the build's sandbox"
            )
        return result.stdout

    async def put_tree(self, tree: Path | None, place: str, scratch: Path) -> None:
        """Copy the directory ``tree`` to the new directory ``place`` in the sandbox, by an archive
        at ``scratch``; without one ``place`` is empty. Raises OSError."""
        await self.run(["mkdir", place])
        if tree is None:
            return
        await in_thread_to_the_end(lambda: _pack(tree, scratch))
        try:
            with scratch.open("rb") as file:
                await self.run(["tar", "-C", place, "-xpf", "-"], stdin=file)
        finally:
            scratch.unlink()

    async def take_sparse(self, path: str, target: Path) -> None:
        """Copy a file of the sandbox to the new file ``target``, with its holes. Raises HostError,
        OSError."""
        with create(target) as file:
            end = 0
            async for extent in self.files.extents(path):
                end = extent.offset + len(extent.data)
                if end > FILE_MAX:
                    raise HostError(
                        f"the build's sandbox sends more than {size_text(FILE_MAX)} of {path}"
                    )
                if extent.data:
                    file.seek(extent.offset)
                    await asyncio.to_thread(file.write, extent.data)
            file.truncate(end)

    async def make_file_system(
        self,
        tree: Path,
        target: Path,
        plan: Plan,
        commands: Path | None,
        env: Mapping[str, str],
        values: Path | None,
    ) -> str:
        """See `disk.FileSystems`. Raises OSError as well."""
        place, made, beside = f"{WORK}/tree", f"{WORK}/made", f"{WORK}/values"
        said = ""
        with map_os_errors(target):
            await self.put_tree(tree, place, target.with_suffix(".tar"))
            await self.run(plan(["mke2fs"], Path(place), Path(made)), env)
            if commands is not None:
                await self.put_tree(values, beside, target.with_suffix(".tar"))
                with commands.open("rb") as file:
                    await self.files.write(f"{WORK}/commands", file)
                argv = plan_debugfs(["debugfs"], PurePosixPath(WORK, "commands"), Path(made))
                said = await self.run(argv, env, cwd=beside)
                await self.run(["rm", "-r", beside])
            await self.take_sparse(made, target)
            await self.run(["rm", "-r", place, made])
        return "\n".join(said.splitlines()[-ERRORS_MAX:])


def _pack(tree: Path, target: Path) -> None:
    """Write an archive that any tar reads, with numbers as owners."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uname = member.gname = ""
        return member

    with (
        create(target) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as out,
    ):
        out.add(tree, arcname=".", filter=plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedWorkshop:
    """A workshop, with the programs of this host that serve a build beside it."""

    shop: Workshop
    tools: tuple[Tool, Tool] | None

    @property
    def makers(self) -> Makers:
        return self.tools or self.shop

    async def packages(
        self, system: System, arch: Architecture, root: Path, *, status: bytes = b""
    ) -> Packages:
        return await open_there(self.shop, system, arch, root, WORK, status)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkshopBench:
    """A bench (`benches.Bench`) that opens a workshop for the programs that this host lacks."""

    name: str
    """The image that is being built."""
    place: Path
    store: ImageStore
    log: BuildLog
    tools: tuple[Tool, Tool] | None
    """This host's mke2fs and debugfs, if it has them."""
    lacking: Sequence[str]
    """The programs that are missing here."""
    has_apt: bool = False

    @contextlib.asynccontextmanager
    async def opened(self, *, apt: bool) -> AsyncIterator[Opened]:
        if not apt and self.tools is not None:
            yield HostBench(place=self.place, makers=self.tools, has_apt=False)
            return
        found = await find_image(
            self.name, self.store, apt=apt, lacking=self.lacking, progress=self.log.aside
        )
        self.log.aside(f"starting a sandbox of {found.image.name!r} to build in", 0, 0)
        place = self.place / f"workshop-{secrets.token_hex(4)}"
        with map_os_errors(place):
            place.mkdir(mode=0o700)
        try:
            image = await in_thread_to_the_end(lambda: hold_base(found.image, place / "base"))
            config = await asyncio.to_thread(_config, image)
            async with run_machine(place, config, image=image) as machine:
                shop = Workshop(machine.session, self.log, _environment())
                await shop.run(["mkdir", "-p", WORK], cwd="/")
                await self._prepare(shop, found)
                yield OpenedWorkshop(shop=shop, tools=self.tools)
        finally:
            await in_thread_to_the_end(lambda: remove(self.place, part=place.name))

    async def _prepare(self, shop: Workshop, found: Found) -> None:
        if self.tools is not None or found.has_filesystem_tools:
            return
        self.log.aside("getting e2fsprogs in the sandbox", 0, 0)
        if found.has_apt:
            await _use_own_mirrors(shop, found)
        await shop.run(["/bin/sh", "-eu", "-c", _GET])


async def find_bench(
    name: str, place: Path, store: ImageStore, log: BuildLog, *, apt: bool, in_sandbox: bool
) -> Bench:
    """Return the place where the image ``name`` is built in ``place``: this host, unless it lacks
    programs that the build needs (apt on request, and e2fsprogs, or the package with that), or
    ``in_sandbox`` says otherwise. Raises HostError."""
    if in_sandbox:
        return WorkshopBench(name=name, place=place, store=store, log=log, tools=None, lacking=())
    lacking = lacking_programs(APT_PROGRAMS) if apt else []
    tools = None
    if debs.is_apt_host() or not lacking_programs(FILESYSTEM_TOOLS):
        tools = await require_filesystem_tools(place, log.aside)
        if not lacking:
            return HostBench(place=place, makers=tools)
    else:
        lacking += lacking_programs(FILESYSTEM_TOOLS)
    return WorkshopBench(name=name, place=place, store=store, log=log, tools=tools, lacking=lacking)


async def _use_own_mirrors(shop: Workshop, found: Found) -> None:
    """Have the sandbox's own apt use this host's mirrors for that distribution."""
    system = (await asyncio.to_thread(look_at, found.image)).system
    if system is None or system.keys:
        return
    mirrors = await asyncio.to_thread(find_mirrors, system)
    components = " ".join(system.components)
    text = "".join(
        f"deb {from_inside(mirror)} {suite} {components}\n"
        for mirror, suite in (
            (mirrors.main, system.suite),
            (mirrors.main, f"{system.suite}-updates"),
            (mirrors.security, f"{system.suite}-security"),
        )
    )
    await shop.run(["/bin/sh", "-c", "rm -rf /etc/apt/sources.list.d/*"])
    await shop.files.write("/etc/apt/sources.list", text)


def _config(image: StoredImage) -> SandboxConfig:
    """Return the config of the sandbox, with a disk of `DISK_BYTES` unless it is larger anyway.
    Raises ImageError. Blocks for I/O."""
    is_large = check_qcow2(image.chain[-1], allow_backing=True).virtual_size >= DISK_BYTES
    size = None if is_large else str(DISK_BYTES)
    return build_config(str(image.root), network=NetworkMode.FULL, disk_size=size)


def _environment() -> dict[str, str]:
    told = {name: from_inside(value) for name, value in proxies(os.environ).items()}
    return {**told, "PATH": _PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
