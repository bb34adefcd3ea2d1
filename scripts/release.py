"""Make a release: check everything, build the sdist and the wheel, look at what they have, try the
wheel, and put both with their checksums into a directory.

Both are built from the last commit, and depend on nothing else: the same commit gives the same
bytes (SOURCE_DATE_EPOCH is its time). Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.metadata import Metadata

from quicksand_tui import __version__

ROOT = Path(__file__).resolve().parents[1]
WHEEL_MAX = 5 * 1000 * 1000
"""Bytes. A wheel is without QEMU and images."""

SUMS = "SHA256SUMS"
NEEDED_IN_SDIST = (
    "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "docs/index.md", "guest-agent/Cargo.lock",
    "hatch_build.py", "images/debian.toml", "pyproject.toml", "scripts/manual.py",
    "tests/conftest.py",
)  # fmt: skip
NEEDED_IN_WHEEL = (
    "quicksand/py.typed", "quicksand_images/install.sh", "quicksand_images/py.typed",
    "quicksand_images/recipes/debian.toml",
    "quicksand_benchmark/__init__.py", "quicksand_e2b/__init__.py",
    "quicksand_fleet/__init__.py", "quicksand_smb/__init__.py",
    "quicksand_driver/__init__.py", "quicksand_panes/__init__.py", "quicksand_pixels/__init__.py",
    "quicksand_tui/py.typed", "quicksand_tui/screens/main.tcss",
    "quicksand_disks/__init__.py", "quicksand_vnc/__init__.py", "quicksand_vt/__init__.py",
    "quicksand_wheels/__init__.py",
)  # fmt: skip
TOOLS = ("hatchling", "pytest", "sphinx", "furo", "myst_parser")
MADE = re.compile(r"(^|/)(\.git|\.venv|__pycache__|target|\.[a-z]+_cache|node_modules)(/|$)")
"""Names that must be in neither."""


class ReleaseError(Exception):
    """Raised when the release cannot be made; the text says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a release in a directory; upload nothing.")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="accept a version that is not final, and uncommitted changes, which are left out",
    )
    parser.add_argument("--quick", action="store_true", help="leave out the tests on VMs")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="DIR")
    chosen = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="quicksand-release-") as place:
            return make(Path(place), chosen.into, rehearse=chosen.rehearse, quick=chosen.quick)
    except (ReleaseError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"release: error: {error}\n")
        return 1


def make(place: Path, into: Path, *, rehearse: bool, quick: bool) -> int:
    """Make the release in an empty directory, then move its files. Raises ReleaseError, OSError."""
    say("what is committed")
    require_final(rehearse=rehearse)
    require_tools()
    # First the checks that fail soonest: the tests take long.
    say("documentation")
    run([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(place / "docs")])
    say("lint, types and tests")
    check(quick=quick)
    say("sdist and wheel, twice")
    files = build(place)
    say("what is in them")
    inspect_sdist(files[0])
    inspect_wheel(files[1])
    say("the wheel, installed")
    try_wheel(files[1], place)
    publish(files, into)
    for line in (into / SUMS).read_text(encoding="ascii").splitlines():
        say(f"   {line}")
    return 0


def say(text: str) -> None:
    sys.stderr.write(f"release: {text}\n")


def run(
    argv: Sequence[str],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    shown: bool = True,
) -> str:
    """Run a program; return its stdout, which is only passed on if ``shown``. Raises
    ReleaseError."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=None if shown else subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"`{' '.join(argv)}` failed with exit code {done.returncode}")
    return "" if done.stdout is None else done.stdout.decode()


def require_final(*, rehearse: bool) -> None:
    """Raise ReleaseError unless all is committed and the changelog names this version as final."""
    heading = next(
        line
        for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    )
    if heading.split()[1] != __version__:
        raise ReleaseError(f"CHANGELOG.md begins with {heading!r}, but this is {__version__}")
    if rehearse:
        return
    if "unreleased" in heading:
        raise ReleaseError(f"CHANGELOG.md says {heading!r}: put the date of the release there")
    if changed := run(["git", "status", "--porcelain"], shown=False):
        raise ReleaseError(f"not committed:\n{changed}")


def require_tools() -> None:
    """Raise ReleaseError if a program that builds the site or the packages is missing: after all
    tests it would be too late."""
    missing = [name for name in TOOLS if importlib.util.find_spec(name) is None]
    if missing:
        raise ReleaseError(
            f"{', '.join(missing)} cannot be imported: `pip install -e '.[dev,docs]'` gets all"
        )


def check(*, quick: bool) -> None:
    """Run all checks and tests. Raises ReleaseError."""
    if not quick:
        run(["sh", "scripts/test.sh"])
        return
    run(["sh", "scripts/test.sh", "check"])
    run([sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests/unit"])


def build(place: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel of the last commit; return them. Raises ReleaseError if a
    second build, or one of the sdist, gives other bytes."""
    epoch = run(["git", "log", "-1", "--format=%ct"], shown=False).strip()
    tree = place / "tree"
    tree.mkdir()
    archive = place / "tree.tar"
    run(["git", "archive", "--output", str(archive), "HEAD"])
    run(["tar", "-xf", str(archive), "-C", str(tree)])
    sdist = _build(tree, place / "sdist", "sdist", epoch)
    _require_same(sdist, _build(tree, place / "sdist-again", "sdist", epoch))
    run(["tar", "-xf", str(sdist), "-C", str(place)])
    unpacked = place / sdist.name.removesuffix(".tar.gz")
    wheel = _build(unpacked, place / "wheel", "wheel", epoch)
    _require_same(wheel, _build(tree, place / "wheel-again", "wheel", epoch))
    return sdist, wheel


def _build(tree: Path, into: Path, kind: str, epoch: str) -> Path:
    run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)],
        cwd=tree,
        env={"SOURCE_DATE_EPOCH": epoch},
        shown=False,
    )
    (found,) = into.iterdir()
    return found


def _require_same(one: Path, other: Path) -> None:
    if one.name != other.name or one.read_bytes() != other.read_bytes():
        raise ReleaseError(f"two builds of {one.name} differ")


def inspect_sdist(path: Path) -> None:
    """Raise ReleaseError for an sdist that lacks something, has too much, or says a wrong thing."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        root = path.name.removesuffix(".tar.gz")
        about = archive.extractfile(f"{root}/PKG-INFO")
        assert about is not None
        _check_metadata(path, about.read())
    _check_names(path, names, NEEDED_IN_SDIST)


def inspect_wheel(path: Path) -> None:
    """Raise ReleaseError for a wheel that lacks something, has too much, is too large, or whose
    RECORD or metadata are wrong."""
    if path.stat().st_size > WHEEL_MAX:
        raise ReleaseError(f"{path.name} has {path.stat().st_size} bytes, more than {WHEEL_MAX}")
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        about = f"quicksand_tui-{__version__}.dist-info"
        _check_metadata(path, archive.read(f"{about}/METADATA"))
        _check_record(archive, f"{about}/RECORD")
    _check_names(path, names, NEEDED_IN_WHEEL)
    agents = [name for name in names if re.fullmatch(r"quicksand/_agent/\w+/quicksand-agent", name)]
    if not agents:
        raise ReleaseError(f"{path.name} has no guest agent")
    say(f"   agents for {', '.join(sorted(name.split('/')[2] for name in agents))}")


def _check_names(path: Path, names: set[str], needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in names]:
        raise ReleaseError(f"{path.name} lacks {', '.join(missing)}")
    if made := [name for name in names if MADE.search(name)]:
        raise ReleaseError(f"{path.name} has what is only made: {', '.join(sorted(made)[:5])}")


def _check_metadata(path: Path, data: bytes) -> None:
    """Raise ReleaseError for metadata that an index would refuse, or of another version."""
    try:
        found = Metadata.from_email(data, validate=True)
    except ExceptionGroup as error:
        reasons = "; ".join(str(one) for one in error.exceptions)
        raise ReleaseError(f"the metadata of {path.name} are wrong: {reasons}") from error
    if str(found.version) != __version__:
        raise ReleaseError(f"{path.name} is of version {found.version}, not {__version__}")


def _check_record(archive: zipfile.ZipFile, record: str) -> None:
    """Raise ReleaseError if RECORD does not name every file with its digest and size."""
    lines = csv.reader(io.StringIO(archive.read(record).decode()))
    told = {name: (digest, size) for name, digest, size in lines}
    for name in archive.namelist():
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if name != record and told.get(name) != (f"sha256={digest}", str(len(data))):
            raise ReleaseError(f"RECORD does not say what {name} is")
    if set(told) != set(archive.namelist()):
        raise ReleaseError("RECORD names files that are not in the wheel")


def try_wheel(wheel: Path, place: Path) -> None:
    """Install the wheel into an empty environment, with an empty home, and use it. Raises
    ReleaseError."""
    home = place / "home"
    home.mkdir()
    venv.create(place / "venv", with_pip=True)
    programs = place / "venv" / "bin"
    run([str(programs / "pip"), "install", "--quiet", str(wheel)], cwd=home)
    env = {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": ""}
    for name in ("DATA", "CACHE", "STATE", "RUNTIME"):
        env[f"QUICKSAND_{name}_DIR"] = str(home / name.lower())
    program = str(programs / "quicksand-tui")
    said = run([program, "--version"], cwd=home, env=env, shown=False).split()[-1]
    if said != __version__:
        raise ReleaseError(f"the wheel that is installed says that it is {said}")
    facts = json.loads(run([program, "info", "--json"], cwd=home, env=env, shown=False))
    agents = [str(path) for path in facts["agent"].values()]
    if not any(path.startswith(str(programs.parent)) for path in agents):
        raise ReleaseError(f"the wheel that is installed finds no agent of its own: {agents}")
    run([program, "images", "new", "base", "trial"], cwd=home, env=env, shown=False)
    for shell in ("bash", "zsh", "fish"):
        run([program, "completions", shell, "--install"], cwd=home, env=env, shown=False)


def publish(files: Sequence[Path], into: Path) -> None:
    """Put the files and their checksums into a directory. A file of that name with other bytes is
    never replaced: a version is released once. Raises ReleaseError, OSError."""
    into.mkdir(parents=True, exist_ok=True)
    for path in files:
        target = into / path.name
        if target.exists() and target.read_bytes() != path.read_bytes():
            raise ReleaseError(f"{target} is there already, with other bytes; remove it first")
    for path in files:
        shutil.copyfile(path, into / path.name)
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files]
    (into / SUMS).write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
