"""Apps that answer tests at once; and saves for tests of the app and of the commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from quicksand.base import regular
from quicksand.base.paths import Paths
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore

from tests.unit import quick_apps
from tests.unit.saves.making import publish_image

quick_apps.install()

# The keeper finds these modules there (qemu/keeper.py), and some of its parts are tested here.
sys.path.append(str(Path(regular.__file__).parent))


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
