"""Imports stand at the top of a module. Those that do not are in one list, with what they save."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from quicksand.base.on_demand import homes_of

from tests.each import each
from tests.unit.test_house import PACKAGES, ROOT, modules

LIST = tomllib.loads((ROOT / "scripts" / "deferred_imports.toml").read_text())
PATHS: Mapping[str, str] = {name: path["begin"] for name, path in LIST["paths"].items()}

SAVES_MS = 5.0
"""What saves less has a reason of its own."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A module imports another one when a function is called."""

    importer: str
    imported: str


def deferred_in(packages: Mapping[str, Path]) -> set[Deferred]:
    """All imports within functions of these packages."""
    known = modules(packages)
    found = set()
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in _within_functions(ast.parse(path.read_text())):
            for full in _names(node, package):
                is_module = full in known or not isinstance(node, ast.ImportFrom)
                found.add(Deferred(name, full if is_module else full.rpartition(".")[0]))
    return found


def _within_functions(
    node: ast.AST, *, inside: bool = False
) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            if inside:
                yield child
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _within_functions(child, inside=inside or is_function)


def _names(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    whole = ".".join([*above, *([node.module] if node.module else [])])
    return [f"{whole}.{alias.name}" for alias in node.names]


def listed() -> dict[Deferred, dict[str, Any]]:
    return {Deferred(entry["in"], entry["imports"]): entry for entry in LIST["deferred"]}


def loaded_after(code: str, flags: Sequence[str] = ()) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, *flags, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return set(ran.stdout.decode().split())


def test_every_deferred_import_is_in_the_list_and_none_that_is_gone() -> None:
    assert deferred_in(PACKAGES) == set(listed())


def test_each_says_what_it_saves_and_where() -> None:
    for entry in [*LIST["deferred"], *LIST["tables"]]:
        assert entry["on"] in PATHS, entry
        assert entry["ms"] >= SAVES_MS or entry.get("because"), entry


@each("path", PATHS)
def test_none_is_loaded_already_where_it_is_to_save_something(path: str) -> None:
    loaded = loaded_after(PATHS[path], LIST["paths"][path].get("flags", ()))
    for entry in LIST["deferred"]:
        if entry["on"] == path:
            assert entry["imports"] not in loaded, entry


@each("table", LIST["tables"], ids=lambda table: str(table["in"]))
def test_the_modules_of_a_table_are_loaded_when_they_are_asked_for(
    table: Mapping[str, Any],
) -> None:
    found = import_module(table["in"])
    begun = loaded_after(f"{PATHS[table['on']]}\nimport {table['in']}")
    assert not {home[0] for home in homes_of(found).values()} & begun
    assert all(getattr(found, name) is not None for name in homes_of(found))


def test_a_planted_import_in_a_function_is_found(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "__init__.py").touch()
    (tmp_path / "one" / "x.py").write_text(
        "import os\n"
        "if TYPE_CHECKING:\n    import sys\n"
        "class A:\n    import re\n    def method(self):\n        from . import y\n"
        "def late():\n    def later():\n        from one.y import Thing\n    import json\n"
    )
    (tmp_path / "one" / "y.py").touch()
    assert deferred_in({"one": tmp_path / "one"}) == {
        Deferred("one.x", "one.y"),
        Deferred("one.x", "json"),
    }


STARTS = {
    "quicksand.hosted.remote_parts": "other machines",
    "importlib.metadata": "of Python itself",
    "quicksand.disks.packages.installing": "building an image, before a start",
    "quicksand.qemu.fetching": "getting QEMU, before a start",
    "quicksand.qemu.keeper_parts.adopting": "the keeper's own process",
}
"""What a process need not have when its sandbox runs, and why."""


def test_a_process_with_a_sandbox_imports_nothing_late() -> None:
    """The package may be upgraded under it, and it is to end well."""
    deferred = {
        entry["imports"] for entry in LIST["deferred"] if entry["in"].startswith("quicksand.")
    }
    begin = "import quicksand.sandbox; from quicksand.life import whole; whole.make_whole()"
    loaded = _loaded_after(begin)
    assert deferred - loaded <= {*STARTS}


def test_the_app_imports_nothing_late() -> None:
    loaded = _loaded_after("import quicksand_tui.ui.load_rest as whole; whole.import_all()")
    tables = [
        entry["in"]
        for entry in LIST["tables"]
        if ".lazy_" in entry["in"] and not {"cli", "verbs"} & {*entry["in"].split(".")}
    ]
    for table in tables:
        module = import_module(table)
        assert {home[0] for home in homes_of(module).values()} <= loaded, table
    assert "quicksand_tui.door.surroundings" in loaded
    assert "httpx" not in loaded


def _loaded_after(begin: str) -> set[str]:
    words = [sys.executable, "-c", f"{begin}; import sys; print(*sys.modules)"]
    return {*subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()}
