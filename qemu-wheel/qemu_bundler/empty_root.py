"""Tries a bundle where there is nothing else: in a root directory with its files and glibc alone,
as a user who is nobody's.

What is not in the bundle cannot be found there, wherever a program looks for it. A machine with
every device that ours have is made and not run: so firmware, keymaps and modules are found, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.qemu.offers import MACHINES, needed_types

from qemu_bundler.bundle import Bundle, BundleError
from qemu_bundler.elf import Elf, find_elves
from qemu_bundler.glibc import HOST_LIBRARIES, LOADERS
from qemu_bundler.linux import Unpacked, find

USER_ID = 47110
"""Of nobody: accounts of people begin at 1000, dynamic ones of systemd at 61184 (UIDS-GIDS.md)."""

TIMEOUT_S = 60.0
PLACE = "/qemu"
"""The bundle in the empty root: not where it was made."""

_QUESTIONS = ("qmp_capabilities", "query-status", "qom-list-types", "query-machines", "quit")

_CHROOT = """\
import os, sys
root, user = sys.argv[1], int(sys.argv[2])
os.chroot(root)
os.chdir("/")
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
os.execve(sys.argv[4], sys.argv[4:], dict(word.split("=", 1) for word in sys.argv[3].split()))
"""
"""Changes to a root and a user, then runs a program: ROOT USER VARIABLES PROGRAM ARG..."""

_VARIABLES = f"QEMU_MODULE_DIR={PLACE}/lib/qemu LD_ORIGIN_PATH={PLACE}"
"""The loader asks /proc, which is not there, what $ORIGIN is, and then the second of these
(glibc elf/dl-origin.c)."""


def try_bundle(
    bundle: Bundle, packages: Sequence[Unpacked], guests: Sequence[str], root: Path
) -> None:
    """Make an empty root in the directory ``root`` and try the bundle in it. Raises BundleError if
    something is missing, or if this user can enter no other root."""
    elves = find_elves(bundle.root)
    furnish(bundle, packages, elves, root)
    enter = how_to_enter(root)
    _run([*enter, f"{PLACE}/qemu-img", "create", "-f", "qcow2", "/tmp/disk", "1M"])  # noqa: S108
    for guest in guests:
        program = f"{PLACE}/qemu-system-{guest}"
        check_machine(guest, _run([*enter, program, *plan_machine(guest)], talk=_talk()))


def furnish(bundle: Bundle, packages: Sequence[Unpacked], elves: Sequence[Elf], root: Path) -> None:
    """Put the bundle and the distribution's glibc into ``root``. Raises BundleError, OSError."""
    shutil.copytree(bundle.root, root / PLACE.strip("/"))
    for name in ("tmp", "dev"):
        (root / name).mkdir()
        (root / name).chmod(0o1777)
    # It is no device: nothing is read from it, but a generator of random numbers must open it.
    (root / "dev" / "urandom").touch(mode=0o644)
    machine = elves[0].machine
    triplet = f"{machine}-linux-gnu"
    for name in sorted(HOST_LIBRARIES):
        try:
            found, _ = find(packages, [f"{place}/{triplet}/{name}" for place in ("lib", "usr/lib")])
        except BundleError:  # it is of another machine
            continue
        _copy(found, root / "lib" / triplet / name)
    loader = LOADERS[machine]
    _copy(root / "lib" / triplet / Path(loader).name, root / loader.strip("/"))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def how_to_enter(root: Path) -> list[str]:
    """The beginning of a command line that runs a program in ``root``: as root by chroot, and as
    nobody in there; else in a user namespace. Raises BundleError where neither is allowed."""
    code = [sys.executable, "-I", "-S", "-c", _CHROOT, str(root)]
    ways = [[*code, str(USER_ID), _VARIABLES]] if os.geteuid() == 0 else []
    if (unshare := shutil.which("unshare")) is not None:
        ways += [[unshare, "--user", "--map-root-user", *code, "0", _VARIABLES]]
    said = "there is no way to enter one"
    for way in ways:
        done = subprocess.run(
            [*way, f"{PLACE}/qemu-img", "--version"], capture_output=True, check=False
        )
        if done.returncode == 0:
            return way
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
    raise BundleError(
        f"the bundle does not run in an empty root: {said} (to enter one takes root, or a user who "
        "may make namespaces)"
    )


def plan_machine(guest: str) -> list[str]:
    """QEMU's arguments for a machine with a display that is made and not run."""
    arch = Architecture.parse(guest)
    words = ["-L", f"{PLACE}/share/qemu", "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-S", "-machine", MACHINES[arch], "-accel", "tcg", "-cpu", "max", "-m", "64M"]
    words += ["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0"]
    words += ["-blockdev", "qcow2,node-name=disk,file.driver=file,file.filename=/tmp/disk"]
    words += ["-device", "virtio-blk-pci,drive=disk"]
    words += ["-device", "virtio-gpu-pci", "-device", "virtio-keyboard-pci"]
    words += ["-device", "virtio-tablet-pci", "-vnc", "unix:/tmp/vnc"]
    words += ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]
    return [*words, "-qmp", "stdio"]


def _talk() -> str:
    return "".join(json.dumps({"execute": question}) + "\n" for question in _QUESTIONS)


def check_machine(guest: str, output: str) -> None:
    """Check what an emulator has answered: that its machine stood before its first instruction, and
    which types it knows. Raises BundleError."""
    replies = [json.loads(line).get("return") for line in output.splitlines()]
    statuses = [one["status"] for one in replies if isinstance(one, dict) and "status" in one]
    if statuses != ["prelaunch"]:
        raise BundleError(f"qemu-system-{guest} made no machine in an empty root: {output[:500]}")
    lists = [one for one in replies if isinstance(one, list)]
    known = {item.get(key) for one in lists for item in one for key in ("name", "alias")}
    needed = needed_types(Architecture.parse(guest), display=True)
    if lacking := needed - known:
        raise BundleError(f"qemu-system-{guest} lacks {', '.join(sorted(lacking))}")


def _run(argv: Sequence[str], talk: str = "") -> str:
    done = subprocess.run(
        argv, input=talk, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise BundleError(f"in an empty root {argv[-1]} failed: {done.stderr.strip()[-800:]}")
    return done.stdout
