"""Programs that see quicksand_core as an installed distribution, which tests here do not."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = ROOT / "compat" / "quicksand-core"
PROJECT = tomllib.loads((CORE / "pyproject.toml").read_text())["project"]


def run(*words: str, path: tuple[Path, ...] = (CORE,)) -> subprocess.CompletedProcess[str]:
    """Run a Python program that finds modules in ``path`` first."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def said_by(code: str, *, path: tuple[Path, ...] = (CORE,)) -> str:
    """What a program prints that has to succeed."""
    done = run("-c", code, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(site: Path, name: str, version: str, *packages: str) -> None:
    """Put a distribution into a directory as pip would, with packages that are empty."""
    stem = f"{name.replace('-', '_')}-{version}.dist-info"
    (site / stem).mkdir(parents=True)
    (site / stem / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    for package in packages:
        (site / package).mkdir(exist_ok=True)
        (site / package / "__init__.py").touch()
