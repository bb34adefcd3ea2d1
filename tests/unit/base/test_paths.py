"""Where the files of this user are."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest
from quicksand.base.errors import PathError
from quicksand.base.paths import APP, Paths, make_private_dir, paths

from tests.each import each


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CACHE", "RUNTIME", "MEMORY"):
        monkeypatch.delenv(f"QUICKSAND_{name}_DIR", raising=False)


@each("base", [None, "", "/elsewhere", "not/absolute"])
def test_they_are_where_the_library_says(monkeypatch: pytest.MonkeyPatch, base: str | None) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        if base is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, base)
    if base == "not/absolute":  # older versions of the library do not ignore it
        assert paths().data == Path.home() / ".local" / "share" / APP
        return
    assert paths().data == platformdirs.user_data_path(APP)
    assert paths().cache == platformdirs.user_cache_path(APP)


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Without a session and a named directory for temporary files; returns a directory that has
    what is /tmp and /dev/shm otherwise."""
    for name in ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # has no /run/user
    for name, constant in (
        ("tmp", "TEMPORARY"),
        ("last", "TEMPORARY_TOO"),
        ("shm", "IN_MEMORY"),
        ("systemd", "SYSTEMD"),
    ):
        monkeypatch.setattr(f"quicksand.base.paths.{constant}", tmp_path / name)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "shm").mkdir()
    return tmp_path


def test_without_a_session_sockets_are_in_memory(no_session: Path) -> None:
    assert paths().runtime == no_session / "shm" / f"{APP}-4000000000"


def test_sandboxes_of_earlier_versions_are_found_in_the_temporary_directory(
    no_session: Path,
) -> None:
    (earlier := no_session / "tmp" / f"{APP}-4000000000").mkdir()
    assert paths().runtime == earlier


def test_what_others_make_does_not_hide_our_sandboxes(
    no_session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = (no_session / name / f"{APP}-4000000000" for name in ("shm", "tmp"))
    other.symlink_to(no_session)
    assert paths().runtime == ours
    other.unlink()
    other.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 4_000_000_000)  # so that it is somebody else's
        assert paths().runtime == ours
    ours.mkdir()
    assert paths().runtime == ours


def test_where_systemd_would_remove_them_at_a_logout_sockets_are_not_in_memory(
    no_session: Path,
) -> None:
    (no_session / "systemd").mkdir()
    assert paths().runtime == no_session / "tmp" / f"{APP}-4000000000"


def test_without_memory_to_write_to_sockets_are_where_temporary_files_are(no_session: Path) -> None:
    (no_session / "shm").rmdir()
    assert paths().runtime == no_session / "tmp" / f"{APP}-4000000000"


def test_without_either_sockets_are_in_the_other_directory_for_temporary_files(
    no_session: Path,
) -> None:
    (no_session / "shm").rmdir()
    (no_session / "tmp").rmdir()
    assert paths().runtime == no_session / "last" / f"{APP}-4000000000"


def test_a_temporary_directory_where_all_can_rename_what_is_there_is_passed_over(
    no_session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shm", "tmp", "named"):
        (no_session / name).mkdir(exist_ok=True)
        (no_session / name).chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(no_session / "named"))
    assert paths().runtime.parent == no_session / "last"
    (no_session / "tmp").chmod(0o1777)
    assert paths().runtime.parent == no_session / "tmp"
    (no_session / "shm").chmod(0o1777)
    assert paths().runtime.parent == no_session / "shm"
    (no_session / "named").chmod(0o1777)
    assert paths().runtime.parent == no_session / "named"


@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP"])
def test_a_directory_for_temporary_files_that_is_named_has_the_sockets_too(
    no_session: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(no_session / "not-there"))
    assert paths().runtime == no_session / "shm" / f"{APP}-4000000000"
    (no_session / "here").mkdir()
    monkeypatch.setenv(variable, str(no_session / "here"))
    assert paths().runtime == no_session / "here" / f"{APP}-4000000000"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "data"
    found.mkdir(mode=0o700)
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(found))
    return found


def test_images_may_lie_behind_a_link_of_their_users(data: Path, tmp_path: Path) -> None:
    assert paths().images == data / "images"
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    (data / "images").symlink_to(disk)
    assert paths().images == make_private_dir(paths().images) == disk


def test_so_may_the_data_directory(data: Path, tmp_path: Path) -> None:
    link, disk = tmp_path / "link", tmp_path / "disk"
    link.symlink_to(data)
    disk.mkdir(mode=0o700)
    (data / "images").symlink_to(disk)
    assert Paths(runtime=link, data=link, cache=link).images == disk


def test_a_link_that_others_may_have_made_is_not_followed(data: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    data.chmod(0o777)
    (data / "images").symlink_to(disk)
    assert paths().images == data / "images"
    with pytest.raises(PathError, match="it is a link"):
        make_private_dir(paths().images)


@pytest.mark.parametrize("target", ["images", "../exposed"])
def test_a_link_that_leads_nowhere_or_to_what_others_can_write_is_an_error(
    data: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "exposed").mkdir()
    (tmp_path / "exposed").chmod(0o777)
    (data / "images").symlink_to(target)
    with pytest.raises(PathError, match=r"cannot be used|cannot make"):
        make_private_dir(paths().images)
