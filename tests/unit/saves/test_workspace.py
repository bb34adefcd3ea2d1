"""Saves in a directory that has other things, too, and what a directory from elsewhere has in the
places where we tidy."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.errors import HostError, SaveError
from quicksand.base.paths import Paths
from quicksand.base.removal import MARK
from quicksand.life.cleaning import Cleaner
from quicksand.life.disk_usage import UsageKind, measure
from quicksand.records.trash import TRASH, TRASH_KEPT_S
from quicksand.saves import proof
from quicksand.saves import store as store_module
from quicksand.saves.census import (
    Census,
    expire_trash,
    list_trash,
    remove_save,
    restore_save,
    sweep,
)
from quicksand.saves.finding import all_stores, known_stores, remember, store_at, workspace_store
from quicksand.saves.ownership import is_own
from quicksand.saves.proof import GONE
from quicksand.saves.save_places import HOUSE, READY
from quicksand.saves.store import MAKING, SaveStore

from tests.unit.saves.making import make_published, make_save

HEX = "0123456789ab"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A project of the user's."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.c").write_text("int main;")
    (root / "manifest.json").write_text("{}")
    (root / ".hidden").mkdir()
    root.chmod(0o755)
    return root


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """All there is below, with modes and contents, but for the saves' house."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/", maxsplit=1)[0] != HOUSE:
            content = path.read_text("latin-1") if path.is_file() else ""
            found[name] = (path.lstat().st_mode, content)
    return found


# Where saves go


def test_a_workspace_is_the_directory_of_the_saves(work: Path) -> None:
    before, mode = tree(work), stat.S_IMODE(work.stat().st_mode)
    save = make_save(workspace_store(work), "env", b"1")
    assert save.root == work / "env"
    assert {path.name for path in save.root.iterdir()} == {MARK, "manifest.json", "overlays"}
    for name in ("env", "env/manifest.json", "env/overlays", "env/overlays/0.qcow2"):
        assert name in tree(work)
    assert {k: v for k, v in tree(work).items() if not k.startswith("env")} == before
    assert stat.S_IMODE(work.stat().st_mode) == mode
    assert stat.S_IMODE((work / HOUSE).stat().st_mode) == 0o700


def test_without_one_it_is_the_specifications(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    assert make_save(workspace_store(), "env", b"1").root == work / ".quicksand/sandboxes/env"
    assert not (work / ".quicksand" / "sandboxes" / HOUSE).exists()


def test_what_earlier_versions_have_saved_is_known_still(places: Paths, tmp_path: Path) -> None:
    """Then ``sandboxes`` in a workspace had it all."""
    store = SaveStore(tmp_path / "old" / "sandboxes")
    make_save(store, "env", b"1")
    make_save(store, "env", b"2", replace=True)
    remember(store.root, places)
    known = next(found for found in known_stores(places) if found.root == store.root)
    assert [save.name for save in known.list()] == ["env"]
    assert [found.save.name for found in known.trash()] == ["env"]


def test_only_saves_are_listed_and_removed(places: Paths, work: Path) -> None:
    store = workspace_store(work)
    make_save(store, "env", b"1")
    remember(store.root, places)
    (work / "page").mkdir()
    (work / "page" / "manifest.json").write_text("{}")
    assert [save.name for save in store.list()] == ["env"]
    assert [i.name for i in Census(places, work).list()] == ["env"]
    for name in ("src", "page", ".hidden", HOUSE):
        with pytest.raises(SaveError):
            store.remove(name)
    items = [
        i.name
        for i in measure(places, work).items
        if i.kind in (UsageKind.SAVE, UsageKind.LEFTOVER)
    ]
    assert items == ["env"]
    (work / "env" / "manifest.json").write_text("{")
    (damaged,) = store.list()
    assert damaged.error


# What has the name already


def test_what_was_no_save_goes_to_the_trash_and_stays_there(places: Paths, work: Path) -> None:
    store = store_at(work)
    remember(work, places)
    before = tree(work / "src")
    with pytest.raises(SaveError, match="already"):
        make_save(store, "src", b"1")
    assert tree(work / "src") == before
    make_save(store, "src", b"1", replace=True)
    assert store.find("src").error == ""
    kept = store_at(work, places)
    (trashed,) = kept.trash()
    assert (trashed.save.name, trashed.was_save) == ("src", False)
    # Nobody knows what it is worth: no week makes an end of it.
    for weeks in (2, 3):
        assert expire_trash([kept], trashed.removed + weeks * TRASH_KEPT_S) == []
    with pytest.raises(SaveError, match="it is no save"):
        kept.empty_trash([trashed.id])
    clean(places)
    assert tree(trashed.root / "save") == before
    remove_save(work / "src", places)
    back = restore_save(trashed.id, places)
    assert tree(back.root) == before
    assert [found.was_save for found in kept.trash()] == [True]


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_file_and_a_link_make_room_as_what_they_are(
    work: Path, monkeypatch: pytest.MonkeyPatch, exchanged: bool
) -> None:
    if not exchanged:
        monkeypatch.setattr(store_module, "exchange", lambda *_: False)
    store = SaveStore(work, is_shared=True)
    before = tree(work / "src")
    (work / "link").symlink_to("src")
    (work / "file").write_text("mine")
    for name in ("link", "file"):
        make_save(store, name, b"1", replace=True)
        assert not (work / name).is_symlink()
    assert tree(work / "src") == before
    link, file = (trashed.root / "save" for trashed in store.trash())
    assert os.readlink(link) == "src"
    assert file.read_text() == "mine"


def make_repository(path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", path], check=True)


def make_worktree(path: Path) -> None:
    path.mkdir()
    (path / ".git").write_text("gitdir: /elsewhere")


def make_home(path: Path) -> None:
    (path / "documents").mkdir(parents=True)
    os.environ["HOME"] = str(path)


def make_parent_of_home(path: Path) -> None:
    make_home(path / "me")


def make_here(path: Path) -> None:
    path.mkdir()
    os.chdir(path)


def make_parent_of_here(path: Path) -> None:
    (path / "deep" / "er").mkdir(parents=True)
    os.chdir(path / "deep" / "er")


def make_data(path: Path) -> None:
    os.environ["QUICKSAND_DATA_DIR"] = str(path / "data")
    (path / "data").mkdir(parents=True)


def make_mount(path: Path) -> None:
    path.mkdir()
    mount(path)


def make_parent_of_mount(path: Path) -> None:
    (path / "in it").mkdir(parents=True)
    mount(path / "in it")


def mount(path: Path) -> None:
    """As the system tells of it."""
    place = str(path).replace(" ", "\\040").encode()
    line = b"36 35 98:0 / " + place + b" rw,noatime - ext4 /dev/sda1 rw\n"
    proof.MOUNTS.write_bytes(proof.MOUNTS.read_bytes() + line)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_repository, "is a repository: it has .git"),
        (make_worktree, "is a repository: it has .git"),
        (make_home, "is your home"),
        (make_parent_of_home, "contains your home"),
        (make_here, "is the current directory"),
        (make_parent_of_here, "contains the current directory"),
        (make_data, "contains a directory of quicksand's"),
        (make_mount, "is a mount point"),
        (make_parent_of_mount, "contains a mount point"),
    ],
)
def test_what_must_stay_is_refused(
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    says: str,
) -> None:
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))
    monkeypatch.setenv("QUICKSAND_DATA_DIR", os.environ["QUICKSAND_DATA_DIR"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mountinfo").write_bytes(Path("/proc/self/mountinfo").read_bytes())
    monkeypatch.setattr(proof, "MOUNTS", tmp_path / "mountinfo")
    make(work / "thing")
    before, store = tree(work), SaveStore(work, is_shared=True)
    with pytest.raises(SaveError, match=says) as caught:
        store.check_target("thing", replace=True)
    assert str(work / "thing") in str(caught.value) and caught.value.hint
    with pytest.raises(SaveError, match=says):
        make_save(store, "thing", b"1", replace=True)
    assert tree(work) == before
    assert store.trash() == []
    assert {path.name for path in store.house.iterdir()} == {".lock"}


def test_a_link_to_a_home_is_only_a_link(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (work / "thing").symlink_to(tmp_path / "me")
    make_save(SaveStore(work, is_shared=True), "thing", b"1", replace=True)
    assert (tmp_path / "me").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_what_belongs_to_another_user_is_refused(work: Path) -> None:
    (work / "thing").mkdir()
    os.chown(work / "thing", 65534, 65534)
    with pytest.raises(SaveError, match="belongs to another user"):
        make_save(SaveStore(work, is_shared=True), "thing", b"1", replace=True)


def test_a_repository_that_comes_in_the_way_of_a_recovery_stays(work: Path) -> None:
    """Whoever saved was killed; then somebody cloned to that place."""
    store = SaveStore(work, is_shared=True)
    make_save(store, "env", b"1")
    ready = store.house / f"{READY}{HEX}"
    ready.mkdir()
    (work / "env").rename(ready / "save")
    inode = (ready / "save").stat().st_ino
    (ready / "ready.json").write_text(json.dumps({"name": "env", "inode": inode}))
    make_repository(work / "env")
    store.recover()
    assert (work / "env" / ".git").is_dir()
    assert [save.name for save in store.list()] == [f"recovered-{HEX}"]


# What a directory from elsewhere brings


@pytest.fixture(params=[".quicksand/sandboxes", "."])
def foreign(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SaveStore:
    """Saves of a cloned repository."""
    root = tmp_path / "repo" / request.param
    make_published(root / "env", b"1")
    (tmp_path / "repo").chmod(0o755)
    monkeypatch.chdir(tmp_path / "repo")
    store = store_at(root)
    store.house.mkdir(exist_ok=True)
    store.house.chmod(0o755)
    return store


def traps(house: Path, victim: Path) -> None:
    """All that could have our tidying reach ``victim``."""
    (victim / "save").mkdir(parents=True)
    (victim / "save" / "thesis").write_text("years")
    (victim / HEX / "thesis").mkdir(parents=True)
    (house / f"{GONE}{HEX}").symlink_to(victim)
    (house / f"{MAKING}{HEX}").symlink_to(victim)
    (house / f"{READY}{HEX}").symlink_to(victim)
    (house / f"{READY}{HEX[::-1]}").mkdir()
    (house / f"{READY}{HEX[::-1]}" / "save").symlink_to(victim / "save")
    (house / f"{READY}{HEX[::-1]}" / "ready.json").write_text('{"name": "env", "inode": 1}')
    (house / TRASH).symlink_to(victim)


def clean(places: Paths) -> None:
    """Remove what can be made again, but not from the cache, which is the user's."""
    cleaner = Cleaner(replace(places, cache=places.data.parent / "cache"))
    cleaner.clean(cleaner.look())


def do_all(places: Paths, store: SaveStore) -> None:
    """What somebody does who looks around, and then some."""
    Census(places).list(everywhere=True)
    assert [save.name for save in store.list()] == ["env"]
    assert list_trash(known_stores(places)) == []
    clean(places)
    sweep(places)


@pytest.mark.parametrize("is_trapped", [True, False])
def test_looking_changes_nothing(
    places: Paths, foreign: SaveStore, tmp_path: Path, is_trapped: bool
) -> None:
    if is_trapped:
        traps(foreign.house, tmp_path / "victim")
    else:
        make_published(foreign.house / TRASH / HEX / "save", b"of the repository")
        about = {"name": "env", "removed": 1.0}
        (foreign.house / TRASH / HEX / "trash.json").write_text(json.dumps(about))
        make_published(foreign.house / f"{READY}{HEX}" / "save", b"of the repository")
    (foreign.house / f"{GONE}{HEX[::-1]}" / "of the repository").mkdir(parents=True)
    before = tree(tmp_path), tree(foreign.house), foreign.house.stat().st_mode
    for store in (foreign, *all_stores(places)):
        store.list()
        store.get("env")
        store.get("none")
        store.recover()
    do_all(places, foreign)
    assert (tree(tmp_path), tree(foreign.house), foreign.house.stat().st_mode) == before


def test_nothing_beyond_it_is_reached_by_who_saves_there(
    places: Paths, foreign: SaveStore, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    traps(foreign.house, victim)
    before = tree(victim), victim.stat().st_mode
    remember(foreign.root, places)
    mine = store_at(foreign.root, places)
    assert mine.is_kept
    for change in (lambda: make_save(mine, "mine", b"1"), lambda: mine.remove("env")):
        with pytest.raises(HostError, match=r"\.trash cannot be used: it is a link"):
            change()
    assert (mine.trash(), mine.find("env").error) == ([], "")
    do_all_with(mine, places)
    (mine.house / TRASH).unlink()
    make_save(mine, "mine", b"1")
    make_save(mine, "mine", b"2", replace=True)
    assert [found.save.error for found in mine.trash() if found.save.name == "mine"] == [""]
    mine.recover()
    do_all_with(mine, places)
    assert (tree(victim), victim.stat().st_mode) == before


def do_all_with(store: SaveStore, places: Paths) -> None:
    store.empty_trash([HEX, *(found.id for found in store.trash() if found.was_save)])
    clean(places)
    sweep(places)


def test_a_house_that_leads_elsewhere_is_not_used(work: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir(mode=0o755)
    (work / HOUSE).symlink_to(tmp_path / "victim")
    store = SaveStore(work, is_shared=True)
    with pytest.raises(HostError, match="cannot be used: it is a link"):
        make_save(store, "env", b"1")
    assert list((tmp_path / "victim").iterdir()) == []
    assert stat.S_IMODE((tmp_path / "victim").stat().st_mode) == 0o755
    assert store.trash() == []
    store.recover()


def test_a_lock_that_leads_elsewhere_makes_nothing_there(work: Path, tmp_path: Path) -> None:
    """As root, /etc/nologin would keep everybody out."""
    (work / HOUSE).mkdir()
    (work / HOUSE / ".lock").symlink_to(tmp_path / "nologin")
    with pytest.raises(HostError, match="is a link"):
        make_save(SaveStore(work, is_shared=True), "env", b"1")
    assert not (tmp_path / "nologin").exists()


def test_a_manifest_that_is_no_regular_file_is_not_waited_for(places: Paths, work: Path) -> None:
    make_published(work / "pipe", b"1")
    (work / "pipe" / "manifest.json").unlink()
    os.mkfifo(work / "pipe" / "manifest.json")
    make_published(work / "link", b"1")
    (work / "link" / "manifest.json").unlink()
    (work / "link" / "manifest.json").symlink_to("/dev/zero")
    store = store_at(work)
    ready = store.house / f"{READY}{HEX}"
    make_published(ready / "save", b"1")
    os.mkfifo(ready / "ready.json")
    entry = store.house / TRASH / HEX
    make_published(entry / "save", b"1")
    os.mkfifo(entry / "trash.json")
    remember(work, places)
    trash = {found.save.name for found in store_at(work, places).trash()}
    assert trash == {HEX}
    store_at(work, places).recover()
    trash = {found.save.name for found in store_at(work, places).trash()}
    assert trash == {HEX, f"recovered-{HEX}"}
    found = store_at(work, places).list()
    assert ["it is no file" in save.error for save in found] == [True, True]
    assert not any(is_own(save.root, places) for save in found)
