"""A running sandbox is found where it was started, whatever the client's own directory is."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.things.status import Status

from tests.unit.records.making import RUN, make


def test_another_runtime_directory_of_a_client_hides_no_sandbox(
    places: Paths, tmp_path: Path
) -> None:
    record = make(Registry(places))
    place = sandbox_dir(places, record.id)
    machine = runtime_dir(places, record.id).make("1")
    runtime_dir(places, record.id).current_link.symlink_to("1")
    publish_state(machine, RUN)
    lock = try_lock(place.lock)
    assert lock is not None
    elsewhere = replace(places, runtime=tmp_path / "elsewhere")
    entry = Registry(elsewhere).inspect(record.id)
    assert entry is not None
    assert (entry.status, entry.run) == (Status.RUNNING, RUN)
    assert runtime_dir(elsewhere, record.id).root == machine.root.parent

    # A copy of the data directory has the link, too, and is not that sandbox.
    copied = replace(elsewhere, data=tmp_path / "copied")
    shutil.copytree(places.data, copied.data, symlinks=True)
    assert runtime_dir(copied, record.id).root == copied.runtime / record.id
    # Nor does it lead to what has ended, or to anything that is not ours.
    shutil.rmtree(machine.root.parent)
    for thing in (None, "directory"):
        if thing:
            machine.root.parent.mkdir()
        assert runtime_dir(elsewhere, record.id).root == elsewhere.runtime / record.id
    machine.root.parent.rmdir()
    os.close(lock)
