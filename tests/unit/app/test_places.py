"""Where the app's files are, without the library that knows such places."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from quicksand_tui.home.state import APP, config_file, state_dir
from tests.each import each


@each("base", [None, "", "/elsewhere"])
def test_they_are_where_the_library_says(monkeypatch: pytest.MonkeyPatch, base: str | None) -> None:
    monkeypatch.delenv("QUICKSAND_STATE_DIR", raising=False)
    monkeypatch.delenv("QUICKSAND_CONFIG", raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        if base is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, base)
    assert config_file() == platformdirs.user_config_path(APP) / "config.toml"
    assert state_dir() == platformdirs.user_state_path(APP)


def test_a_relative_base_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUICKSAND_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")
    assert config_file() == Path.home() / ".config" / APP / "config.toml"
