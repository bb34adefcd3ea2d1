"""Provides QEMU: one that is there, or the distribution's packages, installed or unpacked.

A QEMU is returned only after a trial: a machine was started and ended over QMP.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any

from quicksand.base.errors import HostError, QemuNotFound, QuicksandError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.listing import own_directories
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.removal import make_marked, remove
from quicksand.base.tools import Progress, ToolError, run_tool
from quicksand.qemu import debs
from quicksand.qemu.advice import how_to_install
from quicksand.qemu.binaries import QemuBinaries, find_binaries, loader_env

PACKAGES = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}
MACHINES = {"x86_64": "q35", "aarch64": "virt"}
TOOLS_PACKAGE = "qemu-utils"
VERIFY_TIMEOUT_S = 60.0

_OURS = r"qemu-.*"
"""Installed packages to ignore when QEMU is unpacked, because their versions may conflict."""

_MISSING_LIBRARY = re.compile(r"loading shared libraries: (\S+): cannot open")
_LIBRARIES_MAX = 32


async def ensure_qemu(progress: Progress | None = None, *, arch: str = "x86_64") -> QemuBinaries:
    """Return a working QEMU for guests of ``arch``, getting it if there is none.

    It tries what `find_binaries` finds, the system's package manager (as root), and the
    distribution's packages unpacked in the user's data directory, in this order. Raises
    QemuNotFound, QemuTooOld or another HostError; neither that nor a cancellation leaves a
    half-made copy.
    """
    try:
        return await _find_verified(arch)
    except QuicksandError:
        if os.environ.get("QUICKSAND_QEMU_DIR"):
            raise
    if sys.platform == "darwin":
        await _install_with_brew(progress)
    elif debs.is_apt_host():
        return await _get_from_apt(arch, progress)
    else:
        raise QemuNotFound(f"qemu-system-{arch} was not found on this host", hint=how_to_install())
    return await _find_verified(arch)


async def _find_verified(arch: str) -> QemuBinaries:
    binaries = await asyncio.to_thread(find_binaries, arch)
    if binaries.img is None:
        raise QemuNotFound(
            "qemu-img was not found on this host", hint="install the package that holds it"
        )
    await verify(binaries, arch)
    return binaries


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
            f"{binaries.system} does not work: {error or type(error).__name__}",
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


async def _install_with_brew(progress: Progress | None) -> None:
    if shutil.which("brew") is None:
        raise QemuNotFound("QEMU was not found on this host", hint=how_to_install())
    if progress is not None:
        progress("installing qemu (brew)", 0, 1)
    await run_tool(["brew", "install", "qemu"], env={"HOMEBREW_NO_AUTO_UPDATE": "1"})


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
    """Make the relocated copy `<data>/qemu/<version>/`, which appears whole or not at all; beside a
    copy for guests of another architecture, which may be in use, `<version>-<arch>/`."""
    place = await asyncio.to_thread(make_private_dir, paths().data / "qemu")
    with map_os_errors(place):
        staging = make_marked(place / f".unpacking-{secrets.token_hex(4)}")
    try:
        root = staging / "root"
        root.mkdir(mode=0o755)
        version = await debs.unpack(packages, root, ignoring=_OURS, progress=progress)
        await _complete_libraries(root, arch)
        target = place / version.rpartition(":")[2]
        if target.exists() and not (target / "usr" / "bin" / f"qemu-system-{arch}").exists():
            target = target.with_name(f"{target.name}-{arch}")
        with map_os_errors(target):
            if own_directories(place, re.compile(re.escape(target.name))):
                # It exists and yet we are unpacking, so it does not work.
                target.rename(staging / "old")
            root.rename(target)
            sync_dir(place)
    finally:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(remove, staging)


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
