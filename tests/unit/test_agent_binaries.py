"""The guest agents that are committed: for each architecture one that needs nothing of its guest,
and that is built from the sources beside it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.disks.images.boot_files import find_agent, kernel_arch

from tests.each import each

AGENT = Path(__file__).parents[2] / "guest-agent"
PT_LOAD, PT_INTERP = 1, 3
"""Types of segments (elf.h)."""


def check(place: Path) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(place / "build.sh"), "--check"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@each("arch", Architecture)
def test_each_architecture_has_an_agent_that_needs_no_library(arch: Architecture) -> None:
    elf = find_agent(arch).read_bytes()
    assert kernel_arch(elf) is arch, "the processor in its ELF header"
    table, size, count = (
        struct.unpack_from(kind, elf, at)[0] for kind, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    kinds = {struct.unpack_from("<I", elf, table + size * number)[0] for number in range(count)}
    assert PT_LOAD in kinds
    assert PT_INTERP not in kinds, "nothing there would load its libraries"


def test_all_of_them_fit_their_sources() -> None:
    done = check(AGENT)
    assert done.returncode == 0, done.stderr


@each(
    ("file", "told"),
    [
        ("src/main.rs", "prebuilt/x86_64"),
        ("Cargo.lock", "prebuilt/x86_64"),
        ("prebuilt/x86_64/quicksand-agent", "prebuilt/x86_64"),
        ("prebuilt/aarch64/quicksand-agent", "prebuilt/aarch64"),
        ("prebuilt/aarch64/SOURCES.sha256", "prebuilt/aarch64"),
    ],
)
def test_one_that_does_not_is_named(tmp_path: Path, file: str, told: str) -> None:
    place = tmp_path / "guest-agent"
    shutil.copytree(AGENT, place, ignore=shutil.ignore_patterns("target"))
    with (place / file).open("ab") as changed:
        changed.write(b"\n//\n")
    done = check(place)
    assert done.returncode == 1
    assert f"{told} is not built from these sources; run make agent" in done.stderr
