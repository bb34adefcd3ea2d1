"""What a guest is told of the terminal that it is shown in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentRefusedError

from quicksand_tui.cli.guests import executing
from quicksand_tui.cli.guests.executing import SIZE_MAX, choose_term

ENTRY = b"\x1a\x01" + bytes(40)


class Files:
    """The files of a guest."""

    def __init__(self, *known: str) -> None:
        self.known = {f"/lib/terminfo/{name[0]}/{name}" for name in known}
        self.written: dict[str, bytes] = {}
        self.is_full = False

    async def exists(self, path: str) -> bool:
        return path in self.known

    async def write(self, path: str, content: bytes, *, mode: int, parents: bool) -> None:
        assert (mode, parents) == (0o644, True)
        if self.is_full:
            raise AgentRefusedError("no space", code="no_space")
        self.written[path] = content


async def chosen(files: Files, wanted: str) -> str:
    class Guest:
        pass

    guest = Guest()
    guest.files = files  # type: ignore[attr-defined]
    return await choose_term(cast("Any", guest), wanted)


@pytest.fixture(autouse=True)
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a terminal has put entries of its own."""
    monkeypatch.setattr(executing, "DIRECTORIES", ("/lib/terminfo",))
    monkeypatch.setenv("TERMINFO", str(tmp_path))
    monkeypatch.setenv("HOME", "/nonexistent")
    for name in ("x/xterm-ghostty", "78/xterm-other", "x/xterm-broken", "x/xterm-long"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(ENTRY)
    (tmp_path / "x" / "xterm-broken").write_bytes(b"#!/bin/sh")
    return tmp_path


async def test_a_type_that_the_guest_lacks_is_brought_or_replaced() -> None:
    files = Files("foot")
    assert await chosen(files, "foot") == "foot"
    assert not files.written
    assert await chosen(files, "xterm-ghostty") == "xterm-ghostty"
    assert await chosen(files, "xterm-other") == "xterm-other"
    assert files.written == {
        "/etc/terminfo/x/xterm-ghostty": ENTRY,
        "/etc/terminfo/x/xterm-other": ENTRY,
    }
    for unknown in ("xterm-from-2050", "xterm-broken", "../../etc/shadow", "", "x" * 65):
        assert await chosen(files, unknown) == "xterm-256color"
    files.is_full = True
    assert await chosen(files, "xterm-ghostty") == "xterm-256color"


async def test_what_is_too_large_for_an_entry_is_not_brought(entries: Path) -> None:
    (entries / "x" / "xterm-long").write_bytes(ENTRY + bytes(SIZE_MAX))
    assert await chosen(Files(), "xterm-long") == "xterm-256color"
