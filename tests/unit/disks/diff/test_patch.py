"""Patches of the differences between two disks, applied by the programs that users have."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from quicksand_disks.changes import FileType
from quicksand_disks.comparing.versions import (
    FILE_MAX,
    FileVersions,
    Patch,
    Version,
    VersionReader,
    count_lines,
    make_patch,
)
from quicksand_disks.ext4.filesystem import FileSystem

from tests.unit.disks.diff.disks import Maker, MemoryDisk, diff_bytes, fill

Tree = dict[str, bytes | str | None]

BEFORE: Tree = {
    "etc": None,
    "etc/hosts": b"127.0.0.1 localhost\n",
    "etc/no end": b"one\ntwo",
    "gone": None,
    "gone/deep": None,
    "gone/deep/file": b"1\n2\n",
    "same": b"same\n",
    "link": "same",
    "turned": b"a file\n",
    "was-dir": None,
    "was-dir/in": b"in\n",
    "long": b"".join(b"line %d\n" % n for n in range(400)),
    "emptied": b"x\n",
}
AFTER: Tree = {
    "etc": None,
    "etc/hosts": b"127.0.0.1 localhost\n10.0.2.2 host\n",
    "etc/no end": b"one\ntwo\nthree",
    "same": b"same\n",
    "link": "etc/hosts",
    "turned": "same",
    "was-dir": "/etc",
    "long": b"".join(b"line %d\n" % n for n in range(400) if n not in (7, 8, 200, 399)),
    "emptied": b"",
    'new file\twith "odd" \\name\n': b"odd\n",
    "caf\u00e9": b"no end",
    "empty": b"",
}


def patch_of(maker: Maker, place: Path, before: Tree, after: Tree) -> Patch:
    a, b = (
        maker.filesystem(fill(place / name, tree)) for name, tree in (("a", before), ("b", after))
    )
    reader = VersionReader(*(FileSystem(MemoryDisk(disk)) for disk in (a, b)))
    return make_patch(reader.read(change.path, most=FILE_MAX) for change in diff_bytes(a, b))


def contents(tree: Path) -> dict[str, bytes | str]:
    """Files and links; what else there is, and git's own directory, is left out."""
    found: dict[str, bytes | str] = {}
    for path in tree.rglob("*"):
        name = str(path.relative_to(tree))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and not name.startswith(".git/"):
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize(
    "program", [["git", "apply"], ["patch", "-p1", "-s"]], ids=["git", "patch"]
)
def test_the_programs_turn_the_first_tree_into_the_second(
    program: list[str], maker: Maker, tmp_path: Path
) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    before, after = dict(BEFORE), dict(AFTER)
    if program[0] == "patch":  # it cannot put a link where a directory was
        del before["was-dir"], before["was-dir/in"], after["was-dir"]
    patch = patch_of(maker, tmp_path, before, after)
    assert patch.left_out == ()
    if program[0] == "git":
        subprocess.run(["git", "init", "-q"], cwd=tmp_path / "a", check=True)
    done = subprocess.run(
        program,
        input=patch.data,
        cwd=tmp_path / "a",
        env={**os.environ, "TMPDIR": str(tmp_path)},  # the system's may be another user's
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_changed_mode_is_applied(maker: Maker, tmp_path: Path) -> None:
    disk = maker.filesystem(fill(tmp_path / "a", {"run": b"#!/bin/sh\n"}))
    after = maker.debug(disk, "set_inode_field run mode 0100755")
    reader = VersionReader(*(FileSystem(MemoryDisk(one)) for one in (disk, after)))
    patch = make_patch([reader.read("/run", most=FILE_MAX)])
    (tmp_path / "a" / "run").chmod(0o644)
    subprocess.run(["git", "apply"], input=patch.data, cwd=tmp_path / "a", check=True)
    assert (tmp_path / "a" / "run").stat().st_mode & stat.S_IXUSR


def test_what_no_patch_can_say_is_named_with_its_reason(maker: Maker, tmp_path: Path) -> None:
    after: Tree = {"large": bytes(FILE_MAX + 1), "binary": b"\0\1\2", "text": b"text\n"}
    patch = patch_of(maker, tmp_path, {}, after)
    assert dict(patch.left_out) == {
        "/binary": "it is binary",
        "/large": f"it has {FILE_MAX + 1} bytes",
    }
    assert patch.data.startswith(b"# left out: /binary: it is binary\n")
    subprocess.run(["git", "apply"], input=patch.data, cwd=tmp_path / "a", check=True)
    assert contents(tmp_path / "a") == {"text": b"text\n"}


def test_a_name_cannot_smuggle_a_header_into_a_patch() -> None:
    name = "/x\n--- a/etc/passwd\n+++ b/etc/passwd\n@@ -1 +1 @@\n-x\n+y\n\udcff\x1b[2J"
    text = Version(type=FileType.FILE, mode=0o644, size=2, data=b"1\n")
    binary = Version(type=FileType.FILE, mode=0o644, size=2, data=b"\0\n")
    files = [FileVersions(path=name, before=None, after=each) for each in (text, binary)]
    patch = make_patch(files)
    heads = [line for line in patch.data.splitlines() if line.startswith((b"---", b"+++", b"@@"))]
    assert len(heads) == 3
    assert b"\x1b" not in patch.data
    assert b"\\377" in patch.data


def test_lines_are_counted_of_small_texts_only(maker: Maker, tmp_path: Path) -> None:
    a, b = (
        maker.filesystem(fill(tmp_path / name, tree))
        for name, tree in (
            ("a", {"t": b"1\n2\n3\n", "gone": b"1\n", "bin": b"\0"}),
            ("b", {"t": b"1\n2 \n3\n4\n", "new": b"1\n2\n", "bin": b"\0\0", "big": b"x" * 300_000}),
        )
    )
    reader = VersionReader(*(FileSystem(MemoryDisk(disk)) for disk in (a, b)))
    assert dict(count_lines(reader, diff_bytes(a, b))) == {
        "/t": (2, 1),
        "/gone": (0, 1),
        "/new": (2, 0),
    }
