"""The first look at a name never passes over a save that the search would find."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.saves.save_places import HOUSE, PLAIN, READY, WORKSPACE, may_be_save


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def test_without_any_saves_a_name_is_an_image_s(places: Paths, here: Path) -> None:
    assert not may_be_save("debian", places)
    (here / "other").mkdir()
    (places.saves / "other").mkdir(parents=True)
    assert not may_be_save("debian", places, here / "missing")


@pytest.mark.parametrize("name", ["./debian", "/images/debian", "debian.qcow2"])
def test_a_path_is_looked_at(places: Paths, name: str) -> None:
    assert may_be_save(name, places)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        # A directory that has other contents too keeps what is not ready in its house.
        *((".", what) for what in ("debian", HOUSE)),
        *(
            (where, what)
            for where in (f"{WORKSPACE}/{PLAIN}", "saves", "given", f"given/{PLAIN}")
            for what in ("debian", HOUSE, f"{READY}0123456789ab")
        ),
    ],
)
def test_every_place_is_looked_at(places: Paths, here: Path, where: str, what: str) -> None:
    root = places.saves if where == "saves" else here / where
    (root / what).mkdir(parents=True)
    assert may_be_save("debian", places, here / "given")


def test_what_cannot_be_looked_at_may_be_one(places: Paths) -> None:
    assert may_be_save("x" * 300, places)
