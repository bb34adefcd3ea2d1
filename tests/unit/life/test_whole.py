"""What a process imports once it has started a sandbox."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
import os, sys, threading
from quicksand.life import whole

names = whole._modules()
missing = lambda: [name for name in names if name not in sys.modules]
"""

HELD_BACK = """
import importlib.abc

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == names[-1]:
            half.set()
            threading.Event().wait(0.2)

half = threading.Event()
sys.meta_path.insert(0, Slow())
whole.make_whole_soon()
half.wait(30)
child = os.fork()
if not child:
    __import__("signal").alarm(30)
    __import__(names[-1])
    os._exit(7)
"""


def ran(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_all_of_it_is_there_soon_after_a_start() -> None:
    ran("whole.make_whole_soon().join(); assert not missing()")


def test_a_process_that_ends_at_once_does_not_wait_for_the_rest_to_load() -> None:
    ran("""
import atexit
atexit.register(lambda: missing() or os._exit(3))
whole.make_whole_soon()
""")


def test_what_cannot_be_imported_any_more_is_no_error_yet() -> None:
    ran(
        "sys.path[:] = []; sys.modules['quicksand'].__path__ = []; "
        "whole.make_whole_soon().join(); assert missing()"
    )


def test_a_child_that_is_forked_meanwhile_can_import_the_same() -> None:
    ran(HELD_BACK + "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7")


def test_a_child_that_is_forked_begins_anew() -> None:
    ran("""
first = whole.make_whole_soon()
if child := os.fork():
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
else:
    os._exit(7 if whole.make_whole_soon() is not first else 1)
""")
