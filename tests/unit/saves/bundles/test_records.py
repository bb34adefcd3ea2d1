"""Records of checkpoints: as many as an import takes, an export makes, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.errors import BundleError, QuicksandError
from quicksand.saves.bundle import exporting, receiving
from quicksand.saves.bundle.exporting import export_tree

from tests.unit.saves.bundles.boxes import make_box
from tests.unit.saves.bundles.making import Home


async def test_too_many_records_are_neither_taken_nor_made(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_box(here)
    bundle = tmp_path / "box.quicksand"
    await export_tree(here.registry, record, bundle, full=True)
    monkeypatch.setattr(receiving, "RECORDS_MAX", 1000)
    with pytest.raises(QuicksandError, match="its records have more than"):
        there.import_(bundle)
    assert there.registry.list() == []
    monkeypatch.setattr(exporting, "RECORDS_MAX", 1000)
    with pytest.raises(BundleError, match="the records of its checkpoints"):
        await export_tree(here.registry, record, tmp_path / "other", full=True)
    assert not (tmp_path / "other").exists()
