"""What a build without root does as root, in its VM: on a small system, the image's own without its
owners. (`test_fresh_machine.py` has the whole.)"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand_images import disk, in_vm
from quicksand_images.debfile import read_deb
from quicksand_images.recipe import Disk
from quicksand_images.rootfs import WORK, unpack_tree

from tests.unit.images.test_rootless_build import make_package

GIB = 1024**3
KEPT = ("bin", "etc", "lib", "lib64", "sbin", "tmp", "usr", "var")
LARGE = (
    *("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/share/zoneinfo"),
    *("usr/lib/git-core", "usr/lib/modules", "usr/lib/python3*"),
    *("var/cache/apt/*", "var/lib/apt/lists/*"),
)
"""What nothing here needs."""
POSTINST = """\
test "$(id -u)" = 0
mkdir /srv/probe
touch /srv/probe/of-daemon /srv/probe/setuid
chown 1:12 /srv/probe/of-daemon
chmod 4755 /srv/probe/setuid
ln /srv/probe/setuid /srv/probe/link
"""
SCRIPT = f"""
echo 'stage: installing'
dpkg --install /{WORK}/probe.deb
rm -r /{WORK}
"""


def take_apart(binaries: QemuBinaries, image: Path, base: Path) -> None:
    """The files of an image's disk in the directory ``base``, all of them ours, but for the LARGE
    ones."""
    raw = base.with_suffix(".disk")
    argv = [str(binaries.img), "convert", "-O", "raw", str(image), str(raw)]
    subprocess.run(argv, env={**os.environ, **binaries.env}, check=True)
    debugfs = shutil.which("debugfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert debugfs is not None, "debugfs is needed: install e2fsprogs"
    for name in KEPT:
        argv = [debugfs, "-R", f"rdump /{name} {base}", str(raw)]
        subprocess.run(argv, check=True, capture_output=True)
    raw.unlink()
    for path in [path for pattern in LARGE for path in base.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("dev", "mnt", "proc", "run", "srv", "sys"):
        (base / name).mkdir()


@pytest.mark.timeout(300)
async def test_a_package_is_installed_as_root_by_who_is_not(
    prepared: Paths, tmp_path: Path
) -> None:
    binaries = find_binaries()
    image = ImageStore(prepared.images).get("debian")
    assert image is not None
    base = tmp_path / "base"
    (base / WORK).mkdir(parents=True)
    take_apart(binaries, image.disk, base)
    package = make_package(tmp_path / "package", postinst=POSTINST)
    read_deb(package).write(base / WORK / "probe.deb")
    shutil.copy(image.kernel, tmp_path / "base.kernel")
    shutil.copy(image.initrd, tmp_path / "base.initrd")
    tools = await disk.require_filesystem_tools(tmp_path)
    size = Disk(size_bytes=2 * GIB, journal_mib=16, build_bytes=GIB)
    await disk.make_scratch(base, tmp_path / "base.qcow2", size, tools, binaries)
    said: list[str] = []
    async with in_vm.machine(tmp_path, Architecture.host()) as session:
        await in_vm.run_script(session, f"set -eu\n{SCRIPT}", {}, said.append)
        with pytest.raises(HostError, match="exit code 3"):
            await in_vm.run_script(session, "echo no such thing; exit 3", {}, said.append)
        await in_vm.take_out(session, tmp_path / "tree.tar")
    assert said == ["installing"]
    tree = await unpack_tree(tmp_path / "tree.tar")
    probe = tree.path / "srv" / "probe"
    assert tree.owners is not None
    assert tree.owners["/srv/probe/of-daemon"] == (1, 12)
    assert "/srv/probe/setuid" not in tree.owners, "it is root's"
    assert (probe / "setuid").stat().st_mode & 0o7777 == 0o4755
    assert (probe / "setuid").samefile(probe / "link")
    assert (tree.path / "usr" / "share" / "probe" / "data").stat().st_size == 8000
    assert not (tree.path / WORK).exists()
    # Nothing of what is mounted in the guest came along, and the kernel's directories are there.
    assert {path.name for path in tree.path.iterdir()} >= {"dev", "proc", "sys", *KEPT}
    assert not any((tree.path / "proc").iterdir())
