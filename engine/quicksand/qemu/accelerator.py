"""Finds the accelerator that works here by running a few guest instructions. Device files prove
little: on some hosts /dev/kvm opens, and yet guests abort or hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.effort import note
from quicksand.base.errors import AcceleratorError
from quicksand.base.paths import paths
from quicksand.base.processes import boot_id
from quicksand.base.threads import to_the_end
from quicksand.base.tools import Findings, program_key
from quicksand.qemu import probe_guard
from quicksand.qemu.binaries import QemuBinaries
from quicksand.records.config import Accelerator

PROBE_TIMEOUT_S = 4.0
"""A working accelerator needs 0.1 s for the probe, a second on a loaded host."""

EXIT_PORT = 0x501
PROBE_VALUE = 0x2A
PROBE_STATUS = PROBE_VALUE << 1 | 1
"""isa-debug-exit ends QEMU with the status (value << 1) | 1 (QEMU hw/misc/debugexit.c)."""

ROM_SIZE = 64 * 1024
"""Bytes of the smallest file that QEMU accepts as -bios on x86."""

X86_CODE = bytes.fromhex(
    "fa 31c0 8ed8"  # cli; xor ax,ax; mov ds,ax
    "66c706001003200000"  # movl 0x2003 -> [0x1000]: the PML4's entry for the first GiB
    "66c706002003300000"  # movl 0x3003 -> [0x2000]: page directory pointer
    "66c706003083000000"  # movl 0x83 -> [0x3000]: one 2 MiB page, which holds this code
    "0f20e0 6683c820 0f22e0"  # cr4 |= PAE
    "66b800100000 0f22d8"  # cr3 = 0x1000
    "66b9800000c0 0f32 660d00010000 0f30"  # EFER |= LME
    "2e660f01167800"  # lgdt cs:[0x78]
    "0f20c0 660d01000080 0f22c0"  # cr0 |= PG | PE
    "66ea5e000f000800"  # ljmp 8:0xf005e
    "66ba0105 b02a ee"  # long mode: mov dx,EXIT_PORT; mov al,PROBE_VALUE; out dx,al
    "f4 ebfd"  # hlt for ever
    "0000000000000000 ffff0000009aaf00"  # gdt: null, 64-bit code
    "0f00 68000f00"  # gdtr: 15 bytes at 0xf0068
)
"""From reset into long mode with paging, the way every Linux guest goes. Real mode alone proves
nothing: there are hosts with a broken KVM where it runs, and where this code hangs."""

X86_RESET = bytes.fromhex("ea000000f0").ljust(16, b"\x90")
"""At the reset vector FFFF:FFF0: ljmp F000:0000, the start of the ROM."""

ARM_CODE = b"".join(
    word.to_bytes(4, "little") for word in (0x52800100, 0x72B08000, 0xD4000002, 0x14000000)
)
"""mov w0,#8; movk w0,#0x8400,lsl 16; hvc #0; b . : PSCI SYSTEM_OFF (Arm DEN0022), status 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of probing one accelerator."""

    accelerator: Accelerator
    works: bool
    reason: str
    """Why it does not work; "" if it does."""
    seconds: float
    """The duration of the probe."""


@dataclass(frozen=True, slots=True)
class AcceleratorStatus:
    """The accelerator to use on this host, and why no faster one works."""

    available: Accelerator | None
    """The hardware accelerator that works, or None."""
    fallback: Accelerator = Accelerator.TCG
    error: str | None = None
    hint: str | None = None

    @property
    def accelerator(self) -> Accelerator:
        return self.available or self.fallback


def native_accelerator(platform: str = sys.platform) -> Accelerator | None:
    """Return the hardware accelerator that this kind of host could have, or None."""
    if platform.startswith("linux"):
        return Accelerator.KVM
    return {"darwin": Accelerator.HVF, "win32": Accelerator.WHPX}.get(platform)


async def find_accelerator(
    binaries: QemuBinaries, arch: Architecture | None = None, *, fresh: bool = False
) -> AcceleratorStatus:
    """Find the fastest accelerator that works for guests of ``arch``; a broken one is no error.

    Verdicts are cached until the host reboots or QEMU changes; ``fresh`` probes again. Raises
    HostError if the cache cannot be written.
    """
    arch = arch or Architecture.host()
    native = native_accelerator()
    if native is None:
        return AcceleratorStatus(None, error=f"no hardware accelerator is known for {sys.platform}")
    if arch is not Architecture.host():
        return AcceleratorStatus(
            None, error=f"a guest of another architecture ({arch.value}) has to be emulated"
        )
    verdict = await probe_cached(binaries, native, arch, fresh=fresh)
    if verdict.works:
        return AcceleratorStatus(native)
    return AcceleratorStatus(None, error=f"{native}: {verdict.reason}", hint=_hint(native))


async def choose_accelerator(
    binaries: QemuBinaries, wanted: Accelerator | str | None, arch: Architecture
) -> AcceleratorStatus:
    """Resolve an accelerator setting: "auto", a name, or None for TCG. Raises AcceleratorError if
    the accelerator that was asked for does not work, ValueError for an unknown name."""
    if wanted == "auto":
        return await find_accelerator(binaries, arch)
    if wanted is None or wanted == Accelerator.TCG:
        return AcceleratorStatus(None, error="TCG was asked for")
    accelerator = Accelerator(wanted)
    if arch is not Architecture.host():
        raise AcceleratorError(
            f"{accelerator} cannot run {arch.value} guests on this host",
            hint='use accel="auto": such guests are emulated',
        )
    verdict = await probe_cached(binaries, accelerator, arch)
    if not verdict.works:
        raise AcceleratorError(
            f"{accelerator} does not work here: {verdict.reason}",
            hint=f'{_hint(accelerator)}; or use accel="auto"',
        )
    return AcceleratorStatus(accelerator)


async def probe_cached(
    binaries: QemuBinaries, accelerator: Accelerator, arch: Architecture, *, fresh: bool = False
) -> Verdict:
    """Return the verdict on an accelerator, cached since boot for this QEMU unless ``fresh``."""
    key = _cache_key(binaries, accelerator, arch)
    verdicts = Findings("accelerators.json")
    found = verdicts.get(key)
    if not fresh and isinstance(found, dict) and {"works", "reason", "seconds"} <= found.keys():
        return Verdict(
            accelerator=accelerator,
            works=bool(found["works"]),
            reason=str(found["reason"]),
            seconds=float(found["seconds"]),
        )
    verdict = await probe(binaries, accelerator, arch)
    told = {"works": verdict.works, "reason": verdict.reason, "seconds": verdict.seconds}
    verdicts.put(key, told)
    return verdict


async def probe(binaries: QemuBinaries, accelerator: Accelerator, arch: Architecture) -> Verdict:
    """Run a few instructions of a throw-away guest on ``accelerator``. Raises OSError."""
    started = time.monotonic()
    reason = _obvious_reason(accelerator)
    if not reason:
        with tempfile.TemporaryDirectory(prefix="quicksand-probe-") as directory:
            rom = Path(directory) / "probe.rom"
            rom.write_bytes(_rom(arch))
            reason = await _run_probe(binaries, accelerator, arch, rom)
    seconds = round(time.monotonic() - started, 3)
    return Verdict(accelerator=accelerator, works=not reason, reason=reason, seconds=seconds)


def plan_probe(accelerator: Accelerator, arch: Architecture, rom: Path) -> list[str]:
    """Return QEMU's arguments for the probe."""
    model = "max" if accelerator in (Accelerator.TCG, Accelerator.WHPX) else "host"
    machine = "q35,usb=off,vmport=off,graphics=off" if arch is Architecture.X86_64 else "virt"
    arguments = ["-nodefaults", "-no-user-config", "-display", "none", "-machine", machine]
    arguments += ["-accel", accelerator.value, "-cpu", model, "-m", "16M", "-bios", str(rom)]
    if arch is Architecture.X86_64:
        arguments += ["-device", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1"]
    return arguments


def _rom(arch: Architecture) -> bytes:
    if arch is Architecture.ARM64:
        return ARM_CODE
    return X86_CODE.ljust(ROM_SIZE - len(X86_RESET), b"\x00") + X86_RESET


async def _run_probe(
    binaries: QemuBinaries, accelerator: Accelerator, arch: Architecture, rom: Path
) -> str:
    """Run the probe; return "" if the guest's instructions ran, else why they did not."""
    argv = [sys.executable, "-I", "-S", probe_guard.__file__]
    argv += [*(f"{name}={value}" for name, value in binaries.env.items()), "--"]
    argv += [str(binaries.system), *binaries.firmware_arguments]
    lifeline_read, lifeline = os.pipe()
    with contextlib.ExitStack() as cut:
        cut.callback(os.close, lifeline)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                *plan_probe(accelerator, arch, rom),
                stdin=lifeline_read,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        finally:
            os.close(lifeline_read)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, said = await process.communicate()
        except TimeoutError:
            return f"a guest on it did not run its first instructions within {PROBE_TIMEOUT_S:g} s"
        finally:
            cut.close()
            await to_the_end(process.wait())
    expected = PROBE_STATUS if arch is Architecture.X86_64 else 0
    if process.returncode == expected:
        return ""
    log = paths().engine_log
    note(log, f"QEMU failed on {accelerator}: {said.decode('utf-8', 'replace').strip()}")
    return f"QEMU cannot run a guest on it ({log} has what it said)"


def _obvious_reason(accelerator: Accelerator) -> str:
    """Return why ``accelerator`` cannot work, if that shows without running anything, else ""."""
    if accelerator is Accelerator.KVM:
        if not Path("/dev/kvm").exists():
            return "/dev/kvm does not exist"
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return "/dev/kvm cannot be opened by this user"
    native = native_accelerator()
    if accelerator is not Accelerator.TCG and accelerator is not native:
        return f"{accelerator} does not exist on {sys.platform}"
    return ""


def _hint(accelerator: Accelerator) -> str:
    match accelerator:
        case Accelerator.KVM:
            return (
                "load kvm_intel or kvm_amd, join the group kvm; in a cloud VM, enable nested "
                "virtualization"
            )
        case Accelerator.HVF:
            return (
                "macOS needs a QEMU that is signed with the hypervisor entitlement (Homebrew's is)"
            )
        case Accelerator.WHPX:
            return "enable the Windows feature 'Windows Hypervisor Platform'"
        case _:
            return ""


def _cache_key(binaries: QemuBinaries, accelerator: Accelerator, arch: Architecture) -> str:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return f"{boot_id()}:{program_key(binaries.system)}:{user}:{accelerator}:{arch.value}"
