"""The package is upgraded, or removed, under the app."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from quicksand.base.paths import Paths
from quicksand.life import whole

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import left_clean
from tests.e2e.tmux import Terminal
from tests.integration.test_upgrade import copy_of_the_package, search_path
from tests.unit.app.test_reader import make


def test_the_app_goes_on_and_ends_well_when_its_package_is_gone(
    places: Paths, tmp_path: Path
) -> None:
    make(places, 1)
    tree, compiled = copy_of_the_package(tmp_path / "tree"), tmp_path / "compiled"
    environment = {
        "PYTHONPATH": search_path(tree),
        "PYTHONPYCACHEPREFIX": str(compiled),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    argv = [sys.executable, "-m", "quicksand_tui"]
    with Terminal(argv, columns=120, rows=36, **environment) as terminal:
        terminal.sees("1 stopped")
        # These modules are loaded last, in no fixed order.
        last = {name.rpartition(".")[2] for name in whole._modules()}

        def is_loaded() -> bool:
            return last <= {path.name.partition(".")[0] for path in compiled.rglob("*.pyc")}

        wait_for(is_loaded, what="the app to be loaded")
        shutil.rmtree(tree)
        for key, shown in (("?", "Keys"), ("v", "no saves"), (":", "tab completes")):
            terminal.press(key)
            terminal.sees(shown)
            terminal.press("Escape")
            terminal.sees("1 stopped")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Escape")
        terminal.until(lambda text: "New sandbox" not in text, what="closed form")
        terminal.press("q")
        left_clean(terminal, 0)
