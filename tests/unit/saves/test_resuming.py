"""What a sandbox that begins with a save remembers of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.saves.boot_disk import layers_digest, source_of, stack_of
from quicksand.saves.save_manifest import Save, SaveManifest, load_save

from tests.unit.saves.making import make_published
from tests.unit.saves.test_manifest import OURS

SAVE = Save(name="env", root=Path("/nowhere/env"), manifest=OURS)


def test_a_source_knows_its_save_by_all_of_its_layers(places: Paths) -> None:
    source = source_of(SAVE, places)
    assert (source.id, source.name, source.below) == (OURS.id, "env", ())
    assert source.digest == layers_digest(OURS) != ""
    published = SaveManifest(config=OURS.config, arch="x86_64")
    assert layers_digest(published) == ""


def test_a_published_save_lies_on_the_one_that_came_with_it(places: Paths, tmp_path: Path) -> None:
    upper = load_save(make_published(tmp_path / "work" / "upper", b"2", image="lower"))
    assert stack_of(upper, places) == [upper]
    mine = make_published(places.saves / "lower", b"mine")
    assert [save.root for save in stack_of(upper, places)] == [mine, upper.root]
    beside = make_published(tmp_path / "work" / "lower", b"1")
    assert [save.root for save in stack_of(upper, places)] == [beside, upper.root]


def test_what_a_directory_offers_is_not_slid_under_ones_own_save(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was saved over the image "debian" lies on that."""
    own = load_save(make_published(places.saves / "mine", b"1", image="debian"))
    make_published(tmp_path / ".quicksand" / "sandboxes" / "debian", b"theirs")
    make_published(tmp_path / "debian", b"theirs")
    monkeypatch.chdir(tmp_path)
    assert stack_of(own, places) == [own]
