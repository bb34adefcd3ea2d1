"""Homes of two people; nothing of the user's own is in reach."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.paths import Paths, paths
from quicksand.records import machine_options

from tests.unit.saves.bundles.making import Home


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """What commands and the public functions use: the home of `there`."""
    root = tmp_path / "there"
    for name, directory in (("DATA", "data"), ("RUNTIME", "run"), ("CACHE", "cache")):
        monkeypatch.setenv(f"QUICKSAND_{name}_DIR", str(root / directory))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return paths()


@pytest.fixture
def here(tmp_path: Path) -> Home:
    """With an image and a save."""
    home = Home.make(tmp_path / "here")
    home.add_image()
    home.add_save()
    return home


@pytest.fixture
def there(tmp_path: Path) -> Home:
    """Empty."""
    return Home.make(tmp_path / "there")


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied often is to be small."""
    monkeypatch.setattr(machine_options, "MEMORY_MIN", 1024 * 1024)
