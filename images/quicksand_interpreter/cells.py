"""Code that is run in a kernel beside its clients' cells. It leaves nothing in their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STARTUP = Path(__file__).with_name("startup.py")

_BEFORE = "_quicksand_variables"
"""The attribute of the kernel's shell with the earlier values of variables."""

_FIRST = """
import os, random, sys
random.seed()
if "numpy" in sys.modules:
    sys.modules["numpy"].random.seed()
os.environ.update(given)
"""

_SET = f"""
import os
shell.{_BEFORE} = {{name: os.environ.get(name) for name in given}}
os.environ.update(given)
"""

_UNSET = f"""
import os
for name, value in shell.__dict__.pop("{_BEFORE}", {{}}).items():
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
"""

_WARM = """
import sys, numpy, pandas
import matplotlib.pyplot as plt
shell.display_formatter.format(pandas.DataFrame({"a": numpy.arange(3)}))
plt.plot([1, 2, 3])
plt.show()
try:
    1 / 0
except ZeroDivisionError:
    shell.InteractiveTB.structured_traceback(*sys.exc_info())
"""


def _apart(code: str, given: Mapping[str, str] | None = None) -> str:
    """Return code with its own namespace."""
    return f"exec({code!r}, {{'given': {dict(given or {})!r}, 'shell': get_ipython()}})"


def at_start() -> str:
    """Return the code that each kernel runs first."""
    return _apart(STARTUP.read_text(encoding="utf-8") + "\ninstall(shell)\n")


def before_first_cell(variables: Mapping[str, str]) -> str:
    """Gives a kernel, which may come from a template, random numbers of its own, and the variables
    of the sandbox."""
    return _apart(_FIRST, variables)


def set_variables(variables: Mapping[str, str]) -> str:
    return _apart(_SET, variables)


def unset_variables() -> str:
    """Restores the variables that `set_variables` replaced."""
    return _apart(_UNSET)


def warm() -> str:
    """Does the work of most cells, so that a first cell is no slower than later ones."""
    return _apart(_WARM)
