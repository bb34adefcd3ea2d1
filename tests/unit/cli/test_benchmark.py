"""`benchmark` without a VM: its table, what it loads, and a plain write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.measuring import checkpoints, machines
from quicksand_tui.cli.measuring.figure import WIDTH, Figure, figure_lines

REVERT, COLD = "revert to the next command's answer", "revert where no QEMU waits"
FIGURES = [
    Figure("ping", "ms", [2.0, 1.0, 3.0], {"mode": "template", "tier_note": "a whole sentence"}),
    Figure(REVERT, "s", [0.1], {"tier": "pages"}, none_waits=COLD),
    Figure(COLD, "s", [0.4, 0.2]),
]


def rows(figures: list[Figure]) -> dict[str, list[str]]:
    head, *lines = figure_lines(figures)
    assert head.split() == ["median", "none", "waits"]
    return {line[: WIDTH + 2].strip(): line[WIDTH + 2 :].split() for line in lines}


def test_what_is_measured_in_both_modes_is_one_row() -> None:
    assert rows(FIGURES) == {
        "ping": ["2.000", "ms", "[1.000", "to", "3.000]", "mode", "template"],
        REVERT: ["0.100", "0.300", "s", "[0.100", "to", "0.100]", "tier", "pages"],
    }


def test_where_nothing_may_wait_the_row_is_that_of_none() -> None:
    assert list(rows([FIGURES[0], FIGURES[2]])) == ["ping", COLD]


@pytest.mark.parametrize("before", [None, "on", "off"])
def test_what_the_user_has_said_of_waiting_is_put_back(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("QUICKSAND_STANDBY", raising=False)
    else:
        monkeypatch.setenv("QUICKSAND_STANDBY", before)
    with machines.standby("off"):
        assert machines.is_standby_off()
    assert machines.is_standby_off() == (before == "off")


def test_a_plain_write_leaves_nothing(places: Paths) -> None:
    before = sorted(places.data.iterdir())
    assert checkpoints.write_plainly(checkpoints.STEP + 1) > 0
    assert sorted(places.data.iterdir()) == before


def test_a_plain_write_goes_to_any_file_system(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older kernels' tmpfs refuses O_DIRECT."""
    real = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert checkpoints.write_plainly(1) > 0
