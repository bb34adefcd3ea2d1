"""Saves on disk, in places of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.host.paths import Paths
from quicksand.saves.manifest import Base
from quicksand.saves.store import SaveStore

from tests.unit.saves.making import publish_image


@pytest.fixture
def base(places: Paths) -> Base:
    """An image of the test's own."""
    (places.data / "images").unlink()
    image = publish_image(places)
    return Base(name=image.name, version=image.version, digest=image.digest)


@pytest.fixture
def store(places: Paths, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SaveStore:
    """The user's own saves; the current directory is empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return SaveStore(places.saves)
