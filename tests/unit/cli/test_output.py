"""Tables, sizes and errors."""

from __future__ import annotations

import json

import pytest
from quicksand.errors import ConfigError, MachineError

from quicksand_tui.cli.output import complain, format_table, print_json, show_age, show_size
from tests.unit.cli.corpus import HOSTILE


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (512 * 2**20, "512 MiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (2**40, "1 TiB"),
    ],
)
def test_sizes_are_short(size: float, shown: str) -> None:
    assert show_size(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (86400 * 3, "3d")],
)
def test_ages_are_short(seconds: float, shown: str) -> None:
    assert show_age(1000, 1000 + seconds) == shown


def test_columns_line_up_whatever_is_in_them() -> None:
    lines = format_table(("A", "B"), [("日本", 1), ("x\x1b[2J", 2), ("é", 3)])
    assert lines == ["A         B", "日本      1", "x\\x1b[2J  2", "é         3"]


def test_an_error_is_a_line_and_its_hint_another(capsys: pytest.CaptureFixture[str]) -> None:
    complain(ConfigError("memory 'x' is not a size", hint="write 512M"), about="a")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "quicksand-tui: a: memory 'x' is not a size\nhint: write 512M\n"


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_errors_and_json_carry_nothing_hostile(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    complain(MachineError(f"it said {text}", hint=text, log=text))
    print_json({"text": text})
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c in "\n\t" for c in err)
    assert all(c.isprintable() or c == "\n" for c in out)
    assert json.loads(out) == {"text": text}
