"""What lies in the runtime directory beside the directories of sandboxes is known as ours, and
nothing else is."""

from __future__ import annotations

import ast
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths, make_private_dir
from quicksand.records import host_sockets
from quicksand.records.registry import Registry

from quicksand_tui.cli.ssh.ssh_config import sockets_dir

ROOT = Path(__file__).parents[3]
NAMING = {
    "engine/quicksand/records/host_sockets.py",
    "engine/quicksand/records/layout.py",
    "engine/quicksand/fleet/far_end.py",
}
"""Those that name what is in a runtime directory; the last only looks at sandboxes'."""


@pytest.fixture
def registry(places: Paths) -> Iterator[Registry]:
    make_private_dir(places.runtime)
    yield Registry(places)
    for path in places.runtime.iterdir():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def listen(path: Path) -> None:
    """Leaves a socket there."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def test_sockets_for_other_machines_and_the_directory_of_sshs_masters_are_ours(
    registry: Registry, places: Paths
) -> None:
    masters = sockets_dir(places)
    assert masters is not None
    make_private_dir(masters)
    listen(host_sockets.host_socket(places, "a" * 32))
    listen(host_sockets.askpass_socket(places.runtime, "b" * 32))
    assert registry.strangers() == {}


def test_what_only_has_such_a_name_is_named_and_left_alone(
    registry: Registry, places: Paths, tmp_path: Path
) -> None:
    host_sockets.ssh_masters(places).symlink_to(tmp_path)
    file = host_sockets.host_socket(places, "a" * 32)
    file.write_text("theirs")
    assert registry.strangers().keys() == {host_sockets.ssh_masters(places), file}


def test_nothing_else_is_put_beside_sandboxes() -> None:
    """Whoever names something in the runtime directory does that where it is known as ours."""
    found = set()
    for place in (ROOT / "engine" / "quicksand", ROOT / "extras", ROOT / "quicksand_tui"):
        for path in place.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
                    continue
                left = node.left
                name = left.attr if isinstance(left, ast.Attribute) else getattr(left, "id", "")
                if name.strip("_") == "runtime":
                    found.add(str(path.relative_to(ROOT)))
    assert found <= NAMING, "give it a name in records/host_sockets.py"
