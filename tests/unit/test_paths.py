"""Where the files of this user are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import platformdirs
import pytest
from quicksand.host.paths import APP, paths


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


@pytest.mark.parametrize("named", ["", "not-there", "here"])
def test_without_a_session_sockets_are_where_temporary_files_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # has no /run/user
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / named) if named else "")
    assert paths().runtime == Path(tempfile.gettempdir()) / f"{APP}-4000000000"
