"""Where the files of this user are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import platformdirs
import pytest
from quicksand.base.errors import PathError
from quicksand.base.paths import APP, make_private_dir, paths


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "CACHE", "RUNTIME", "MEMORY"):
        monkeypatch.delenv(f"QUICKSAND_{name}_DIR", raising=False)


@pytest.mark.parametrize("base", [None, "", "/elsewhere", "not/absolute"])
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
    for name, constant in (("tmp", "TEMPORARY"), ("shm", "IN_MEMORY"), ("systemd", "SYSTEMD")):
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


def test_without_either_the_library_finds_a_place(
    no_session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_session / "shm").rmdir()
    (no_session / "tmp").rmdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert paths().runtime == Path(tempfile.gettempdir()) / f"{APP}-4000000000"


def test_a_temporary_directory_where_all_can_rename_what_is_there_is_passed_over(
    no_session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shm", "tmp", "named"):
        (no_session / name).mkdir(exist_ok=True)
        (no_session / name).chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(no_session / "named"))
    monkeypatch.setattr(tempfile, "tempdir", str(no_session / "last"))
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


def test_a_link_of_ours_is_followed_where_that_is_meant(tmp_path: Path) -> None:
    disk, images = tmp_path / "disk", tmp_path / "images"
    disk.mkdir(mode=0o700)
    images.symlink_to(disk)
    assert make_private_dir(images, may_lead=True) == disk
    with pytest.raises(PathError, match="it is a link"):
        make_private_dir(images)


def test_a_link_that_others_may_have_made_is_never_followed(tmp_path: Path) -> None:
    disk, exposed = tmp_path / "disk", tmp_path / "exposed"
    disk.mkdir(mode=0o700)
    exposed.mkdir()
    exposed.chmod(0o777)
    (exposed / "images").symlink_to(disk)
    with pytest.raises(PathError, match="it is a link"):
        make_private_dir(exposed / "images", may_lead=True)


def test_what_a_link_leads_to_must_be_private_too(tmp_path: Path) -> None:
    disk, images = tmp_path / "disk", tmp_path / "images"
    disk.mkdir()
    disk.chmod(0o777)
    images.symlink_to(disk)
    with pytest.raises(PathError, match="can be written to by others"):
        make_private_dir(images, may_lead=True)
