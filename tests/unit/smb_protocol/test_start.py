"""What a mount waits for before its server answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import quicksand_smb
from quicksand_smb.minimal_stdlib import Final, IntEnum, NamedTuple

SLOW: Final = {
    "collections", "contextlib", "dataclasses", "enum", "functools", "json", "logging", "pathlib",
    "re", "socket", "subprocess", "threading", "typing",
}  # fmt: skip
"""Modules that take longer to load than a dozen of the server's."""


def test_the_server_starts_without_modules_that_load_slowly() -> None:
    package = Path(quicksand_smb.__file__).parent
    code = (
        f"import sys; sys.path.insert(0, {str(package.parent)!r})\n"
        "from quicksand_smb import confine, seccomp\n"
        "from quicksand_smb.config import parse\n"
        "from quicksand_smb.server_state import ServerState\n"
        "import quicksand_smb.supervisor, quicksand_smb.server, quicksand_smb.command_line\n"
        'server = ServerState(parse(b\'{"shares": {"A": {"path": "/nowhere"}}}\'))\n'
        'quicksand_smb.command_line._reload_on_hangup(server, "/nowhere")\n'
        "print(*sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert not SLOW & set(ran.stdout.split())


class Shade(IntEnum):
    DARK = 1
    DEEP = 1
    LIGHT = 2


class Pair(NamedTuple):
    left: int
    right: int = 7


def test_minimal_enumerations_are_numbers_with_names() -> None:
    assert int(Shade.LIGHT) == 2
    assert Shade(1) is Shade.DARK
    assert [one.name for one in (Shade.DARK, Shade.DEEP)] == ["DARK", "DARK"]


def test_minimal_tuples_take_names_and_defaults() -> None:
    assert Pair(1) == Pair(left=1) == (1, 7)
    assert Pair(1)._replace(right=2).right == 2
    for wrong in ({}, {"left": 1, "other": 2}):
        try:
            Pair(**wrong)
        except TypeError:
            continue
        raise AssertionError(wrong)
