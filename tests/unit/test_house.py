"""The house is as its drawing says: rooms, arrows that all lead down, and no circle anywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import quicksand
import quicksand_benchmark
import quicksand_disks
import quicksand_driver
import quicksand_e2b
import quicksand_fleet
import quicksand_images
import quicksand_panes
import quicksand_pixels
import quicksand_smb
import quicksand_vnc
import quicksand_vt
import quicksand_wheels

import quicksand_tui
from tests.each import each

ROOT = Path(quicksand_tui.__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "internals" / "architecture.md"
PACKAGES = {
    package.__name__: Path(str(package.__file__)).parent
    for package in (
        quicksand_benchmark,
        quicksand_e2b,
        quicksand_fleet,
        quicksand_tui,
        quicksand,
        quicksand_images,
        quicksand_disks,
        quicksand_smb,
        quicksand_driver,
        quicksand_panes,
        quicksand_pixels,
        quicksand_vnc,
        quicksand_vt,
        quicksand_wheels,
    )
}
ARROW = re.compile(r"^([a-z0-9_]+) +->((?: [a-z0-9_]+)*)", re.MULTILINE)

PUBLIC = {"quicksand", "quicksand.errors", "quicksand.saves", "quicksand.extending"} | {
    "quicksand_fleet",
    "quicksand_tui.plugins",
}
"""The modules that are for other packages."""

FOR_TYPE_CHECKERS = ("quicksand", "quicksand_fleet")
"""Public names that enter at run time by entry points."""

Graph = dict[str, set[str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing in `ARCHITECTURE`: the arrows below a heading."""

    package: str
    """Whose rooms it shows; with "" it shows the packages themselves."""
    heading: str
    top: str = ""
    """The room of the modules directly in the package; with "" they are in none."""

    def arrows(self) -> Graph:
        text = ARCHITECTURE.read_text().partition(f"\n## {self.heading}\n")[2]
        found = ARROW.findall(text.partition("\n## ")[0])
        return {room: set(others.split()) for room, others in found}

    def imported(self, house: Graph) -> Graph:
        """The arrows that the imports have."""
        return rooms(house, self.package, self.top) if self.package else between_packages(house)


DRAWINGS = (
    Drawing("", "Packages"),
    Drawing("quicksand_tui", "Rooms of the app"),
    Drawing("quicksand", "Rooms of the engine", top="face"),
)


def modules(packages: Mapping[str, Path]) -> dict[str, Path]:
    """All modules of these packages by their full names; that of a package is its `__init__`."""
    found = {}
    for package, directory in packages.items():
        for path in directory.rglob("*.py"):
            parts = (package, *path.relative_to(directory).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(module: str, path: Path) -> Iterator[str]:
    """Full names of what a module imports, wherever in the file: a module, or a name in one."""
    inside = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            whole = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*whole, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def graph(packages: Mapping[str, Path]) -> Graph:
    """Which modules each imports, for types and within functions, too."""
    known = modules(packages)
    found: Graph = {}
    for name, path in known.items():
        wanted = imports(name, path)
        full = {one if one in known else one.rpartition(".")[0] for one in wanted}
        found[name] = (full & known.keys()) - {name}
    importer, imported = FOR_TYPE_CHECKERS
    found.get(importer, set()).discard(imported)
    return found


def rooms(found: Graph, package: str, top: str = "") -> Graph:
    """Which rooms of a package each of them imports."""

    def room_of(module: str) -> str:
        parts = module.split(".")
        if parts[0] != package or len(parts) == 1 or parts[1].startswith("_"):
            return ""
        is_room = len(parts) > 2 or any(name.startswith(f"{module}.") for name in found)
        return parts[1] if is_room else top

    arrows: Graph = {}
    for module, wanted in found.items():
        if room := room_of(module):
            others = {room_of(one) for one in wanted} - {room, ""}
            arrows.setdefault(room, set()).update(others)
    return arrows


def between_packages(found: Graph) -> Graph:
    """Which packages each of them imports."""
    arrows: Graph = {}
    for module, wanted in found.items():
        package = module.partition(".")[0]
        others = {one.partition(".")[0] for one in wanted}
        arrows.setdefault(package, set()).update(others - {package})
    return arrows


def smallest_circle(found: Graph) -> list[str]:
    """The names along the smallest circle that is met, or none."""
    left = found
    while leaves := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in leaves}
    # What remains is in a circle, or leads to one.
    return min((_way_around(left, name) for name in left), key=len, default=[])


def _way_around(found: Graph, start: str) -> list[str]:
    way = [start]
    while True:
        following = min(found[way[-1]] & found.keys())
        if following in way:
            return way[way.index(following) :]
        way.append(following)


@pytest.fixture(scope="module")
def house() -> Graph:
    return graph(PACKAGES)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.heading)
def test_the_drawing_equals_the_imports(drawing: Drawing, house: Graph) -> None:
    assert drawing.arrows() == drawing.imported(house)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.heading)
def test_no_room_imports_itself_by_way_of_others(drawing: Drawing, house: Graph) -> None:
    assert not smallest_circle(drawing.imported(house))


@each("drawing", DRAWINGS, ids=lambda drawing: drawing.heading)
def test_a_drawing_has_the_rooms_in_order_so_that_all_arrows_lead_down(drawing: Drawing) -> None:
    above: list[str] = []
    for room, others in drawing.arrows().items():
        above.append(room)
        assert not others & set(above), room


@each("package", ["quicksand_tui", "quicksand"])
def test_every_room_says_what_belongs_there(package: str) -> None:
    for name, path in modules({package: PACKAGES[package]}).items():
        if path.name == "__init__.py" and name.count(".") == 1:
            text = ast.get_docstring(ast.parse(path.read_text()))
            assert text and len(text.splitlines()) >= 3, name


def test_only_qemu_its_display_and_its_events_speak_qmp(house: Graph) -> None:
    engine = {name for name in house if name.startswith("quicksand.")}
    speakers = {name for name in engine if "quicksand.qemu.qmp" in house[name]}
    assert {name.split(".")[1] for name in speakers - {"quicksand.life.qmp_events"}} <= {
        "qemu",
        "display",
    }, speakers


@each(
    ("package", "needs"),
    [
        ("quicksand_smb", set()),
        ("quicksand_vt", set()),
        ("quicksand_disks", {"backports", "compression"}),
        ("quicksand_pixels", {"PIL", "quicksand_vt"}),
        ("quicksand_vnc", {"PIL"}),
        ("quicksand_wheels", {"httpx", "packaging"}),
        ("quicksand_driver", {"rich", "textual"}),
        ("quicksand_panes", {"PIL", "quicksand_pixels", "quicksand_vt", "rich", "textual"}),
    ],
)
def test_what_stands_alone_needs_no_more_than_it_says(package: str, needs: set[str]) -> None:
    for name, path in modules({package: PACKAGES[package]}).items():
        whole = {one.partition(".")[0] for one in imports(name, path)}
        assert whole <= {package, *needs, *sys.stdlib_module_names}, name


@pytest.mark.parametrize(
    ("package", "public"),
    [
        ("quicksand_vt", set()),
        (
            "quicksand_disks",
            {f"quicksand_disks.{one}" for one in ("changes", "comparing", "ext4", "qcow2", "zstd")},
        ),
        ("quicksand_pixels", {"quicksand_pixels.encoding", "quicksand_pixels.decoding"}),
        (
            "quicksand_vnc",
            {f"quicksand_vnc.{one}" for one in ("animation", "client", "watching")},
        ),
        (
            "quicksand_wheels",
            {f"quicksand_wheels.{one}" for one in ("links", "sources", "wanted", "web", "wheel")},
        ),
        (
            "quicksand_driver",
            {
                f"quicksand_driver.{one}"
                for one in (
                    "columns",
                    "input_splitter",
                    "probe",
                    "terminal_queries",
                    "textual_compositor",
                    "textual_private",
                )
            },
        ),
        (
            "quicksand_panes",
            {
                f"quicksand_panes.{one}"
                for one in (
                    "guest_terminal",
                    "messages",
                    "row_drawing",
                    "splits",
                    "widgets",
                )
            },
        ),
    ],
)
def test_what_stands_alone_is_used_by_its_public_names(
    package: str, public: set[str], house: Graph
) -> None:
    """Tests know their inside; programs do not."""
    for name, wanted in house.items():
        if not name.startswith(package):
            assert not {one for one in wanted if one.startswith(f"{package}.")} - public, name


@each("package", ["quicksand_pixels", "quicksand_vnc"])
def test_public_names_of_pictures_need_no_pillow_but_to_draw(package: str) -> None:
    program = f"import sys, {package}; sys.exit(bool({{'PIL', 'asyncio'}} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", program], check=True)


@each("package", ["quicksand_benchmark", "quicksand_e2b", "quicksand_fleet"])
def test_an_extra_knows_the_engine_and_the_program_by_their_public_names(package: str) -> None:
    for name, path in modules({package: PACKAGES[package]}).items():
        ours = {one for one in imports(name, path) if one.startswith("quicksand")}
        homes = {one.rpartition(".")[0] for one in ours} - {package}
        others = {one for one in homes if not one.startswith(f"{package}.")}
        assert others <= PUBLIC, name


def test_no_module_imports_itself_by_way_of_others(house: Graph) -> None:
    assert not smallest_circle(house)


def plant(root: Path, **files: str) -> dict[str, Path]:
    """Packages in a temporary tree; ``one__a__x`` is the module `one.a.x`."""
    for name, text in files.items():
        path = root.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return {name.partition("__")[0]: root / name.partition("__")[0] for name in files}


@each(
    "back",
    [
        "from one.a.x import Thing",
        "import one.a.x",
        "from ..a.x import Thing",
        "from ..a import x",
        "def late():\n    from one.a import x",
        "if TYPE_CHECKING:\n    from one.a.x import Thing",
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, back: str) -> None:
    packages = plant(tmp_path, one__a__x="from one.b import y", one__b__y=back)
    assert sorted(smallest_circle(graph(packages))) == ["one.a.x", "one.b.y"]


def test_a_planted_circle_through_another_package_is_found(tmp_path: Path) -> None:
    packages = plant(
        tmp_path, one__x="from . import w", one__w="import two.y", two__y="import one.x"
    )
    assert sorted(smallest_circle(graph(packages))) == ["one.w", "one.x", "two.y"]


def test_a_planted_circle_of_rooms_is_found_though_no_module_is_in_one(tmp_path: Path) -> None:
    packages = plant(
        tmp_path,
        one__a__x="def late():\n    from ..b.y import Thing",
        one__b__y="",
        one__b__z="if TYPE_CHECKING:\n    from one.a import w",
        one__a__w="",
        one__face="from one.a import x",
    )
    found = graph(packages)
    assert not smallest_circle(found)
    assert sorted(smallest_circle(rooms(found, "one"))) == ["a", "b"]
    assert rooms(found, "one", top="face")["face"] == {"a"}
