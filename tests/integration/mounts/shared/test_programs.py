"""Programs of the host's, run in the guest on a mounted directory."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from tests.integration.mounts.shared.conftest import Both

pytestmark = pytest.mark.vm

MIB = 1 << 20
ROOT = Path(__file__).parents[4]


def git(where: Path, *words: str) -> str:
    """The host's git, with no configuration but its own."""
    argv = ["git", "-c", "user.name=T", "-c", "user.email=t@t", "-c", "safe.directory=*", *words]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    result = subprocess.run(argv, cwd=where, env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def make_tree(root: Path, *, files: int) -> None:
    """As a project has it: small files in many directories, some programs, links."""
    draw = random.Random(7)
    for number in range(files):
        path = root / f"d{number % 23}" / f"e{number % 7}" / f"file-{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.choice((0, 10, 500, 4096, 9000))))
        path.chmod(0o755 if number % 10 == 0 else 0o644)
    (root / "link").symlink_to("d0/e0/file-0.txt")
    (root / "to-directory").symlink_to("d1")


def tree_of(root: Path) -> dict[str, tuple[int, str]]:
    """Of each name the mode, and what is in it."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = mode, os.readlink(path)
        elif path.is_file():
            found[name] = mode, hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = mode & ~0o7777, ""
    return found


@pytest.mark.parametrize("more", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_git_clones_commits_and_is_clean_on_both_sides(
    both: Both, tmp_path: Path, more: bool
) -> None:
    """With ``more``, git also moves files, switches branches and packs its objects."""
    make_tree(tmp_path / "source", files=20)
    source = tmp_path / "source"
    git(source, "init", "-q", "-b", "main")
    for number in range(3):
        (source / "changes").write_text(f"{number}\n" * 100)
        git(source, "add", "-A")
        git(source, "commit", "-qm", f"number {number}")
    git(source, "bundle", "create", str(both.host / "it.bundle"), "main")
    as_somebody = "git -c user.name=G -c user.email=g@g"
    await both.run("git clone -q -b main it.bundle clone", within=120)
    assert await both.run("cd clone && git status --porcelain") == ""
    assert git(both.host / "clone", "status", "--porcelain") == ""
    await both.run(
        "cd clone && printf '#!/bin/sh\n' > new.sh && chmod +x new.sh && echo text > text"
        f" && {as_somebody} add -A && {as_somebody} commit -qm 'in the guest'"
    )
    if more:
        await both.run(
            "cd clone && git mv text moved && git reset -q --hard"
            " && git checkout -q -b other HEAD~2 && git checkout -q main && git gc -q"
        )
        assert await both.run("cd clone && git status --porcelain && git fsck --strict") == ""
    clone = both.host / "clone"
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "ls-files", "-s", "new.sh", "text").split()[::4] == ["100755", "100644"]
    (clone / "changes").write_text("from the host\n")
    git(clone, "commit", "-qam", "on the host")
    async with asyncio.timeout(60):
        # The guest may not know for a second of new directories, nor of a file's new times.
        look = "cd clone && git log -1 --format=%s && git status --porcelain || true"
        while await both.run(look) != "on the host":
            await asyncio.sleep(0.1)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_real_repository_is_cloned_and_clean_on_both_sides(both: Both) -> None:
    """This one, with its history."""
    git(ROOT, "bundle", "create", "-q", str(both.host / "it.bundle"), "HEAD")
    await both.run("git clone -q it.bundle clone", within=600)
    assert await both.run("cd clone && git status --porcelain", within=120) == ""
    clone = both.host / "clone"
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "HEAD") == git(ROOT, "rev-parse", "HEAD")
    assert git(clone, "fsck", "--strict") == ""


async def test_a_file_made_a_moment_ago_is_no_program_for_git(both: Both) -> None:
    await both.run("git init -q . && echo text > a && git add a && git ls-files -s > list")
    assert (both.host / "list").read_text().startswith("100644")


@pytest.mark.parametrize("journal", ["wal", pytest.param("delete", marks=pytest.mark.soak)])
async def test_sqlite(both: Both, journal: str) -> None:
    await both.python("database", journal, within=120)
    base = sqlite3.connect(both.host / "base.db")
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    assert base.execute("select count(*), min(length(text)) from t").fetchone() == (40, 3000)
    base.close()


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.soak), 2])
async def test_random_operations_are_those_of_a_file(both: Both, seed: int) -> None:
    await both.python("fsx", str(seed), "700", within=120)


@pytest.mark.parametrize("files", [40, pytest.param(700, marks=pytest.mark.soak)])
async def test_many_files_are_unpacked_as_they_were(both: Both, tmp_path: Path, files: int) -> None:
    make_tree(tmp_path / "t", files=files)
    with tarfile.open(both.host / "t.tar", "w") as archive:
        archive.add(tmp_path / "t", "t", filter=_somebody_elses)
    await both.run("tar xf t.tar", within=150)
    assert tree_of(both.host / "t") == tree_of(tmp_path / "t")


def _somebody_elses(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owners of the host mean nothing in the guest, whose root tries to keep them."""
    member.uid = member.gid = 1234
    return member


@pytest.mark.soak
async def test_a_tree_is_copied_and_removed(both: Both) -> None:
    make_tree(both.host / "t", files=60)
    wanted = tree_of(both.host / "t")
    await both.run("cp -a t copy && diff -r t copy && rm -rf t")
    assert not (both.host / "t").exists()
    assert tree_of(both.host / "copy") == wanted


@pytest.mark.parametrize("size", [20, pytest.param(300, marks=pytest.mark.soak)])
async def test_a_large_file_arrives_whole_both_ways(both: Both, size: int) -> None:
    """So many MiB."""
    block = os.urandom(MIB)
    with open(both.host / "from-host", "wb") as file:
        for number in range(size):
            file.write(number.to_bytes(4, "big") + block[4:])
    wanted = hash_of(both.host / "from-host")
    assert (await both.run("sha256sum from-host", within=150)).split()[0] == wanted
    await both.run("cp from-host from-guest && sync from-guest", within=150)
    assert hash_of(both.host / "from-guest") == wanted
    (traffic,) = [
        handle.traffic
        for handle in both.vm.active_mounts
        if both.host.is_relative_to(handle.host) and not handle.readonly
    ]
    assert traffic is not None
    assert traffic.received > size * MIB > traffic.sent, "the server copies for cp"


def hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("count", [800, pytest.param(5000, marks=pytest.mark.soak)])
async def test_a_directory_with_many_entries(both: Both, count: int) -> None:
    for number in range(count):
        (both.host / f"entry-{number:05}").touch()
    listed = (await both.run("ls -U | sort")).split()
    assert listed == [f"entry-{number:05}" for number in range(count)]
    await both.run("rm -rf ./*", within=120)
    assert list(both.host.iterdir()) == []


async def test_entries_may_go_while_they_are_listed(both: Both) -> None:
    await both.python("checks", "many_entries", "300")
    assert len(list(both.host.iterdir())) == 150


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_hundred_thousand_entries(both: Both) -> None:
    for number in range(100_000):
        (both.host / f"entry-{number:06}").touch()
    begin = time.monotonic()
    assert await both.run("ls -U | wc -l", within=300) == "100000"
    assert time.monotonic() - begin < 120


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_four_gigabytes(both: Both) -> None:
    with open(both.host / "f", "wb") as file:
        for number in range(4200):
            file.write(number.to_bytes(4, "big") * (MIB // 4))
    # Read and written, but not hashed there: an emulated guest would take minutes for that.
    await both.run("dd if=f of=g bs=1M conv=fsync status=none", within=900)
    assert hash_of(both.host / "g") == hash_of(both.host / "f")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 110))
async def test_many_random_operations(both: Both, seed: int) -> None:
    await both.python("fsx", str(seed), "5000", within=600)
