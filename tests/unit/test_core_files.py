"""No process of ours leaves its memory in a core file: there are secrets in it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.each import each

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path
    for room in ("engine", "extras", "quicksand_tui", "smb3", "terminal")
    for path in (ROOT / room).rglob("*.py")
    if '__name__ == "__main__"' in path.read_text() and path.parent.name != "examples"
)
START = 'ulimit -c unlimited; exec "$0" -c "$1"'
WITHOUT_SECRETS = {"probe_guard.py"}
"""They have no guest and no token."""


@each("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_of_ours_does_without(path: Path) -> None:
    if path.name in WITHOUT_SECRETS:
        return
    if path.name == "keeper.py":
        path = path.parent / "keeper_parts" / "entry.py"
    text = path.read_text()
    begin = text.find("\ndef main(")
    assert "no_core_files()" in text[begin if begin >= 0 else text.index("\nif __name__ ==") :]


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, reason="core files are off for all here"
)
@pytest.mark.parametrize(
    "program",
    [
        "from quicksand_tui.__main__ import no_core_files",
        "from quicksand.qemu.keeper_parts.bounds import no_core_files",
        "from quicksand_smb.confine import no_core_files",
    ],
)
def test_neither_a_file_is_written_nor_a_program_given_the_core(program: str) -> None:
    """A limit of 0 is none for a program that takes cores; one of 1 is (Linux, fs/coredump.c)."""
    ask = "no_core_files(); import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    result = subprocess.run(
        ["/bin/sh", "-c", START, sys.executable, f"{program}; {ask}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "(1, 1)\n"
