"""Tables of names that are imported when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from quicksand.base.on_demand import homes_of

from tests.each import each
from tests.unit.test_house import PACKAGES, modules

TABLE = '''"""Some names."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from json import dumps as written
    from json import loads

    from {package}_errors import *
else:
    __getattr__, __dir__ = on_demand()
'''
PACKAGES_TABLES = {
    name: path
    for name, path in modules(PACKAGES).items()
    if "= on_demand()" in path.read_text() and not name.endswith("base.on_demand")
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A table in a directory of the path; its name differs for each test."""
    name = f"table_{request.node.name}"
    (tmp_path / f"{name}.py").write_text(TABLE.format(package=name))
    (tmp_path / f"{name}_errors.py").write_text("__all__ = ['Own']\nimport re\nOwn = re.error\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_name_is_what_its_home_has_at_that_time(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = import_module(table)
    assert f"{table}_errors" not in sys.modules
    assert found.loads is import_module("json").loads
    assert found.written is import_module("json").dumps
    assert found.Own is import_module("re").error
    monkeypatch.setattr("json.loads", str)
    assert found.loads is str


def test_an_unknown_name_is_an_attribute_error(table: str) -> None:
    found = import_module(table)
    for name in ("nothing", "dumps", "re", "TYPE_CHECKING_", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module '{table}' has no attribute '{name}'"):
            getattr(found, name)
    with pytest.raises(ImportError, match="nothing"):
        exec(f"from {table} import nothing")


def test_all_of_its_names_are_listed(table: str) -> None:
    found = import_module(table)
    assert {"loads", "written", "Own"} <= set(dir(found))
    everything: dict[str, object] = {}
    exec(f"from {table} import *", everything)
    assert everything.keys() - {"__builtins__"} == {"loads", "written", "Own"}
    assert homes_of(found) == {
        "written": ("json", "dumps"),
        "loads": ("json", "loads"),
        "Own": (f"{table}_errors", "Own"),
    }


@each("name", PACKAGES_TABLES)
def test_each_of_ours_holds_imports_and_nothing_else(name: str) -> None:
    """Its code is run twice; and one that stands in none of `homes_of` could not be asked for."""
    document, *imported, last = ast.parse(PACKAGES_TABLES[name].read_text()).body
    assert isinstance(document, ast.Expr)
    assert all(isinstance(node, ast.ImportFrom) for node in imported), name
    assert isinstance(last, ast.If)
    written = [
        alias for node in last.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    homes = homes_of(import_module(name))
    assert {alias.asname or alias.name for alias in written} - {"*"} <= homes.keys()
    for home in homes.values():
        assert hasattr(import_module(home[0]), home[1]), home


def test_a_process_that_asks_for_nothing_imports_nothing() -> None:
    code = (
        "import quicksand, sys; print(*(name for name in sys.modules if name[:9] == 'quicksand'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert {*ran.stdout.split()} == {"quicksand", "quicksand.base", "quicksand.base.on_demand"}
