"""Deleting: what is not proven ours stays, whoever planted it and however it looks."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import PathError
from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.removal import (
    HEADER,
    MARK,
    NotOursError,
    belongs_to,
    id_of,
    make_marked,
    mark,
    marked_id,
    remove,
    why_not_ours,
)
from quicksand.records.layout import RuntimeDir, SandboxDir, remove_elsewhere, sandbox_dir

from tests.each import each

ID = "0123456789ab"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def fill(root: Path) -> Path:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("x")
    (root / "file").write_text("y")
    return root


def test_what_we_made_goes_and_what_its_links_lead_to_stays(home: Path, tmp_path: Path) -> None:
    kept = fill(tmp_path / "kept")
    ours = fill(make_marked(home / ID))
    (ours / "a" / "link").symlink_to(kept)
    (ours / "broken").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(ours / "socket"))
    remove(ours)
    assert not ours.exists()
    assert (kept / "a" / "b" / "file").read_text() == "x"
    remove(ours)


@each(
    "name", ["thesis", "0123456", "0123456789aG", "x-0123456789ab", ".-0123456789ab", "..", ".git"]
)
def test_other_names_are_no_names_of_ours(name: str) -> None:
    assert id_of(name) is None


@each(
    ("name", "id_"),
    [(ID, ID), (f".removed-{ID}", ID), (".building-debian-12.1-deadbeef", "deadbeef")],
)
def test_the_id_stands_at_the_end(name: str, id_: str) -> None:
    assert id_of(name) == id_


def test_a_stranger_with_our_kind_of_name_stays(home: Path) -> None:
    stranger = fill(home / ID)
    before = sorted(str(path) for path in home.rglob("*"))
    with pytest.raises(NotOursError, match=r"no \.quicksand of ours"):
        remove(stranger)
    assert sorted(str(path) for path in home.rglob("*")) == before
    assert "no .quicksand" in why_not_ours(stranger)


def test_a_mark_of_another_directory_proves_nothing(home: Path) -> None:
    ours = make_marked(home / ID)
    moved = home / "ba9876543210"
    shutil.copytree(ours, moved)
    with pytest.raises(NotOursError, match="is that of '0123456789ab'"):
        remove(moved)
    assert moved.is_dir()


@pytest.mark.parametrize("content", ["", "x", HEADER, f"{HEADER}{ID}x\n", f"{HEADER} {ID}\n"])
def test_a_mark_that_says_something_else_proves_nothing(home: Path, content: str) -> None:
    stranger = fill(home / ID)
    (stranger / MARK).write_text(content)
    with pytest.raises(NotOursError):
        remove(stranger)
    assert (stranger / "file").exists()


def test_a_damaged_mark_beside_a_whole_record_is_in_nobodys_way(home: Path) -> None:
    """A host that goes down may leave it empty: it is not synced."""
    ours = make_marked(home / ID)
    text = (ours / MARK).read_bytes()
    flips = [text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :] for at in range(len(text) - 1)]
    for damaged in (b"", text[:-5], b"\0" * len(text), *flips):
        fill(ours)
        (ours / MARK).write_bytes(damaged)
        for record in ("", '{"id": "ffffffffffff"}', '{"id": 1}', "{"):
            (ours / "sandbox.json").write_text(record)
            with pytest.raises(NotOursError):
                remove(ours)
        (ours / "sandbox.json").write_text(f'{{"id": "{ID}"}}')
        remove(ours)
        assert not ours.exists()
        make_marked(ours)


@pytest.mark.parametrize(
    ("name", "record", "ours"),
    [
        ("trash.json", f'{{"removed": 1.5, "id": "{ID}"}}', True),
        ("trash.json", '{"removed": 1.5}', False),
        ("manifest.json", f'{{"digest": "{ID}ffff"}}', True),
        ("sandbox.json", f'{{"id": "{ID}"}}', True),
    ],
)
def test_with_a_damaged_mark_a_record_must_name_its_directory(
    home: Path, name: str, record: str, ours: bool
) -> None:
    damaged = fill(make_marked(home / ID))
    (damaged / MARK).write_text("")
    (damaged / name).write_text(record)
    assert (why_not_ours(damaged) == "") is ours


def test_a_template_is_known_without_its_mark_and_a_copy_of_one_is_not(home: Path) -> None:
    key, other = ID[:8] * 4, ID[4:12] * 4
    made = make_marked(home / key)
    (made / "sandbox.json").write_text(f'{{"id": "{ID}"}}')
    shutil.copytree(made, home / other)
    assert "is that of" in why_not_ours(home / other)
    (made / MARK).write_text("")
    assert why_not_ours(made) == ""


@pytest.mark.parametrize("said", ["../../x", "..", "/etc", "0123", "", "0123456789AB", f"{ID}/x"])
def test_what_is_no_id_is_believed_of_no_mark(home: Path, said: str) -> None:
    """It becomes part of a path: of a directory that is on its way out."""
    stranger = fill(home / "save")
    (stranger / MARK).write_text(f"{HEADER}{said}\n")
    assert marked_id(stranger) is None


@given(st.binary(max_size=200))
def test_no_mark_of_chance_proves_anything(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        stranger = fill(Path(directory) / ID)
        (stranger / MARK).write_bytes(content)
        with pytest.raises(NotOursError):
            remove(stranger)


def test_a_link_in_place_of_a_directory_is_not_followed(home: Path, tmp_path: Path) -> None:
    ours = make_marked(make_private_dir(tmp_path / "elsewhere") / ID)
    (home / ID).symlink_to(ours)
    with pytest.raises(NotOursError, match="is a link"):
        remove(home / ID)
    assert ours.is_dir()


def test_nothing_is_deleted_through_a_parent_that_is_a_link(home: Path, tmp_path: Path) -> None:
    ours = make_marked(home / ID)
    (tmp_path / "planted").symlink_to(home)
    with pytest.raises(NotOursError, match="is a link"):
        remove(tmp_path / "planted" / ID)
    assert ours.is_dir()


def test_a_mark_that_is_a_link_proves_nothing(home: Path) -> None:
    ours = make_marked(home / "ba9876543210")
    mark(ours, as_=ID)
    stranger = fill(home / ID)
    (stranger / MARK).symlink_to(ours / MARK)
    with pytest.raises(NotOursError, match="cannot be read"):
        remove(stranger)


def test_a_mark_that_would_hang_whoever_reads_it_proves_nothing(home: Path) -> None:
    stranger = fill(home / ID)
    os.mkfifo(stranger / MARK)
    with pytest.raises(NotOursError, match="not a file of ours"):
        remove(stranger)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_where_others_can_write_nothing_is_deleted(home: Path, mode: int) -> None:
    ours = make_marked(home / ID)
    home.chmod(mode)
    with pytest.raises(NotOursError, match="can be written to by others"):
        remove(ours)
    assert ours.is_dir()
    assert stat.S_IMODE(home.stat().st_mode) == mode


def test_a_group_of_the_user_alone_is_nobody_else(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = make_marked(home / ID)
    home.chmod(0o770)
    real = os.fstat

    def of_group(number: int) -> Any:
        found = list(real(number))
        found[5] = os.geteuid() + 1
        return os.stat_result(found)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", of_group)
        with pytest.raises(NotOursError, match="can be written to by others"):
            remove(ours)
    remove(ours)
    assert not ours.exists()


def test_what_belongs_to_another_user_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make_marked(home / ID)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(NotOursError, match="belongs to another user"):
        remove(ours)
    assert ours.is_dir()


def test_one_that_was_just_being_made_loses_nothing(home: Path) -> None:
    (home / ID).mkdir()
    (home / ID / "lock").touch()
    (home / ID / f"{MARK}.0badcafe").write_text("half a ma")
    assert why_not_ours(home / ID), "it is not proven to be ours"
    remove(home / ID)
    assert not (home / ID).exists()


def test_a_lock_with_something_in_it_is_somebody_s(home: Path) -> None:
    (home / ID).mkdir()
    (home / ID / "lock").write_text("of a chest")
    with pytest.raises(NotOursError):
        remove(home / ID)


@pytest.mark.parametrize("when", ["listed", "unmarked"])
def test_what_others_write_in_that_moment_goes_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    place = make_marked(home / ID)
    (place / "lock").touch()
    unlink = os.unlink
    written: list[str] = []

    def unlink_late(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        if not written and (name == MARK) == (when == "unmarked"):
            written.append(name)
            (place / "engine.log").write_text("could not ask which layer is written to")

    monkeypatch.setattr("quicksand.base.removal.os.unlink", unlink_late)
    remove(place)
    assert written
    assert not place.exists()


def test_what_was_cut_short_can_be_gone_on_with(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark goes last: what is left of a removal is still proven."""
    ours = fill(make_marked(home / ID))
    unlink = os.unlink

    def refuse(path: Any, *, dir_fd: int | None = None) -> None:
        if path == "file":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(PermissionError):
            remove(ours)
    assert (ours / MARK).exists()
    remove(ours)
    assert not ours.exists()


def test_at_whatever_step_it_is_killed_the_rest_can_be_removed(home: Path) -> None:
    step = 0
    while True:
        ours = fill(make_marked(home / ID))
        step += 1
        if not removed_but_for(ours, step):
            break
        assert why_not_ours(ours) == "" or list(ours.iterdir()) == []
        remove(ours)
        assert not ours.exists()
    assert step > 5


def removed_but_for(path: Path, step: int) -> bool:
    """Remove ``path`` and stop before that step; whether there was such a one."""

    class KilledError(BaseException):
        pass

    count = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in ("unlink", "rmdir"):
            real = getattr(os, name)

            def counted(*args: Any, real: Any = real, **kwargs: Any) -> None:
                nonlocal count
                count += 1
                if count == step:
                    raise KilledError
                real(*args, **kwargs)

            patch.setattr(os, name, counted)
        try:
            remove(path)
        except KilledError:
            return True
    return False


def test_a_part_goes_alone(home: Path) -> None:
    ours = fill(make_marked(home / ID))
    remove(ours, part="a/b")
    remove(ours, part="a/b")
    assert (ours / "a").is_dir()
    assert not (ours / "a" / "b").exists()
    assert (ours / "file").exists()


@pytest.mark.parametrize("part", ["..", "a/../..", "a//b", "/etc", "."])
def test_a_part_never_leads_out(home: Path, part: str) -> None:
    ours = fill(make_marked(home / ID))
    with pytest.raises(ValueError, match="no part"):
        remove(ours, part=part)
    assert (ours / "a" / "b" / "file").exists()


def test_a_part_is_not_looked_for_behind_a_link(home: Path, tmp_path: Path) -> None:
    kept = fill(tmp_path / "kept")
    ours = make_marked(home / ID)
    (ours / "a").symlink_to(kept / "a")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove(ours, part="a/b")
    assert (kept / "a" / "b" / "file").exists()


def test_what_is_mounted_within_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = fill(make_marked(home / ID))
    real = os.stat

    def elsewhere(path: Any, **kwargs: Any) -> Any:
        found = real(path, **kwargs)
        if path != "b":
            return found
        values = list(found)
        values[2] += 1  # st_dev
        return os.stat_result(values)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", elsewhere)
        with pytest.raises(NotOursError, match="mounted"):
            remove(ours)
    assert (ours / "a" / "b" / "file").exists()
    assert not (ours / "file").exists()


@pytest.mark.parametrize(
    ("name", "record", "ours"),
    [
        ("sandbox.json", f'{{"id": "{ID}"}}', True),
        ("sandbox.json", '{"id": "ffffffffffff"}', False),
        ("sandbox.json", "{", False),
        ("sandbox.json", "[]", False),
        ("manifest.json", f'{{"digest": "{ID}ffff"}}', True),
        ("manifest.json", '{"digest": "beef"}', False),
        ("trash.json", '{"removed": 1.5}', True),
        ("trash.json", '{"removed": "yes"}', False),
        ("package.json", f'{{"id": "{ID}"}}', False),
    ],
)
def test_what_was_made_before_there_were_marks_is_known_by_its_record(
    home: Path, name: str, record: str, ours: bool
) -> None:
    old = fill(home / ID)
    (old / name).write_text(record)
    assert (why_not_ours(old) == "") is ours
    if ours:
        remove(old)
    assert old.exists() is not ours


def test_a_mark_says_whom_it_belongs_to(home: Path, tmp_path: Path) -> None:
    ours = make_marked(home / ID, of=tmp_path / "with\udcff odd, bytes")
    assert belongs_to(ours) == str(tmp_path / "with\udcff odd, bytes")
    assert marked_id(ours) == ID
    ours.rename(home / "another")
    assert marked_id(home / "another") == ID


def test_a_mark_that_cannot_be_written_leaves_no_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        make_marked(home / ID)
    assert list(home.iterdir()) == []


def test_the_error_names_the_directory_and_says_what_to_do(home: Path) -> None:
    stranger = fill(home / ID)
    with pytest.raises(PathError, match="was not removed") as caught, map_os_errors(stranger):
        remove(stranger)
    assert str(stranger) in str(caught.value)
    assert "remove it yourself" in caught.value.hint


# Where our directories are made


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    assert make_private_dir(place) == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_new_ones_are_private_with_what_leads_to_them(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make_private_dir(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_planted_link_and_a_directory_for_all_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    planted = tmp_path / "quicksand-0"
    planted.symlink_to(target)
    for_all = tmp_path / "all"
    for_all.mkdir()
    for_all.chmod(0o777)
    for place in (planted, for_all):
        with pytest.raises(PathError, match="cannot be used") as caught:
            make_private_dir(place)
        assert str(place) in str(caught.value)
    assert stat.S_IMODE(for_all.stat().st_mode) == 0o777


# Memory in a place of everybody's, as /dev/shm is


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of everybody's, which is named for memory."""
    shared = tmp_path / "shm"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(shared))
    return shared


@pytest.fixture
def place(shared: Path, tmp_path: Path) -> SandboxDir:
    """The directory of a sandbox that was never started, with its memory there."""
    place = sandbox_dir(replace(paths(), data=tmp_path / "data"), ID)
    place.root.mkdir(parents=True)
    return place


def test_memory_in_a_place_of_everybody_s_gets_a_directory_of_its_own(
    shared: Path, place: SandboxDir
) -> None:
    """It could not be removed from there otherwise."""
    own = shared / f"quicksand-{os.getuid()}"
    assert paths().memory == own
    place.make()
    memory = place.memory.readlink()
    assert memory == own / ID
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    (memory / "some.pages").write_text("x")
    place.make()
    assert (memory / "some.pages").exists()
    remove_elsewhere(place.root)
    assert not memory.exists()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def of_another_user(monkeypatch: pytest.MonkeyPatch, *others: Path) -> None:
    """From now on these files are somebody else's."""
    theirs, real = {path.stat().st_ino for path in others}, os.fstat

    def told(number: int) -> Any:
        found = list(real(number))
        if found[1] in theirs:
            found[4] = os.geteuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", told)


@pytest.mark.parametrize("kind", ["link", "for all", "theirs"])
def test_memory_is_never_put_into_what_another_user_has_made_there(
    shared: Path, place: SandboxDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    planted, kept = shared / f"quicksand-{os.getuid()}", tmp_path / "kept"
    kept.mkdir()
    if kind == "link":
        planted.symlink_to(kept)
    else:
        planted.mkdir(mode=0o700)
        planted.chmod(0o777 if kind == "for all" else 0o700)
    if kind == "theirs":
        of_another_user(monkeypatch, planted)
    with pytest.raises(PathError, match="cannot be used") as caught:
        place.make()
    assert str(planted) in str(caught.value)
    assert not place.memory.is_symlink()
    assert list(kept.iterdir()) == []
    if kind != "link":
        assert list(planted.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "theirs"])
def test_memory_that_a_sandbox_has_there_is_proven_at_each_start(
    shared: Path, place: SandboxDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place.make()
    memory = place.memory.readlink()
    if kind == "link":
        memory.rename(tmp_path / "moved")
        memory.symlink_to(tmp_path / "moved")
    else:
        of_another_user(monkeypatch, memory)
    with pytest.raises(PathError, match="cannot be used"):
        place.make()


def test_memory_of_earlier_versions_in_the_shared_place_itself_goes_on(
    shared: Path, place: SandboxDir
) -> None:
    earlier = shared / ID
    place.memory.symlink_to(earlier)
    place.make()
    assert stat.S_IMODE(earlier.stat().st_mode) == 0o700
    (earlier / "some.pages").write_text("x")
    place.make()
    assert (earlier / "some.pages").exists()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777


def test_where_all_can_rename_what_is_there_nothing_of_ours_is_made(
    shared: Path, place: SandboxDir
) -> None:
    shared.chmod(0o777)
    with pytest.raises(PathError, match=r"all can rename .*\(mode 777, without the sticky bit\)"):
        place.make()
    assert list(shared.iterdir()) == []
    with pytest.raises(PathError, match="all can rename"):
        make_private_dir(shared / "quicksand-0" / "deeper")
    assert list(shared.iterdir()) == []
    # What an earlier version has made there is used on.
    (shared / f"quicksand-{os.getuid()}").mkdir(mode=0o700)
    place.make()
    assert place.memory.readlink().parent == shared / f"quicksand-{os.getuid()}"


def test_a_runtime_directory_that_somebody_has_planted_is_never_used(places: Paths) -> None:
    root = places.data.parent  # with a short path, for sockets
    (root / "planted").symlink_to(root)
    runtime = RuntimeDir(root / "planted" / ID, root / "sandboxes" / ID)
    with pytest.raises(PathError, match="is a link"):
        runtime.make("1")
    assert not (root / ID).exists()


def test_memory_may_be_named_by_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = tmp_path / "fast"
    fast.mkdir()
    (tmp_path / "link").symlink_to(fast)
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(tmp_path / "link"))
    assert paths().memory == fast
    monkeypatch.setenv("QUICKSAND_MEMORY_DIR", str(tmp_path / "not there"))
    assert paths().memory == tmp_path / "not there"
