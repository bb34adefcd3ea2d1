"""A mounted directory does what programs in the guest expect (in_guest/checks.py).

A slice of pjdfstest and of Connectathon runs too. Where a mount differs from the guest's own disk,
the difference is listed here with its reason (docs/internals/mounts.md, "What is not kept")."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from tests.integration.mounts.shared.conftest import ROOT, Both

pytestmark = pytest.mark.vm

DISK = "/tmp/posix"
"""Below ROOT: on the guest's own disk."""

Differences = dict[str, tuple[object, object]]
"""Of each case: on the disk, on the mount."""

NAMES: Differences = {
    # The guest's client has nothing for pipes that sets modes and times: both are forgotten.
    "chmod: pipe: then": ({"./pipe": ["0o10711", 1, 0, False]}, None),
    "utime: pipe: then": ({"./pipe": ["0o10644", 1, 0, True]}, None),
    "lutime: pipe: then": ({"./pipe": ["0o10644", 1, 0, True]}, None),
    # It asks for the file system of the file, which it opens as one that has data.
    "statvfs: pipe": (255, "ENOTSUP"),
}
FILES: Differences = {
    # The owners of the guest are not the host's: chown is agreed to, and does nothing.
    "owners": (
        [*[None] * 5, 0, 0, 12, 0, 0, 34, 56, 78, 0, 0],
        [*[None] * 5, *[0] * 10],
    ),
    # Nothing that a guest makes is set-id on the host.
    "set_id_bits": ([None, None, *["0o6755"] * 3], [None, None, *["0o755"] * 3]),
    # `noperm`: the server decides, by the rights of the user who runs it.
    "of_a_stranger_in_the_guest": (
        ["EACCES", 7, "EACCES", "EACCES", "EACCES", "EACCES"],
        [7, 7, None, [], None, None],
    ),
    # SMB's times have steps of 100 ns.
    "times_that_are_set": (
        [*[[200, 0]] * 6, [10**18, 0], True],
        [[200, 0], [199, -1], *[[200, 0]] * 4, [10**18, 0], True],
    ),
    # The client sets modes by name, and this file has none; nor is it told that the last is gone.
    "what_is_unlinked_lives_while_it_is_open": (
        [1, 0, "first and more", 3, [], None, "fir", "another", ["f"]],
        [1, 0, "first and more", 3, [], "ENOENT", "fir", "another", ["f"]],
    ),
    "what_is_renamed_over_lives_while_it_is_open": (
        ["old", "new", 0, "old!", "new", ["old"]],
        ["old", "new", 1, "old!", "new", ["old"]],
    ),
    "a_directory_that_was_removed": ([[], "ENOENT", "ENOENT"], ["ENOENT", "ENOENT", "ENOENT"]),
}


async def told(both: Both, program: str, on_disk: bool) -> dict[str, Any]:
    name, *words = program.split()
    argv = [sys._base_executable, "-I", "-S", f"/tmp/{name}.py", *words]  # type: ignore[attr-defined]
    where = f"mkdir {DISK} && cd {DISK} && " if on_disk else ""
    text = await both.run(where + shlex.join(argv), within=120)
    if on_disk:
        await both.vm.execute(f"rm -rf {ROOT}{DISK}")
    found: dict[str, Any] = json.loads(text)
    return found


async def test_programs_find_what_they_expect(both: Both) -> None:
    await both.python("checks", "all", within=120)


@pytest.mark.parametrize(
    ("program", "known"),
    [
        ("posix_names few", NAMES),
        pytest.param("posix_names", NAMES, marks=pytest.mark.soak),
        ("posix_files", FILES),
    ],
)
async def test_a_mount_differs_from_a_disk_in_what_is_listed(
    both: Both, program: str, known: Differences
) -> None:
    disk = await told(both, program, on_disk=True)
    mount = await told(both, program, on_disk=False)
    assert len(disk) > 20
    differences = {
        case: (disk.get(case), mount.get(case))
        for case in disk | mount
        if disk.get(case) != mount.get(case)
    }
    assert differences == known
