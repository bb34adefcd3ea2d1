"""The house is as its drawing says: rooms, arrows, and no circle anywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import quicksand
import quicksand_smb

import quicksand_tui

ROOT = Path(quicksand_tui.__file__).parents[1]
DRAWING = ROOT / "docs" / "internals" / "architecture.md"
PACKAGES = {
    "quicksand_tui": ROOT / "quicksand_tui",
    "quicksand": Path(quicksand.__file__).parent,
    "quicksand_smb": Path(quicksand_smb.__file__).parent,
}
ROOM = re.compile(r"^([a-z]+) +->((?: [a-z]+)*)", re.MULTILINE)

Graph = dict[str, set[str]]


def modules(package: str) -> dict[str, Path]:
    found = {}
    for path in PACKAGES[package].rglob("*.py"):
        parts = path.relative_to(PACKAGES[package].parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Modules with the names that are taken from them, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def graph(package: str) -> Graph:
    """Which modules each imports, for types and within functions, too."""
    known = modules(package)
    found: Graph = {}
    for name, path in known.items():
        wanted = (f"{module}.{what}" for module, what in imports(path))
        full = {one if one in known else one.rpartition(".")[0] for one in wanted}
        found[name] = (full & known.keys()) - {name}
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def rooms(found: Graph) -> Graph:
    arrows: Graph = {}
    for module, wanted in found.items():
        room = room_of(module)
        if room and not room.startswith("_"):
            others = {room_of(one) for one in wanted} - {room, ""}
            arrows.setdefault(room, set()).update(others)
    return arrows


def test_the_drawing_equals_the_imports() -> None:
    drawn = {room: set(others.split()) for room, others in ROOM.findall(DRAWING.read_text())}
    assert drawn == rooms(graph("quicksand_tui"))


def test_every_room_says_what_belongs_there() -> None:
    for name, path in modules("quicksand_tui").items():
        if path.name == "__init__.py" and name.count(".") == 1:
            text = ast.get_docstring(ast.parse(path.read_text()))
            assert text and len(text.splitlines()) >= 3, name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    left = graph(package)
    while leaves := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in leaves}
    # What remains is in a circle, or leads to one: the smallest set is named.
    assert not left, min((circle(left, name) for name in left), key=len)


def circle(found: Graph, start: str) -> list[str]:
    """A way from a module that leads around."""
    way = [start]
    while True:
        following = sorted(found[way[-1]] & found.keys())[0]
        if following in way:
            return way[way.index(following) :]
        way.append(following)
