"""Where `view` puts a picture of the screen."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand_pixels import Chord, Way

from quicksand_tui.cli.guests.view import View


class Screen:
    def __init__(self) -> None:
        self.saved: list[Path] = []

    async def save(self, path: Path) -> str:
        self.saved.append(path)
        return ""


async def test_a_picture_is_told_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def tell(message: str) -> None:
        told.append(message)

    sandbox = cast(Any, SimpleNamespace(name="web"))
    view = View(sandbox, cast(Any, None), Way.HALF, Chord("]", control=True), "d")
    monkeypatch.setattr(view, "_tell", tell)
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path))
    screen = Screen()
    await view._save(cast(Any, screen))
    (path,) = screen.saved
    assert path.parent == tmp_path / "quicksand" and path.name.startswith("web-")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path / "file"))
    await view._save(cast(Any, screen))
    assert told == [
        f"saved to {path}",
        f"not saved: {tmp_path}/file/quicksand: Not a directory",
    ]
    assert screen.saved == [path]
