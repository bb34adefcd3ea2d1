"""Which version a QEMU is, is asked once."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.files import read_json
from quicksand.base.tools import KEPT_MAX
from quicksand.qemu.binaries import _version


@pytest.fixture(autouse=True)
def cache(places: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "qemu-versions.json"


def fake(directory: Path, version: str = "9.1.2") -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / "qemu-system-x86_64"
    program.write_text(
        f"#!/bin/sh\necho x >> {directory}/calls\necho QEMU emulator version {version}\n"
    )
    program.chmod(0o755)
    return program


def test_it_is_asked_once_wherever_links_lead_to_it(tmp_path: Path) -> None:
    program = fake(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for path in (program, tmp_path / "link" / program.name, program):
        assert _version(path, {}) == (9, 1, 2)
    assert (tmp_path / "real" / "calls").read_text() == "x\n"


def test_another_file_is_asked_again(tmp_path: Path) -> None:
    assert _version(fake(tmp_path / "real"), {}) == (9, 1, 2)
    assert _version(fake(tmp_path / "real", "10.0.0"), {}) == (10, 0, 0)


def test_what_is_remembered_is_bounded(tmp_path: Path, cache: Path) -> None:
    for number in range(KEPT_MAX + 3):
        assert _version(fake(tmp_path / str(number)), {}) == (9, 1, 2)
    known = read_json(cache)
    assert len(known) == KEPT_MAX
    assert any(f"/{KEPT_MAX + 2}/" in key for key in known)
