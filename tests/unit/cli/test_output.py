"""Tables, sizes and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError, DiskSpaceError, MachineError
from quicksand.base.paths import Paths

from quicksand_tui.cli.output import complain, format_table, print_json
from tests.each import each
from tests.unit.cli.corpus import HOSTILE


def test_columns_line_up_whatever_is_in_them() -> None:
    lines = format_table(("A", "B"), [("日本", 1), ("x\x1b[2J", 2), ("é", 3)])
    assert lines == ["A         B", "日本      1", "x\\x1b[2J  2", "é         3"]


def test_an_error_is_a_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    complain(ConfigError("memory 'x' is not a size", hint="write 512M"), about="a")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "quicksand-tui: a: memory 'x' is not a size\nhint: write 512M\n"


@each("text", HOSTILE, ids=ascii)
def test_errors_and_json_carry_nothing_hostile(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    complain(MachineError(f"it said {text}", hint=text, log=text))
    print_json({"text": text})
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c in "\n\t" for c in err)
    assert all(c.isprintable() or c == "\n" for c in out)
    assert json.loads(out) == {"text": text}


def test_a_full_disk_says_how_much_clean_would_free(
    places: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(cache))
    complain(DiskSpaceError("no space left for /x"))
    said = capsys.readouterr().err
    assert "quicksand-tui clean" in said
    assert "0 B now, 0 B of it in the trash" in said
    (cache / "initrd").mkdir(parents=True)
    (cache / "initrd" / f"{'a' * 32}.cpio").write_bytes(b"x" * 1_500_000)
    complain(DiskSpaceError("no space left for /x"))
    assert "1.43 MiB now, 0 B of it" in capsys.readouterr().err
    complain(DiskSpaceError("no space left for /y", hint="another disk"))
    assert "hint: another disk\n" in capsys.readouterr().err
