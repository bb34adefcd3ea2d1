"""The programs in examples/ do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template", "places")]

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_tree_is_searched_and_the_steps_are_measured() -> None:
    words = [str(EXAMPLES / "tree_search.py"), "--nodes", "8", "--mib", "1", "--json"]
    done = subprocess.run([sys.executable, *words], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["nodes"] == 8
    assert told["nodes_a_second"] > 0
    steps = {name.strip(): len(taken) for name, taken in told["steps_s"].items()}
    assert steps["try a move"] >= 8
    assert steps["keep the new state"] == steps["of that the machine stood still"] >= 4
    assert steps["go back to a state"] >= 4
