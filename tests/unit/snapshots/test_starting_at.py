"""A start at a checkpoint and the disk that it leaves behind, without any VM."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.errors import DiskSpaceError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.nodes import Head
from quicksand.records.registry import Registry
from quicksand.saves.boot_disk import finish_start, prepare_disk
from quicksand.snapshots import last_checkpoint
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import check_layers

from tests.unit.snapshots.boxes import image_of, make_base, make_box


@pytest.mark.parametrize("left_after", [0, 1, 2])
def test_one_that_fails_late_lets_no_guest_write_to_a_checkpoint_s_layer(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_after: int
) -> None:
    """It fails after so many heads were written."""
    places.sandboxes.mkdir(parents=True, mode=0o700, exist_ok=True)
    base = make_base(tmp_path)
    record = make_box(Registry(places), base, "box")
    place = sandbox_dir(places, record.id)
    history = History(place)
    (at,) = history.nodes()
    present = history.head().top
    monkeypatch.setattr(last_checkpoint, "_has_data", lambda _history, layer: layer == present)
    head = prepare_disk(record, image_of(base), place, at)
    set_head, written = History.set_head, 0

    def fill_up(self: History, head: Head) -> None:
        nonlocal written
        if written == left_after:
            raise DiskSpaceError("no space left")
        written += 1
        set_head(self, head)

    with monkeypatch.context() as patch:
        patch.setattr(History, "set_head", fill_up)
        if left_after < 2:
            with pytest.raises(DiskSpaceError):
                finish_start(place, head, at)
        else:
            finish_start(place, head, at)
    again = prepare_disk(record, image_of(base), place)
    history.sweep()
    for node in history.nodes():
        assert again.top not in node.layers
        check_layers(place, node)
    if left_after < 2:
        assert present in (*again.layers, again.top)
    assert place.layer(again.top).exists()
