"""Wraps a bundle in the wheel `quicksand-qemu`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from qemu_bundler.bundle import BundleError, Made
from qemu_bundler.notices import SOURCES_FILE

PROJECT = Path(__file__).resolve().parents[1]
PARTS = ("pyproject.toml", "hatch_build.py", "README.md")
PACKAGE = "quicksand_qemu"


def build_wheel(made: Made, version: str, work: Path, target: Path) -> Path:
    """Build the wheel into the directory ``target`` and return it. Beside it goes a copy of the
    SOURCES.md in it, which whoever offers the wheel for download can offer with it. Raises
    BundleError, OSError."""
    project, out = work / "project", work / "wheels"
    project.mkdir()
    for name in PARTS:
        shutil.copyfile(PROJECT / name, project / name)
    ignored = shutil.ignore_patterns("__pycache__", "bin")
    shutil.copytree(PROJECT / PACKAGE, project / PACKAGE, ignore=ignored)
    shutil.copytree(made.bundle.root, project / PACKAGE / "bin")
    done = subprocess.run(
        [*(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"), "-w", out, project],
        env={
            **os.environ,
            "QUICKSAND_QEMU_VERSION": version,
            "QUICKSAND_QEMU_TAG": f"py3-none-{made.tag}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    found = list(out.glob("*.whl")) if out.is_dir() else []
    if done.returncode or len(found) != 1:
        raise BundleError(f"the wheel cannot be built: {done.stderr.strip()[-1000:]}")
    target.mkdir(parents=True, exist_ok=True)
    told = made.bundle.licences / SOURCES_FILE
    _put(told, target / f"{found[0].name.removesuffix('.whl')}.{SOURCES_FILE}")
    return _put(found[0], target / found[0].name)


def _put(source: Path, target: Path) -> Path:
    partial = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, partial)
    return partial.rename(target)
