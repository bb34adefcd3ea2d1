"""`make run` by a plain user on a fresh machine: a minimal Debian with git, make and python3, in
which nobody but root may write outside of a home, and nobody has subordinate ids. Takes minutes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.qemu.binaries import find_binaries

from tests.integration.minimal_machine import HOME, Machine, make_machine
from tests.integration.small_disks import loop_device

ROOT = Path(__file__).parents[2]
PACKAGES = ("git", "make", "python3", "ca-certificates")
ABSENT = ("mmdebstrap", "newuidmap", "qemu-system-x86_64", "qemu-img", "debugfs", "tmux", "pip3")


@pytest.fixture(params=["trixie", "bookworm"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("only root can make a machine for others, with mmdebstrap")
    machine = make_machine(tmp_path, str(request.param), PACKAGES)
    root = machine.root
    bundle = root / "srv" / "project.bundle"
    subprocess.run(["git", "bundle", "create", "-q", bundle, "HEAD"], cwd=ROOT, check=True)
    yield machine
    shutil.rmtree(root)


def files_of(image: StoredImage, place: Path) -> dict[str, tuple[object, ...]]:
    """All that is in an image's disk, by path."""
    place.mkdir()
    raw, mounted = place / "disk.raw", place / "mounted"
    mounted.mkdir()
    binaries = find_binaries()
    argv = [str(binaries.img), "convert", "-O", "raw", str(image.disk), str(raw)]
    subprocess.run(argv, env={**os.environ, **binaries.env}, check=True)
    with loop_device(raw) as device:
        subprocess.run(["mount", "-o", "ro", device, mounted], check=True)
        try:
            return {str(path.relative_to(mounted)): _facts(path) for path in mounted.rglob("*")}
        finally:
            subprocess.run(["umount", mounted], check=True)


def packages_of(image: StoredImage) -> object:
    return json.loads((image.root / "manifest.json").read_text())["packages"]


def _facts(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    content = ""
    if stat.S_ISLNK(found.st_mode):
        content = str(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return (oct(found.st_mode), found.st_uid, found.st_gid, int(found.st_mtime), content)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_plain_user_on_a_minimal_system_needs_no_step_as_root(
    machine: Machine, prepared: Paths, tmp_path: Path
) -> None:
    for name in ABSENT:
        assert machine.run(f"command -v {name}").returncode != 0, f"{name} is there already"
    assert machine.run("python3 -c 'import ensurepip'").returncode != 0
    assert machine.run("touch /etc/mine").returncode != 0
    assert machine.run("unshare --user --map-root-user --map-auto true").returncode != 0
    script = "cd; git clone -q /srv/project.bundle project; cd project; make run </dev/null"
    done = machine.run(script, timeout=1500)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "all of it happened" in done.stdout + done.stderr
    # Once it is there it is not made anew, and the tests find their tools.
    again = machine.run(
        "cd ~/project; make setup; .venv/bin/python scripts/tools.py; "
        "~/.local/share/quicksand/tools/bin/tmux -V"
    )
    assert again.returncode == 0, f"{again.stdout[-3000:]}\n{again.stderr[-3000:]}"
    assert "installing" not in again.stdout + again.stderr
    assert "tmux 3" in again.stdout
    # What came out is what root gets the fast way, if of the same packages.
    home = machine.root / HOME.lstrip("/")
    built = ImageStore(home / ".local/share/quicksand/images").get("debian")
    fast = ImageStore(prepared.images).get("debian")
    assert built is not None and fast is not None
    packages = [
        json.loads((i.root / "manifest.json").read_text())["packages"] for i in (built, fast)
    ]
    if built.recipe == fast.recipe and packages[0] == packages[1]:
        assert files_of(built, tmp_path / "built") == files_of(fast, tmp_path / "fast")
