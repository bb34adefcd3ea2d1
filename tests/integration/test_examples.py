"""The programs in examples/ do what they say."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import left_when_reaped, wait_for

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template", "places")]

EXAMPLES = Path(__file__).parents[2] / "examples"
TREE_SEARCH = [sys.executable, str(EXAMPLES / "tree_search.py")]
UNCHECKED = """
import sys
from examples import tree_search
tree_search.check_memory = lambda *_: None
sys.exit(tree_search.main())
"""
"""As if the guest's memory had seemed to be enough."""


def test_a_tree_is_searched_and_the_steps_are_measured() -> None:
    words = ["--nodes", "8", "--mib", "1", "--json"]
    done = subprocess.run([*TREE_SEARCH, *words], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["nodes"] == 8
    assert told["nodes_a_second"] > 0
    steps = {name.strip(): len(taken) for name, taken in told["steps_s"].items()}
    assert steps["try a move"] >= 8
    assert steps["keep the new state"] == steps["of that the machine stood still"] >= 4
    assert steps["go back to a state"] >= 4


@pytest.mark.soak
def test_the_report_is_for_people() -> None:
    words = ["--nodes", "4", "--mib", "1", "--sandboxes", "1"]
    done = subprocess.run(
        [*TREE_SEARCH, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    ended, counted, heads, *steps = done.stdout.splitlines()
    assert ended == "not solved within 4 attempts"
    assert counted.startswith("4 nodes in ")
    assert " in one sandbox: " in counted
    assert heads.split()[0] == "step"
    assert [line[:36].strip() for line in steps] == [
        "go back to a state",
        "try a move",
        "keep the new state",
        "of that the machine stood still",
    ]


@pytest.mark.soak
def test_a_guest_that_is_full_is_an_error() -> None:
    words = ["--nodes", "2", "--mib", "150", "--memory", "256M", "--sandboxes", "1"]
    done = subprocess.run(
        [sys.executable, "-c", UNCHECKED, *words],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert not done.stdout
    said, hint = done.stderr.splitlines()
    assert said.startswith("tree_search: the guest's memory is too small for ")
    assert hint.startswith("hint: give it more with --memory")


def test_a_search_that_is_broken_off_reports_what_was_done(places: Paths) -> None:
    words = ["--nodes", "500", "--mib", "1", "--sandboxes", "1"]
    argv = [*TREE_SEARCH, *words]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as search:
        # The template's and that of the start; the others are of where attempts have led.
        wait_for(
            lambda: len(list(places.sandboxes.glob("*/checkpoints/*/node.json"))) >= 4,
            what="an attempt",
            timeout=60,
        )
        search.send_signal(signal.SIGINT)
        said, complained = search.communicate(timeout=60)
    assert (search.returncode, complained) == (130, "")
    ended, counted, *_ = said.splitlines()
    assert ended.startswith("broken off after ")
    assert int(counted.split()[0]) >= 1
    wait_for(lambda: not left_when_reaped(places), what="nothing to be left")
