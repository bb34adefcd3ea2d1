"""`benchmark` measures what it says, also where no QEMU may wait."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from quicksand.host.paths import Paths

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.mark.parametrize("standby", ["on", "off"])
def test_every_row_has_values(places: Paths, monkeypatch: pytest.MonkeyPatch, standby: str) -> None:
    monkeypatch.setenv("QUICKSAND_STANDBY", standby)
    argv = [sys.executable, "-m", "quicksand_tui", "benchmark", "debian", "--quick", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)["figures"]}
    assert all(figure["values"] and figure["median"] >= 0 for figure in figures.values())
    waits = {name for name in figures if "spare" in name or name.startswith("revert to")}
    assert bool(waits) == (standby == "on")
    assert any(name.startswith("warm start") for name in figures)
