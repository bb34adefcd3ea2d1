"""What is remembered of programs is bounded, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.tools import KEPT_MAX, Findings, program_key


@pytest.fixture
def cache(places: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_read_as_empty_and_written_anew(cache: Path, content: bytes) -> None:
    cache.mkdir()
    (cache / "x.json").write_bytes(content)
    findings = Findings("x.json")
    assert findings.get("a") is None
    findings.put("a", [1, 2])
    assert Findings("x.json").get("a") == [1, 2]


def test_two_who_find_out_something_do_not_undo_each_other(cache: Path) -> None:
    one, other = Findings("x.json"), Findings("x.json")
    assert one.get("a") is other.get("b") is None
    one.put("a", 1)
    other.put("b", 2)
    assert (one.get("a"), one.get("b")) == (1, 2)


def test_the_latest_are_kept(cache: Path) -> None:
    findings = Findings("x.json")
    for number in range(KEPT_MAX):
        findings.put(str(number), number)
    findings.put("0", "anew")
    findings.put("one more", 1)
    assert findings.get("0") == "anew"
    assert findings.get("1") is None
    assert findings.get("2") == 2


def test_a_program_is_known_by_its_file(tmp_path: Path) -> None:
    program, link = tmp_path / "program", tmp_path / "link"
    program.write_text("one")
    link.symlink_to(program)
    before = program_key(link)
    assert before == program_key(program)
    program.write_text("another")
    assert program_key(link) != before
