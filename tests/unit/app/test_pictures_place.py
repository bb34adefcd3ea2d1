"""Where pictures of a screen go that nobody gave a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from quicksand_tui.home.picture_path import new_picture


def test_the_users_own_pictures_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_PICTURES_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert new_picture("web", ".png").parent == tmp_path / "Pictures/quicksand"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/user-dirs.dirs").write_text('XDG_PICTURES_DIR="$HOME/Bilder"\n')
    found = new_picture("web", ".gif")
    assert found.parent == tmp_path / "Bilder/quicksand" and found.parent.is_dir()
    assert found.name.startswith("web-") and found.suffix == ".gif"
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path / "named"))
    assert new_picture("web", ".png").parent == tmp_path / "named/quicksand"
