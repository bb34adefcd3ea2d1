"""`doctor`: each of its looks fails alone."""

from __future__ import annotations

import asyncio
import os

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.this_host import doctor
from quicksand_tui.cli.this_host.doctor import Level


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "directory", "fifo in it"])
def test_what_is_no_sandbox_and_named_like_one_ends_no_look(places: Paths, kind: str) -> None:
    path = places.sandboxes / "0123456789ab"
    places.sandboxes.mkdir(parents=True, exist_ok=True, mode=0o700)
    match kind:
        case "file":
            path.write_text("theirs")
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/nowhere")
        case _:
            path.mkdir()
    if kind == "fifo in it":
        os.mkfifo(path / "sandbox.json")
        os.mkfifo(path / "lock")
    found = asyncio.run(doctor.examine(fresh=False))
    names = {check.name for check in found}
    assert {"memory", "disk", "mounts", "leftovers", "terminal"} <= names
    assert any(str(path) in check.found for check in found if check.name == "leftovers")
    assert not any("Errno" in check.found for check in found)
    assert os.path.lexists(path)


def test_a_look_that_fails_is_told_and_the_others_are_made(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[object]:
        raise OSError(5, "Input/output error", "/some/file")

    monkeypatch.setattr(doctor, "_oversized", fail)
    found = {check.name: check for check in asyncio.run(doctor.examine(fresh=False))}
    assert found["memory"].level is Level.FAIL
    assert found["memory"].found == "cannot look: /some/file: Input/output error"
    assert "leftovers" in found
