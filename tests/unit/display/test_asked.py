"""Which picture is written, and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError, PathError
from quicksand.display.asked import choose_format, write_picture
from quicksand_vnc import Format

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each


@each(
    ("wanted", "name", "form"),
    [
        (None, None, Format.PNG),
        (None, "a.png", Format.PNG),
        (None, "a.PPM", Format.PPM),
        (None, "a", Format.PNG),
        ("ppm", "a.png", Format.PPM),
        ("png", "a.shot", Format.PNG),
        ("PNG", None, Format.PNG),
    ],
)
def test_the_format(wanted: str | None, name: str | None, form: Format) -> None:
    assert choose_format(wanted, Path(name) if name else None) is form


def test_an_unknown_picture_format_is_refused() -> None:
    for wanted in ("gif", "jpg", 5):
        with pytest.raises(
            ConfigError, match=f"{wanted!r} is not a picture format: choose png or ppm"
        ):
            choose_format(wanted, None)  # type: ignore[arg-type]


def test_a_name_of_another_format_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'a\.JPG' has no suffix") as caught:
        choose_format(None, Path("/tmp/a.JPG"))
    assert "end with .png or .ppm" in caught.value.hint and "--format" in hint_of(caught.value)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(b"old")
    write_picture(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["shot.png"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "shot.png"
    other.write_bytes(b"theirs")
    link.symlink_to(other)
    write_picture(link, b"new")
    assert other.read_bytes() == b"theirs"
    assert not link.is_symlink() and link.read_bytes() == b"new"


def test_a_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "shot.png").mkdir()
    with pytest.raises(PathError, match="it is a directory") as caught:
        write_picture(tmp_path / "shot.png", b"new")
    assert "name a file in it" in caught.value.hint
    with pytest.raises(PathError, match=f"there is no directory {tmp_path}/nowhere") as caught:
        write_picture(tmp_path / "nowhere" / "shot.png", b"new")
    assert "make that directory" in caught.value.hint
    assert os.listdir(tmp_path) == ["shot.png"]
