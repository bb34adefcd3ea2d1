"""bench/checkpoints.py, bench/curves.py and bench/costs.py refuse at once what they cannot measure
or draw, and name what they have measured."""

from __future__ import annotations

import argparse
import json
import os
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from quicksand import QuicksandError

from bench import checkpoints, costs, curves
from tests.each import each

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--levels", "bogus"], "there is no level 'bogus'; one of write-protect"),
        (["--levels", "anonymous,"], "there is no level ''"),
        (["-n", "0"], "'0' is no whole number from 1 on"),
        (["--written", "x"], "'x' is no whole number from 1 on"),
        (["--written", "1,0"], "'0' is no whole number from 1 on"),
        (["--before", "-5"], "'-5' is no whole number from 0 on"),
        (["--memory", "512M,many"], "memory 'many' is not a size"),
        (["--out", "/proc/nowhere/x.json"], "/proc/nowhere/x.json: No such file"),
        (["--out", "/"], "/: Is a directory"),
    ],
)
def test_wrong_arguments_are_refused_at_once(words: list[str], said: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        checkpoints.parse(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["everything"], "there is no part 'everything'; one of running, disk"),
        (["--clients", "1,0"], "'1,0' is no list of whole numbers from 1 on"),
        (["--recorded", "1,,2"], "'1,,2' is no list of whole numbers from 1 on"),
    ],
)
def test_wrong_arguments_for_costs_are_refused(words: list[str], said: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as ended:
        costs.parse(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_recorded_sandboxes_are_those_that_the_registry_lists(tmp_path: Path) -> None:
    registry = costs.make_recorded(tmp_path, 3)
    assert [entry.status.value for entry in registry.list()] == ["stopped"] * 3
    assert registry.reap() == []


def test_a_process_is_counted_with_what_it_has_open() -> None:
    found = costs.counts_of(os.getpid())
    assert found["descriptors"] > 0 < found["threads"]
    assert costs.medians([found, {}, found])["processes"] == 2


def test_the_file_for_the_result_is_tried_and_not_touched(tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("earlier")
    assert checkpoints.parse(["--out", str(new)]).out == new
    assert checkpoints.parse(["--out", str(old)]).out == old
    assert not new.exists()
    assert old.read_text() == "earlier"


def test_what_is_listed_twice_is_measured_once() -> None:
    given = checkpoints.parse(["--written", "8,1,8", "--levels", "anonymous,anonymous"])
    assert (given.written, given.levels) == ([8, 1], ["anonymous"])


@dataclass
class Made:
    """What is looked at of a checkpoint."""

    tier: str
    tier_note: str


@each(
    ("tier", "note", "level"),
    [
        ("pages", "the pages written since the last checkpoint were copied (soft-dirty)",
         "soft-dirty"),
        ("pages", "all pages written since the start were copied: QUICKSAND_TRACKING is soft-dirty,"
         " and the kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)", "anonymous"),
        ("internal", "it was asked for", "internal"),
    ],
)  # fmt: skip
def test_a_row_has_the_level_that_was_used(tier: str, note: str, level: str) -> None:
    made: Any = Made(tier, note)
    row = checkpoints.Row("512M", "soft-dirty", 1, used=[checkpoints.level_used(made)] * 3)
    assert row.level == row.to_json()["level"] == level


def measured(memory: str, written: int, level: str = "write-protect") -> dict[str, Any]:
    row = checkpoints.Row(memory, level, written, used=[level])
    row.pause_ms, row.call_s, row.plain_s = [7.0 + written, 8.0], [0.1, 0.2], [0.05 * written]
    return row.to_json()


def test_guests_that_fail_do_not_take_the_others_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    async def measure(given: argparse.Namespace, memory: str) -> tuple[list[checkpoints.Row], Any]:
        if memory == "64M":
            raise QuicksandError("the guest has panicked", hint="give it more memory")
        row = checkpoints.Row(memory, "anonymous", 1, ["anonymous"], [7.0], [0.1], [0.1], [3.0])
        return [row], []

    monkeypatch.setattr(checkpoints, "measure", measure)
    out = tmp_path / "out.json"
    monkeypatch.setattr("sys.argv", ["x", "--memory", "64M,512M", "--out", str(out)])
    assert checkpoints.main() == 1
    said = capsys.readouterr().err
    assert "guests of 64M are left out: the guest has panicked\nhint: give it more" in said
    assert [row["memory"] for row in json.loads(out.read_text())["rows"]] == ["512M"]


SIZES = ("512M", "1G", "2048", "4G", "8G", "16G", "32G", "64G")
WRITTEN = (1, 8, 64)


def test_every_line_has_one_point_for_each_x() -> None:
    rows = [measured("512M", 8)]  # what was written before all others
    rows += [measured(memory, written) for memory, written in product(SIZES, WRITTEN)]
    rows += [measured("1024M", 8), measured("512M", 1, "anonymous")]
    picture = curves.draw(rows)
    lines = re.findall(r'<path d="M([^"]+)" fill="none"', picture)
    points = [[point.split()[0] for point in line.split("L")] for line in lines]
    assert all(len(xs) == len(set(xs)) for xs in points)
    assert [len(xs) for xs in points] == [len(SIZES)] * len(WRITTEN) + [len(WRITTEN)] * (
        len(SIZES) + 1
    )
    for name in (*SIZES, "1 MiB", "8 MiB", "64 MiB", "plain write"):
        assert f">{name}</text>" in picture


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("no json", "is not what bench/checkpoints.py writes"),
        ("[]", "is not what bench/checkpoints.py writes"),
        ('{"rows": [{}]}', "is not what bench/checkpoints.py writes"),
        ('{"rows": []}', "has no rows"),
        (json.dumps({"rows": [measured("512M", 0)]}), "nothing above 0"),
        (json.dumps({"rows": [measured("a lot", 1)]}), "memory 'a lot' is not a size"),
    ],
    ids=["missing", "text", "list", "empty row", "no rows", "zero", "no size"],
)
def test_what_cannot_be_drawn_is_named(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    found = tmp_path / "measured.json"
    if text is not None:
        found.write_text(text)
    monkeypatch.setattr("sys.argv", ["curves.py", str(found), str(tmp_path / "picture.svg")])
    with pytest.raises(SystemExit) as ended:
        curves.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "picture.svg").exists()
