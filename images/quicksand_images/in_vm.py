"""Makes a root file system without root or user namespaces: we download and unpack packages, and a
VM runs the programs that need root."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from quicksand.base.arch import Architecture
from quicksand.base.errors import DiskSpaceError, HostError, QuicksandError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import paths
from quicksand.base.progress import Progress
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end, to_the_end
from quicksand.disks.images.boot_files import build_cpio
from quicksand.disks.images.stored_image import StoredImage
from quicksand.guest import execution
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.process import OwnedProcess
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.snapshots.history import history_of
from quicksand.warm.starting import boot

from quicksand_images import disk, kernel
from quicksand_images.benches import Bench, Opened
from quicksand_images.debfile import read_deb
from quicksand_images.log import BuildLog
from quicksand_images.packages import Packages
from quicksand_images.recipe import Recipe
from quicksand_images.rootfs import DPKG_CONFIG, WORK, RootTree, hook_environment, unpack_tree
from quicksand_images.shares import IN_VM

T = TypeVar("T")

MEMORY = "1G"
CPUS_MAX = 4
BOOT_S = 300.0
INSTALL_S = 3600.0
"""Seconds that the packages' scripts may take, emulated on a slow host."""
POWEROFF_S = 120.0
SPACE_POLL_S = 1.0
"""Seconds between two looks at whether the guest waits for space on the host's disk."""
HANDED = "quicksand-build"
"""The serial number by which a guest finds the disk with the files handed to it."""

_STAGE = "stage: "
_SAID_MAX = 4000
_PACK = (
    "mount --bind / /mnt && exec tar -C /mnt --one-file-system --numeric-owner --sort=name "
    "--exclude=./lost+found -cf - ."
)
"""A command that writes the system to its output as a tar archive, by GNU tar."""

_PACKAGE_LINES = ("Unpacking ", "Setting up ")
"""The beginnings of dpkg's lines for each package, once each."""


class Counted:
    """Counts dpkg's progress by its lines for each package."""

    def __init__(self, log: BuildLog, packages: Mapping[str, int], where: str = "") -> None:
        """``packages``: the number for each stage that installs some; ``where``, if given, is
        appended to the names of the stages."""
        self._log = log
        self._where = where
        self._packages = packages
        self._stage = ""
        self._heard = self._total = 0
        self._line = ""

    def stage(self, name: str) -> None:
        """Take a stage of the script."""
        self._heard, self._total = 0, self._packages.get(name, 0) * len(_PACKAGE_LINES)
        self._stage = f"{name}{self._where}"
        self._tell()

    def hear(self, text: str) -> None:
        """Take output of the script, and note it."""
        self._log.write(text)
        *whole, line = (self._line + text).split("\n")
        self._line = line[-_SAID_MAX:]
        if found := sum(one.startswith(_PACKAGE_LINES) for one in whole):
            self._heard += found
            self._tell()

    def _tell(self) -> None:
        self._log.stage(self._stage, min(self._heard, self._total), self._total)


async def make_tree(
    recipe: Recipe,
    place: Path,
    *,
    bench: Bench,
    binaries: QemuBinaries,
    log: BuildLog,
) -> RootTree:
    """Make the root file system of ``recipe`` in ``place``, a private directory.

    Raises HostError (ToolError), MachineError, AgentError. A cancellation leaves no process.
    """
    say = log.stage
    log.follow(IN_VM)
    with map_os_errors(place):
        async with bench.opened(apt=True) as opened:
            await _prepare(recipe, place, opened, binaries, say)
        work = place / "base" / WORK
        packages = {
            "installing the base system": len([*work.glob("base/*.deb")]),
            "installing packages": len([*work.glob("more/*.deb")]),
        }
        say("booting a VM", 0, 0)
        config = build_config(str(place / "base.qcow2"), arch=recipe.arch)
        async with run_machine(place, config) as running:
            await running.guarded(
                _install(running.session, recipe, Counted(log, packages, " in a VM"))
            )
            say("taking the system out of the VM", 0, 0)
            await running.guarded(take_out(running.session, place / "tree.tar"))
        return await unpack_tree(place / "tree.tar")


async def _prepare(
    recipe: Recipe,
    place: Path,
    opened: Opened,
    binaries: QemuBinaries,
    say: Progress,
) -> None:
    """Make the kernel, the initrd and the disk with which the VM boots."""
    say("fetching the lists of packages", 0, 0)
    packages = await opened.packages(recipe.system, recipe.arch, place / "apt")
    await packages.update()
    base = place / "base"
    base.mkdir(mode=0o755)
    say("downloading packages", 0, 0)
    await _lay_out(recipe, packages, base, say)
    say("making a disk to install on", 0, 0)
    await asyncio.to_thread(make_boot_files, recipe, base, place)
    await disk.make_scratch(base, place / "base.qcow2", recipe.disk, opened.makers, binaries)


async def _lay_out(recipe: Recipe, packages: Packages, base: Path, say: Progress) -> None:
    """Fill ``base`` with the unpacked base system and, in its work directory, all packages."""
    work = base / WORK
    work.mkdir(mode=0o755)
    first = await packages.download_base()
    everything = await packages.download(recipe.system.packages, upgrade=True)
    real = await packages.dependency(recipe.kernel.package, r"linux-image-\S+")
    # Ubuntu has the modules in a package of their own.
    modules = await packages.dependency(real, r"linux-modules-\S+")
    kernels = await packages.download_alone(dict.fromkeys([real, modules]), packages.root)
    (xz,) = await packages.download_alone(["xz-utils"], packages.root)
    say("unpacking packages", 0, 0)
    await in_stoppable_thread(lambda stop: _unpack_base(base, first, everything, stop))
    await in_thread_to_the_end(lambda: _unpack_kernel(work, kernels, xz))
    wanted = {path.name for path in first}
    automatic = {p.name.split("_")[0] for p in everything if p.name not in wanted}
    automatic -= set(recipe.system.packages)
    (work / "automatic").write_text("".join(f"{name}\n" for name in sorted(automatic)))


def _unpack_base(
    base: Path, first: list[Path], everything: list[Path], stop: Callable[[], None]
) -> None:
    configs = base / "etc" / "dpkg" / "dpkg.cfg.d"
    configs.mkdir(parents=True)
    config = configs / "90quicksand"
    config.write_text(DPKG_CONFIG, encoding="ascii")
    # Files that come from no package get their modes, too, whatever the umask is.
    config.chmod(0o644)
    for directory in (configs, *configs.parents[:3]):
        directory.chmod(0o755)
    for kind in ("base", "more"):
        (base / WORK / kind).mkdir()
    owners: dict[str, str] = {}
    # base-files contains the links of a merged /usr, through which other packages write.
    for path in sorted(everything, key=lambda path: not path.name.startswith("base-files_")):
        stop()
        deb = read_deb(path)
        if path in first:
            deb.extract(base)
            owners |= deb.directory_owners()
        deb.write(base / WORK / ("base" if path in first else "more") / path.name)
        path.unlink()
    text = "".join(f"{owner} {path}\n" for path, owner in sorted(owners.items()))
    (base / WORK / "owners").write_text(text, encoding="utf-8")


def _unpack_kernel(work: Path, packages: list[Path], xz: Path) -> None:
    """Unpack the kernel and xz, which the configuring script cannot download in the VM. The first
    of the ``packages`` has the kernel itself."""
    debs = [read_deb(package) for package in packages]
    for name, contents in (("kernel", debs), ("xz", [read_deb(xz)])):
        (work / name).mkdir()
        for content in contents:
            content.extract(work / name)
    fields = debs[0].fields()
    text = "".join(f"{key}: {fields[key]}\n" for key in ("Package", "Version"))
    (work / "kernel-package").write_text(text, encoding="utf-8")


def make_boot_files(recipe: Recipe, base: Path, place: Path) -> None:
    """Make the kernel and the initrd that boot ``base``, from the image's own kernel package, which
    lies unpacked in `kernel` of its work directory. Raises HostError, ImageError."""
    unpacked = base / WORK / "kernel"
    modules = next(iter(sorted(_module_trees(unpacked))), None)
    if modules is None:
        raise HostError(f"the package {recipe.kernel.package} holds no kernel modules")
    # Debian names it by its release, Alpine by its kind.
    bzimage = next(iter(sorted(unpacked.glob("boot/vmlinuz-*"))), None)
    if bzimage is None:
        raise HostError(f"the package {recipe.kernel.package} holds no kernel")
    shutil.copyfile(bzimage, place / "base.kernel")
    entries = kernel.initrd_entries(modules, recipe.kernel.boot_modules)
    (place / "base.initrd").write_bytes(build_cpio(entries))


def _module_trees(unpacked: Path) -> list[Path]:
    """Return the module trees: Debian's packages have /usr merged, Ubuntu's do not."""
    return [*unpacked.glob("usr/lib/modules/*"), *unpacked.glob("lib/modules/*")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildMachine:
    """A VM of a build."""

    session: Session
    registry: Registry
    record: Record
    process: OwnedProcess

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` in the guest. Raises DiskSpaceError, and ends it, when the guest must wait
        for space on this host's disk; it would wait for ever."""
        mark = runtime_dir(self.registry.paths, self.record.id).current().disk_full
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=SPACE_POLL_S))[0]:
                if mark.exists():
                    raise DiskSpaceError(
                        "no space left for the disk of the machine in which the image is made",
                        hint="free some disk space and try again",
                    )
            return task.result()
        finally:
            task.cancel()
            # Its own error has been raised, or one that tells more.
            with contextlib.suppress(asyncio.CancelledError, QuicksandError):
                await task

    async def power_off(self) -> None:
        """Have the guest write all its data and end. Raises HostError, AgentError."""
        params = {"mode": "poweroff", "grace": 3.0}
        await self.session.request("shutdown", params, timeout=POWEROFF_S)
        try:
            async with asyncio.timeout(POWEROFF_S):
                await self.process.wait()
        except TimeoutError as error:
            raise HostError(
                f"the machine of the build did not end within {POWEROFF_S:g} s"
            ) from error

    def top(self) -> Path:
        """Return the layer to which the guest has written. Raises HistoryError."""
        head = history_of(self.registry, self.record.id).head()
        if head is None or head.layers:
            raise HostError("the machine of the build has more layers than one")
        return sandbox_dir(self.registry.paths, self.record.id).layer(head.top)


@contextlib.asynccontextmanager
async def machine(place: Path, arch: Architecture | None = None) -> AsyncIterator[Session]:
    """Run a VM with the disk, kernel and initrd ``place``/base.*. Raises as `run_machine`."""
    async with run_machine(place, build_config(str(place / "base.qcow2"), arch=arch)) as running:
        yield running.session


def build_config(
    image: str,
    *,
    arch: Architecture | None = None,
    network: NetworkMode = NetworkMode.NONE,
    handed: Path | None = None,
    disk_size: str | None = None,
) -> SandboxConfig:
    """Return the config of a VM of a build, which can read the raw disk ``handed``."""
    return SandboxConfig(
        image=image,
        disk_size=disk_size,
        arch=arch,
        memory=MEMORY,
        cpus=max(1, min(CPUS_MAX, len(os.sched_getaffinity(0)))),
        network_mode=network,
        boot_timeout=BOOT_S,
        extra_qemu_args=() if handed is None else _plan_handed(handed),
    )


def _plan_handed(path: Path) -> tuple[str, ...]:
    file = {"driver": "file", "filename": str(path), "read-only": True}
    node = {"driver": "raw", "node-name": "handed", "file": file, "read-only": True}
    device = {"driver": "virtio-blk-pci", "drive": "handed", "serial": HANDED}
    return ("-blockdev", json.dumps(node), "-device", json.dumps(device))


@contextlib.asynccontextmanager
async def run_machine(
    place: Path, config: SandboxConfig, *, image: StoredImage | None = None
) -> AsyncIterator[BuildMachine]:
    """Run a VM whose files are in ``place``, invisible to others; it dies with this process.
    ``image`` is its image, if that is in the store. Raises HostError, MachineError,
    AgentError."""
    record = Record(
        id=new_id(),
        name="image-build",
        config=config,
        image_digest="" if image is None else image.digest,
        chain=(config.image,) if image is None else tuple(map(str, image.chain)),
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
        yield BuildMachine(
            session=await running.link.session(),
            registry=own,
            record=record,
            process=running.process,
        )
    finally:
        running.link.close()
        running.process.cut()
        await to_the_end(running.process.wait())


async def _install(session: Session, recipe: Recipe, counted: Counted) -> None:
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
    await run_script(session, script, env, counted.stage, log=counted.hear)


async def run_script(
    session: Session,
    script: str,
    env: Mapping[str, str],
    say: Callable[[str], None],
    *,
    log: Callable[[str], None] | None = None,
    failure: str = "the packages could not be installed in the VM",
) -> None:
    """Run a shell script as root in the VM; ``say`` gets its lines that begin with "stage: ", and
    ``log`` all output.

    Raises HostError with ``failure`` and the end of its output if it fails, AgentError.
    """
    said, line = "", ""

    def hear(text: str) -> None:
        nonlocal said
        said = (said + text)[-_SAID_MAX:]
        if log is not None:
            log(text)

    def hear_stages(text: str) -> None:
        nonlocal line
        hear(text)
        *whole, line = (line + text).split("\n")
        line = line[-_SAID_MAX:]
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
        raise HostError(f"{failure} (exit code {result.exit_code}):\n{said}")


async def take_out(session: Session, target: Path, pack: str = _PACK) -> None:
    """Write the new system to the tar archive ``target``, which the command ``pack`` writes to its
    output; by default it is the guest's own. Raises HostError, AgentError."""
    params = execution.command_params(
        pack, timeout=INSTALL_S, cwd="/", shell="/bin/sh", user=None, env=None
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
