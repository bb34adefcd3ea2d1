"""`benchmark` without a VM: its table, what it loads, and a plain write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.paths import Paths
from quicksand.things.checkpoint import Checkpoint
from quicksand_benchmark import command as benchmark
from quicksand_benchmark import measured
from quicksand_benchmark.measured import WIDTH, Figure, describe, figure_lines

from tests.conftest import wait_for

BUSY = "while True: pass"
SPARED, COLD = "warm start, with a spare", "warm start"
FIGURES = [
    Figure("ping", "ms", [2.0, 1.0, 3.0], {"mode": "template", "tier_note": "a whole sentence"}),
    Figure(SPARED, "s", [0.1], {"mode": "spare"}, none_waits=COLD),
    Figure(COLD, "s", [0.4, 0.2]),
]


def rows(figures: list[Figure]) -> dict[str, list[str]]:
    head, *lines = figure_lines(figures)
    assert head.split() == ["median", "none", "waits"]
    return {line[: WIDTH + 2].strip(): line[WIDTH + 2 :].split() for line in lines}


def test_what_is_measured_in_both_modes_is_one_row() -> None:
    assert rows(FIGURES) == {
        "ping": ["2.000", "ms", "[1.000", "to", "3.000]", "mode", "template"],
        SPARED: ["0.100", "0.300", "s", "[0.100", "to", "0.100]", "mode", "spare"],
    }


def test_without_spares_the_row_is_that_of_a_cold_start() -> None:
    assert list(rows([FIGURES[0], FIGURES[2]])) == ["ping", COLD]


def test_all_forms_of_the_reverts_are_told() -> None:
    figure = Figure("revert", "s")
    for form, why in (
        ("warm", ""),
        ("new QEMU", "the guest's processor is not an x86_64"),
        ("warm", ""),
    ):
        benchmark._note_form(figure, reached(form, why))
    assert figure.facts == {
        "tier": "pages",
        "form": "warm + new QEMU",
        "form_note": "the guest's processor is not an x86_64",
    }
    assert describe(figure.facts) == "tier pages, form warm + new QEMU"


def reached(form: str, why: str) -> Checkpoint:
    return Checkpoint(
        tag="base",
        id="c1",
        parent=None,
        created=1.0,
        note="",
        tier="pages",
        tier_note="",
        auto=False,
        pinned=False,
        pause_s=0.01,
        bytes_written=0,
        revert_form=form,
        revert_why=why,
    )


def test_the_processor_time_is_that_of_all_who_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox: Any = None
    with subprocess.Popen([sys.executable, "-c", BUSY]) as worker:
        run = SimpleNamespace(keeper_pid=os.getpid(), qemu_pid=worker.pid)
        monkeypatch.setattr(measured, "_run_of", lambda _: run)
        try:
            before = measured.processor_seconds(sandbox)
            wait_for(
                lambda: measured.processor_seconds(sandbox) > before + 0.1, what="its work to count"
            )
        finally:
            worker.kill()
    with pytest.raises(RuntimeError, match="cannot be told"):
        measured.processor_seconds(sandbox)


def test_a_plain_write_leaves_nothing(places: Paths) -> None:
    before = sorted(places.data.iterdir())
    assert benchmark.write_plainly(benchmark.STEP + 1) > 0
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
    assert benchmark.write_plainly(1) > 0
