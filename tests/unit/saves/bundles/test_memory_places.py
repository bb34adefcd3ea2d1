"""Imported sandboxes whose memory files go to another directory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand import saves
from quicksand.base.errors import BundleError, ConfigError
from quicksand.records.layout import directories_elsewhere, sandbox_dir
from quicksand.saves.bundle.exporting import export_save, export_tree
from quicksand.saves.bundle.receiving import Imported
from quicksand.saves.bundle.unpacked import read_head

from tests.unit.saves.bundles.boxes import check_whole, make_box
from tests.unit.saves.bundles.making import Home


@pytest.fixture
def fast(tmp_path: Path) -> Path:
    return tmp_path / "fast"


@pytest.fixture
def bundle(here: Home, there: Home, tmp_path: Path) -> Path:
    there.add_image()
    path = tmp_path / "box.quicksand"
    asyncio.run(export_tree(here.registry, make_box(here), path))
    return path


def arrived(there: Home, done: Imported, fast: Path) -> Path:
    """The directory of the memory files of what was imported."""
    place = sandbox_dir(there.paths, done.id)
    assert place.memory.readlink() == fast / done.id
    assert len(check_whole(there, done.id)) == 3
    return place.memory.readlink()


def test_the_memory_of_an_imported_sandbox_goes_where_it_is_wanted(
    there: Home, bundle: Path, fast: Path
) -> None:
    done = there.import_(bundle, places={"memory_dir": str(fast)})
    memory = arrived(there, done, fast)
    assert any(memory.iterdir())
    assert directories_elsewhere(there.paths) == {fast}
    record = there.registry.find(done.name).record
    assert record is not None
    assert record.config.memory_dir == str(fast)
    there.registry.remove(done.id)
    assert list(fast.iterdir()) == []


def test_the_variable_counts_for_imports_too(there: Home, bundle: Path, fast: Path) -> None:
    there = Home(replace(there.paths, memory=fast))
    arrived(there, there.import_(bundle), fast)


def test_python_and_the_command_take_it(
    there: Home, bundle: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_reasons(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("quicksand.saves.public.find_reasons", no_reasons)
    done = asyncio.run(saves.import_(bundle, memory_dir=fast))
    arrived(there, done, fast)


def test_an_import_that_fails_leaves_no_memory_there(there: Home, bundle: Path, fast: Path) -> None:
    data = bytearray(bundle.read_bytes())
    data[-2000] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(BundleError):
        there.import_(bundle, places={"memory_dir": str(fast)})
    assert list(fast.iterdir()) == []


def test_what_a_killed_import_has_left_there_goes_with_the_next_sweep(
    there: Home, bundle: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        # What a killed process does not do: its lock is free, its directories are there.
        patch.setattr("quicksand.base.staging.remove", lambda _: None)
        patch.setattr("quicksand.saves.bundle.tree_import.remove_elsewhere", lambda _: None)
        patch.setattr("quicksand.saves.bundle.tree_import._write_records", die)
        with pytest.raises(Killed):
            there.import_(bundle, places={"memory_dir": str(fast)})
    assert len(list(fast.iterdir())) == 1
    there.registry.reap()
    assert list(fast.iterdir()) == []


def test_a_bundle_does_not_choose_where_memory_goes(
    here: Home, there: Home, tmp_path: Path, fast: Path
) -> None:
    there.add_image()
    path = tmp_path / "box.quicksand"
    record = make_box(here, "mine", memory_dir=str(fast))
    asyncio.run(export_tree(here.registry, record, path))
    bundle = read_head(path).bundle
    assert bundle is not None
    assert bundle.config is not None
    assert bundle.config.memory_dir is None
    assert sandbox_dir(there.paths, there.import_(path).id).memory.is_symlink() is False


def test_a_save_has_no_memory_to_put_anywhere(
    here: Home, there: Home, tmp_path: Path, fast: Path
) -> None:
    path = tmp_path / "env.quicksand"
    export_save(here.saves.find("env"), path, here.paths, full=True)
    with pytest.raises(ConfigError, match="holds no sandbox but a save"):
        there.import_(path, places={"memory_dir": str(fast)})
    assert not fast.exists()
