"""`benchmark` measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from quicksand.base.paths import Paths
from quicksand_benchmark import command as benchmark

pytestmark = pytest.mark.vm


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_row_has_values(places: Paths) -> None:
    argv = [sys.executable, "-m", "quicksand_tui", "benchmark", "debian", "--quick", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert all(figure["values"] and figure["median"] >= 0 for figure in figures.values())
    waits = {name for name in figures if "spare" in name}
    assert waits
    reverts = [figure for name, figure in figures.items() if name.startswith("revert")]
    assert len(reverts) == 10
    assert all(figure["facts"]["form"] for figure in reverts)
    assert any(name.startswith("warm start") for name in figures)
    processes = {name for name in figures if name.endswith("the whole process")}
    assert processes == {
        "`run IMAGE -- echo hi`, the whole process",
        "`exec NAME -- true`, the whole process",
        "`ps` beside 10 clones, the whole process",
    }
    assert {figure["none_waits"] for name, figure in figures.items() if name in waits} <= set(
        figures
    )


@pytest.mark.soak
async def test_the_large_guest_is_measured_right_after_it_has_written(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "LARGE", "512M")
    monkeypatch.setattr(benchmark, "LARGE_MIB", 128)
    figures = {figure.name: figure for figure in await benchmark.large_guest("debian", 1)}
    call, plain, ratio, revert = (
        next(figure.median for name, figure in figures.items() if name.startswith(begin))
        for begin in ("whole call of", "plain write", "that whole call", "first revert")
    )
    assert ratio == call / plain
    assert revert > 0
    pause = next(figure for name, figure in figures.items() if "right after" in name)
    assert float(pause.facts["written_mib"]) >= 128
    assert pause.facts["mode"] == "template"
