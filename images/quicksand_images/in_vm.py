"""Makes a root file system without root or user namespaces: we download and unpack packages, and a
VM runs what needs root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import paths
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.base.tools import Progress
from quicksand.disks.images.cpio import build_cpio
from quicksand.guest import execution
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.qemu.binaries import QemuBinaries
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.warm.starting import boot

from quicksand_images import disk, kernel
from quicksand_images.debfile import read_deb
from quicksand_images.packages import Packages, open_packages
from quicksand_images.recipe import Recipe
from quicksand_images.rootfs import DPKG_CONFIG, WORK, RootTree, hook_environment, unpack_tree
from quicksand_images.sources import Mirrors
from quicksand_images.toolbox import Tool

MEMORY = "1G"
CPUS_MAX = 4
BOOT_S = 300.0
INSTALL_S = 3600.0
"""Seconds that the packages' scripts may take, emulated on a slow host."""

_STAGE = "stage: "
_SAID_MAX = 4000
_PACK = (
    "mount --bind / /mnt && exec tar -C /mnt --one-file-system --numeric-owner --sort=name "
    "--exclude=./lost+found -cf - ."
)
_STEPS = 6


async def make_tree(
    recipe: Recipe,
    place: Path,
    *,
    keyring: Path,
    mirrors: Mirrors,
    binaries: QemuBinaries,
    tools: tuple[Tool, Tool],
    progress: Progress | None = None,
) -> RootTree:
    """Make the root file system of ``recipe`` in ``place``, a private directory.

    Raises HostError (ToolError), MachineError, AgentError. A cancellation leaves no process.
    """
    say = progress or (lambda stage, done, total: None)
    with map_os_errors(place):
        await _prepare(recipe, place, keyring, mirrors, binaries, tools, say)
        say("booting", 4, _STEPS)
        async with machine(place, recipe.arch) as session:
            await _install(session, recipe, lambda stage: say(stage, 4, _STEPS))
            say("taking the system out of the VM", 5, _STEPS)
            await take_out(session, place / "tree.tar")
        return await unpack_tree(place / "tree.tar")


async def _prepare(
    recipe: Recipe,
    place: Path,
    keyring: Path,
    mirrors: Mirrors,
    binaries: QemuBinaries,
    tools: tuple[Tool, Tool],
    say: Progress,
) -> None:
    """Make the kernel, the initrd and the disk that the VM boots from."""
    say("fetching the lists of packages", 0, _STEPS)
    packages = await open_packages(recipe, place / "apt", keyring=keyring, mirrors=mirrors)
    await packages.update()
    base = place / "base"
    base.mkdir(mode=0o755)
    say("downloading packages", 1, _STEPS)
    await _lay_out(recipe, packages, base, say)
    say("making a disk to install on", 3, _STEPS)
    await asyncio.to_thread(_make_boot_files, recipe, base, place)
    await disk.make_scratch(base, place / "base.qcow2", recipe.disk, tools, binaries)


async def _lay_out(recipe: Recipe, packages: Packages, base: Path, say: Progress) -> None:
    """Fill ``base`` with the unpacked base system and, in its work directory, all packages."""
    work = base / WORK
    work.mkdir(mode=0o755)
    first = await packages.download_base()
    everything = await packages.download(recipe.system.packages)
    real = await packages.dependency(recipe.kernel.package, r"linux-image-\S+")
    extra = await packages.download_alone([real, "xz-utils"], packages.root)
    say("unpacking packages", 2, _STEPS)
    await in_thread_to_the_end(lambda: _unpack_base(base, first, everything))
    await in_thread_to_the_end(lambda: _unpack_kernel(work, *extra))
    wanted = {path.name for path in first}
    automatic = {p.name.split("_")[0] for p in everything if p.name not in wanted}
    automatic -= set(recipe.system.packages)
    (work / "automatic").write_text("".join(f"{name}\n" for name in sorted(automatic)))


def _unpack_base(base: Path, first: list[Path], everything: list[Path]) -> None:
    configs = base / "etc" / "dpkg" / "dpkg.cfg.d"
    configs.mkdir(mode=0o755, parents=True)
    (configs / "90quicksand").write_text(DPKG_CONFIG, encoding="ascii")
    for kind in ("base", "more"):
        (base / WORK / kind).mkdir()
    # base-files contains the links of a merged /usr, through which other packages write.
    for path in sorted(everything, key=lambda path: not path.name.startswith("base-files_")):
        deb = read_deb(path)
        if path in first:
            deb.extract(base)
        deb.write(base / WORK / ("base" if path in first else "more") / path.name)
        path.unlink()


def _unpack_kernel(work: Path, package: Path, xz: Path) -> None:
    """Unpack the kernel and xz, which the configuring script cannot download in the VM."""
    deb = read_deb(package)
    for name, content in (("kernel", deb), ("xz", read_deb(xz))):
        (work / name).mkdir()
        content.extract(work / name)
    fields = deb.fields()
    text = "".join(f"{key}: {fields[key]}\n" for key in ("Package", "Version"))
    (work / "kernel-package").write_text(text, encoding="utf-8")


def _make_boot_files(recipe: Recipe, base: Path, place: Path) -> None:
    """Make the kernel and the initrd that boot ``base`` from the image's own kernel package."""
    unpacked = base / WORK / "kernel"
    modules = next(iter(sorted(unpacked.glob("usr/lib/modules/*"))), None)
    if modules is None:
        raise HostError(f"the package {recipe.kernel.package} holds no kernel modules")
    bzimage = unpacked / "boot" / f"vmlinuz-{modules.name}"
    shutil.copyfile(bzimage, place / "base.kernel")
    entries = kernel.initrd_entries(modules, recipe.kernel.boot_modules)
    (place / "base.initrd").write_bytes(build_cpio(entries))


@contextlib.asynccontextmanager
async def machine(place: Path, arch: Architecture) -> AsyncIterator[Session]:
    """Run a VM with the disk, kernel and initrd ``place``/base.*, invisible to others; it dies with
    this process. Only the agent runs in it. Raises HostError, MachineError, AgentError."""
    config = SandboxConfig(
        image=str(place / "base.qcow2"),
        memory=MEMORY,
        cpus=max(1, min(CPUS_MAX, len(os.sched_getaffinity(0)))),
        network_mode=NetworkMode.NONE,
        arch=arch,
        boot_timeout=BOOT_S,
    )
    record = Record(
        id=new_id(),
        name="image-build",
        config=config,
        image_digest="",
        chain=(config.image,),
        created=time.time(),
        committed=True,
        discard=False,
    )
    own = Registry(replace(paths(), data=place / "vm", cache=place / "cache", memory=None))
    lock = own.create(record)
    try:
        running = await boot(own, record, lock)
    finally:
        os.close(lock)
    try:
        yield await running.link.session()
    finally:
        running.link.close()
        running.process.cut()
        await to_the_end(running.process.wait())


async def _install(session: Session, recipe: Recipe, say: Callable[[str], None]) -> None:
    """Install and configure the packages in the VM."""
    ours = Path(__file__)
    script = (ours.with_name("install.sh")).read_text(encoding="utf-8")
    env = hook_environment(recipe)
    script += env.pop("CUSTOMIZE")
    env |= {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
    }
    await run_script(session, script, env, say)


async def run_script(
    session: Session, script: str, env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Run a shell script as root in the VM; ``say`` gets its lines that begin with "stage: ".

    Raises HostError with the end of its output if it fails, AgentError.
    """
    said, line = "", ""

    def hear(text: str) -> None:
        nonlocal said
        said = (said + text)[-_SAID_MAX:]

    def hear_stages(text: str) -> None:
        nonlocal line
        hear(text)
        *whole, line = (line + text).split("\n")
        for stage in whole:
            if stage.startswith(_STAGE):
                say(stage.removeprefix(_STAGE))

    params = execution.command_params(
        ["/bin/sh", "-eu", "-c", script],
        timeout=INSTALL_S,
        cwd="/",
        shell="/bin/sh",
        user=None,
        env=env,
    )
    command = await execution.spawn(session, params, stdin=False)
    result = await execution.run(command, stdin=None, on_stdout=hear_stages, on_stderr=hear)
    if result.exit_code:
        raise HostError(
            f"the packages could not be installed in the VM (exit code {result.exit_code}):\n{said}"
        )


async def take_out(session: Session, target: Path) -> None:
    """Write the guest's root file system to the tar archive ``target``. Raises HostError,
    AgentError."""
    params = execution.command_params(
        _PACK, timeout=INSTALL_S, cwd="/", shell="/bin/sh", user=None, env=None
    )
    said = b""
    async with await execution.spawn(session, params, stdin=False) as command:
        with target.open("wb") as file:
            async for stream, data in command.output():
                if stream is Stream.STDOUT:
                    await asyncio.to_thread(file.write, data)
                else:
                    said = (said + data)[-_SAID_MAX:]
    if command.status is None or command.status.exit_code:
        text = said.decode("utf-8", "replace")
        raise HostError(f"the system could not be taken out of the VM: {text}")
