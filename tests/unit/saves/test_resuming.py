"""What a sandbox takes over from a save."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.config import NetworkMode
from quicksand.errors import ConfigError, SaveError
from quicksand.host.paths import Paths
from quicksand.saves.manifest import SaveManifest
from quicksand.saves.resuming import layers_digest, look_up, merge_config, source_of
from quicksand.saves.store import Save

from tests.unit.saves.test_manifest import OURS

SAVE = Save(name="env", root=Path("/nowhere/env"), manifest=OURS)


def test_the_saves_config_counts_where_no_other_is_given() -> None:
    assert merge_config(SAVE, {}) == OURS.config
    found = merge_config(SAVE, {"memory": "2G", "network_mode": "none"})
    assert (found.memory, found.network_mode) == ("2G", NetworkMode.NONE)
    assert found.image == "debian"


def test_arguments_of_qemu_are_not_taken_over_by_themselves() -> None:
    config = replace(OURS.config, extra_qemu_args=("-drive", "file=/etc/shadow"))
    save = replace(SAVE, manifest=replace(OURS, config=config))
    with pytest.raises(ConfigError, match="/etc/shadow"):
        merge_config(save, {})
    assert merge_config(save, {"extra_qemu_args": []}).extra_qemu_args == ()
    assert merge_config(save, {"extra_qemu_args": ["-m", "1"]}).extra_qemu_args == ("-m", "1")


def test_a_source_knows_its_save_by_all_of_its_layers(places: Paths) -> None:
    source = source_of(SAVE, places)
    assert (source.id, source.name, source.below) == (OURS.id, "env", ())
    assert source.digest == layers_digest(OURS) != ""
    published = SaveManifest(config=OURS.config, arch="x86_64")
    assert layers_digest(published) == ""


def test_names_of_images_and_of_nothing_lead_to_no_save(places: Paths) -> None:
    assert look_up("debian", places) is None
    assert look_up("nothing", places) is None
    assert look_up(str(places.images), places) is None


def test_a_damaged_save_is_not_taken_for_an_image(places: Paths) -> None:
    root = places.saves / "env"
    (root / "overlays").mkdir(parents=True)
    (root / "manifest.json").write_text("{}")
    with pytest.raises(SaveError, match="env"):
        look_up("env", places)
