"""The files that differ between two checkpoints of a real VM, exactly those."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from quicksand import FileChange, FileType, Sandbox
from quicksand.base.errors import CheckpointNotFoundError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.snapshots.history import History
from quicksand_disks.comparing.side_by_side import compare
from quicksand_disks.ext4.filesystem import FileSystem
from quicksand_disks.qcow2.layers import Chain, Layer, Ranges
from quicksand_images.disk import require_filesystem_tools

from tests.unit.disks.diff.disks import MemoryDisk, close_chain
from tests.unit.disks.diff.test_layers import qemu_img

pytestmark = pytest.mark.vm

PREPARE = """
mkdir -p /root/w/old/deep && cd /root/w
echo 1 > old/deep/file; echo same > same; echo before > changed; seq 1000 > grown
seq 100000 > cut; echo x > removed; echo y > renamed; ln -s same link; echo z > turned
echo m > mode; echo o > owner; echo t > touched; echo r > read; seq 100000 > patched
echo h > holes; truncate -s 100K holes
"""
CHANGE = r"""
cd /root/w
rm -r old removed; echo after! > changed; seq 9999 >> grown; truncate -s 10 cut; mv renamed moved
ln -sfn changed link; rm turned; mkdir turned; echo i > turned/in; chmod 600 mode; chown 7 owner
touch touched; cat read > /dev/null; printf '###' | dd of=patched bs=1 seek=500000 conv=notrunc
printf x | dd of=holes bs=1 seek=50000 conv=notrunc
mkfifo pipe; ln same hard; truncate -s 1G sparse; mkdir dir; echo > "$(printf 'new\nline\033[2J')"
for n in $(seq 300); do echo $n > dir/file-with-a-rather-long-name-$n; done
"""
CHANGES = {
    "changed": ("changed", 7, 7, ("content", "mtime")),
    "cut": ("changed", 588895, 10, ("content", "mtime")),
    "dir": ("added", None, None, ()),
    "grown": ("changed", 3893, 52781, ("content", "mtime")),
    "hard": ("added", None, 5, ()),
    "holes": ("changed", 102400, 102400, ("content", "mtime")),
    "link": ("changed", 4, 7, ("target", "mtime")),
    "mode": ("changed", 2, 2, ("mode",)),
    "moved": ("added", None, 2, ()),
    "new\nline\x1b[2J": ("added", None, 1, ()),
    "old": ("removed", None, None, ()),
    "old/deep": ("removed", None, None, ()),
    "old/deep/file": ("removed", 2, None, ()),
    "owner": ("changed", 2, 2, ("owner",)),
    "patched": ("changed", 588895, 588895, ("content", "mtime")),
    "pipe": ("added", None, None, ()),
    "removed": ("removed", 2, None, ()),
    "renamed": ("removed", 2, None, ()),
    "sparse": ("added", None, 1 << 30, ()),
    "touched": ("changed", 2, 2, ("mtime",)),
    "turned": ("type-changed", 2, None, ()),
    "turned/in": ("added", None, 2, ()),
    **{
        f"dir/file-with-a-rather-long-name-{n}": ("added", None, len(f"{n}\n"), ())
        for n in range(1, 301)
    },
}


async def do(vm: Sandbox, script: str) -> None:
    """Run a script in the guest, and have what it did written to the disk."""
    result = await vm.execute(f"set -e\n{script}\nsync", timeout=120)
    assert result.exit_code == 0, result.stderr


def facts(
    changes: list[FileChange],
) -> dict[str, tuple[str, int | None, int | None, tuple[str, ...]]]:
    assert [change.path for change in changes] == sorted(change.path for change in changes)
    return {
        change.path.removeprefix("/root/w/"): (
            change.kind.value,
            change.size_before,
            change.size_after,
            change.differs,
        )
        for change in changes
    }


async def test_exactly_what_was_changed_is_found(vm: Sandbox) -> None:
    await do(vm, PREPARE)
    await vm.checkpoint("before")
    await do(vm, CHANGE)
    await vm.checkpoint("after")
    changes = await vm.diff("before", "after")
    assert facts(changes) == CHANGES
    (turned,) = [change for change in changes if change.path == "/root/w/turned"]
    assert (turned.type_before, turned.type_after) == (FileType.FILE, FileType.DIRECTORY)
    assert await vm.diff("after", "after") == []
    backwards = facts(await vm.diff("after", "before"))
    assert backwards.keys() == CHANGES.keys()
    assert backwards["moved"] == ("removed", 2, None, ())
    with pytest.raises(CheckpointNotFoundError, match="'befor'"):
        await vm.diff("befor")

    # The present: of the running one, after going back, and of the stopped one.
    await do(vm, "echo later > /root/w/later")
    assert facts(await vm.diff("after")) == {"later": ("added", None, 6, ())}
    await vm.revert("before")
    await do(vm, "echo again > /root/w/again")
    assert facts(await vm.diff("before")) == {"again": ("added", None, 6, ())}
    await vm.stop()
    assert facts(await vm.diff("before")) == {"again": ("added", None, 6, ())}
    assert facts(await vm.diff("before", "after")) == CHANGES


@pytest.mark.soak
async def test_the_disk_of_a_checkpoint_is_what_debugfs_makes_of_its_journal(
    vm: Sandbox, places: Paths, tmp_path: Path
) -> None:
    await do(vm, PREPARE)
    await do(vm, CHANGE)
    await vm.checkpoint("after")
    await vm.stop()
    await asyncio.to_thread(check_journal, vm, places, tmp_path)


async def test_the_lines_and_the_patch_of_a_running_guest_are_what_it_just_wrote(
    vm: Sandbox, tmp_path: Path
) -> None:
    await do(
        vm, "mkdir -p /srv/app; seq 9 > /srv/app/n; ln -s n /srv/app/l; echo x > /srv/app/gone"
    )
    await vm.checkpoint("before")
    # Without sync: it is the comparison that asks the guest to write.
    script = (
        "cd /srv/app; sed -i s/5/five/ n; rm gone; ln -sfn other l; echo new > 'a b'; echo -n >e"
    )
    assert (await vm.execute(script)).exit_code == 0
    found = await vm.compare("before")
    assert (found.is_live, found.is_synced) == (True, True)
    inside = {path: lines for path, lines in found.lines.items() if path.startswith("/srv/app")}
    assert inside == {
        "/srv/app/n": (1, 1),
        "/srv/app/gone": (0, 1),
        "/srv/app/a b": (1, 0),
        "/srv/app/e": (0, 0),
    }
    versions = await vm.compare_file("/srv/app/n", "before")
    (hunk,) = versions.hunks()
    assert [line for sign, line in hunk.lines if sign != " "] == [b"5\n", b"five\n"]

    copy = tmp_path / "srv" / "app"
    copy.mkdir(parents=True)
    (copy / "n").write_text("".join(f"{n}\n" for n in range(1, 10)))
    (copy / "l").symlink_to("n")
    (copy / "gone").write_text("x\n")
    patch = await vm.patch("before", below="/srv/app")
    assert patch.left_out == ()
    command = ["patch", "-p1", "-s", "-d", str(tmp_path)]
    await asyncio.to_thread(subprocess.run, command, input=patch.data, check=True)
    assert (copy / "n").read_text() == "1\n2\n3\n4\nfive\n6\n7\n8\n9\n"
    assert sorted(path.name for path in copy.iterdir()) == ["a b", "e", "l", "n"]
    assert (copy / "l").readlink() == Path("other")

    # What the first checkpoint itself brought, from the image.
    brought = {change.path for change in await vm.diff("before", parent=True)}
    assert "/srv/app/gone" in brought
    assert "/srv/app/a b" not in brought


def check_journal(vm: Sandbox, places: Paths, tmp_path: Path) -> None:
    """The disk of a checkpoint is that of a file system in use: what debugfs makes of it when it
    replays the journal is what we read without that."""
    place = sandbox_dir(places, vm.id)
    record = Registry(places).find("box").record
    assert record is not None
    node = History(place).find("after")
    paths = [*map(Path, record.chain), *(place.layer(name) for name in node.layers)]
    chain = Chain([Layer(path) for path in paths])
    filesystem = FileSystem(chain)
    assert filesystem.superblock.needs_recovery
    assert filesystem.logged
    raw = tmp_path / "raw"
    # Our layers name the ones below in their headers, for tools like this one.
    qemu_img("convert", "-f", "qcow2", "-O", "raw", paths[-1], raw)
    _, debugfs = asyncio.run(require_filesystem_tools(tmp_path))
    argv = [*debugfs.command, "-w", "-R", "jr", str(raw)]
    subprocess.run(argv, env={**debugfs.env}, check=True, capture_output=True)
    replayed = FileSystem(FileDisk(raw))
    assert not replayed.logged
    assert compare(filesystem, replayed, Ranges([(0, chain.size)])) == []
    close_chain(chain)


class FileDisk(MemoryDisk):
    """A disk in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def size(self) -> int:
        return self._path.stat().st_size

    def read(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(length).ljust(length, b"\0")
