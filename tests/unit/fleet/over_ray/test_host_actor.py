"""`Host`, which answers for one machine: what it notes, and how it mends the books."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from quicksand.base.files import try_lock
from quicksand.base.paths import paths
from quicksand.records.layout import sandbox_dir
from quicksand_fleet.over_ray.desk import Place
from quicksand_fleet.over_ray.host_actor import Host
from quicksand_fleet.over_ray.places import Kept, Places

from tests.unit.fleet.over_ray.fakes import ONE, TWO, FakeRay

ID, SANDBOX = "b" * 32, "c" * 12


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("QUICKSAND_RUNTIME_DIR", str(tmp_path / "run"))


def place(id_: str, machine_id: str = ONE, *, expires_at: float) -> Place:
    return Place(id=id_, machine_id=machine_id, memory_bytes=1, expires_at=int(expires_at))


async def test_a_place_lives_and_ends_with_its_sandbox_whatever_ray_forgets() -> None:
    ray = FakeRay()
    host = Host(lambda: ray, ONE)
    lock = sandbox_dir(paths(), SANDBOX).lock
    lock.parent.mkdir(parents=True, mode=0o700)
    runs = try_lock(lock)
    assert runs is not None
    await host.bind(ID, SANDBOX, 1)
    await host.repair()
    assert ray.kept[ID].machine_id == ONE  # a new head has learned of it
    os.close(runs)
    await Host(lambda: ray, ONE).repair()  # begun again, it reads the disk
    assert not ray.kept
    assert not Places(paths()).list()


async def test_only_what_is_its_own_and_overdue_is_given_back() -> None:
    ray = FakeRay()
    now = time.time()
    for one in (
        place("1" * 32, expires_at=now - 1),
        place("2" * 32, expires_at=now + 60),
        place("3" * 32, TWO, expires_at=now - 1),
    ):
        ray.kept[one.id] = one
    await Host(lambda: ray, ONE).repair()
    assert sorted(ray.kept) == ["2" * 32, "3" * 32]


def test_files_of_others_among_the_places_are_passed_over() -> None:
    places = Places(paths())
    kept = Kept(id=ID, sandbox=SANDBOX, memory_bytes=5)
    places.bind(kept)
    directory = paths().data / "fleet" / "places"
    for name, text in (("x.json", "{}"), (f"{'d' * 32}.json", "["), (f"{'e' * 32}.json", "{}")):
        (directory / name).write_text(text)
    assert places.list() == [kept]
    for bad in (Kept(id="../x", sandbox=SANDBOX, memory_bytes=1),):
        with pytest.raises(ValueError, match="no id"):
            places.bind(bad)


def test_the_name_of_a_group_says_whose_it_is_and_until_when() -> None:
    one = place(ID, expires_at=77)
    assert Place.parse(one.name, ONE, 1, is_placed=True) == one
    for other in ("", "place-", f"other-{ID}-7", f"place-{ID}", f"place-{ID}-x", "place-zz-7"):
        assert Place.parse(other, ONE, 1, is_placed=True) is None
