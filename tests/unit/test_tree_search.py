"""examples/tree_search.py without a VM: what it refuses, and how many attempts a search takes."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.paths import Paths

from examples import tree_search
from examples.tree_search import NO_WAY, NODES, START, GuestError, Search
from tests.each import each
from tests.unit.test_house import ROOT


class Puzzle:
    """A sandbox that has only the puzzle in it."""

    kept: dict[str, str]

    def __init__(self, name: str, kept: dict[str, str], chance: random.Random) -> None:
        self.name, self.kept, self.chance, self.board = name, kept, chance, START

    async def checkpoint(self, tag: str, note: str) -> SimpleNamespace:
        await self.take_time()
        self.kept[f"{self.name}:{tag}"] = self.board
        return SimpleNamespace(pause_s=0.0)

    async def revert(self, tag: str, keep_now: bool) -> None:
        await self.take_time()
        self.board = self.kept[tag if ":" in tag else f"{self.name}:{tag}"]

    async def execute(self, command: str, cwd: str) -> SimpleNamespace:
        await self.take_time()
        way = command.partition("way=")[2].split()[0]
        row, column = divmod(self.board.index("0"), 3)
        row += (way == "down") - (way == "up")
        column += (way == "right") - (way == "left")
        if not (0 <= row < 3 and 0 <= column < 3):
            return SimpleNamespace(exit_code=NO_WAY, stdout="", stderr="")
        tile = self.board[row * 3 + column]
        self.board = self.board.translate(str.maketrans("0" + tile, tile + "0"))
        left = sum(
            abs(place // 3 - (int(found) - 1) // 3) + abs(place % 3 - (int(found) - 1) % 3)
            for place, found in enumerate(self.board)
            if found != "0"
        )
        return SimpleNamespace(exit_code=0, stdout=f"{self.board} {left}", stderr="")

    async def take_time(self) -> None:
        """Any number of turns of the event loop, as sandboxes answer in any order."""
        for _ in range(self.chance.randrange(1, 5)):
            await asyncio.sleep(0)


@each("count", [1, 2, 3, 4])
@each("seed", range(5))
async def test_the_usual_number_of_attempts_solves_the_puzzle(count: int, seed: int) -> None:
    kept: dict[str, str] = {}
    chance = random.Random(seed)
    search = Search(NODES, 1)
    boxes: list[Any] = [Puzzle(f"box{number}", kept, chance) for number in range(count)]
    await search.run(boxes)
    assert search.solution is not None
    assert len(search.solution) == 18
    assert search.tried <= NODES * 0.9


async def test_a_failed_attempt_is_no_dead_end() -> None:
    class Full(Puzzle):
        async def execute(self, command: str, cwd: str) -> SimpleNamespace:
            said = "dd: error writing '/dev/shm/work': No space left on device"
            return SimpleNamespace(exit_code=1, stdout="", stderr=said)

    boxes: list[Any] = [Full("box", {}, random.Random(0))]
    with pytest.raises(GuestError, match="memory is too small for an attempt") as caught:
        await Search(12, 200).run(boxes)
    assert "--memory" in caught.value.hint


def test_a_guest_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tree_search.complain(GuestError("it said \x1b[2J\nand \x9b2J", hint="do this"))
    assert capsys.readouterr().err == "tree_search: it said ?[2J\nand ?2J\nhint: do this\n"


def search_tree(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "examples" / "tree_search.py"), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--image nope", "tree_search: Image not found: 'nope'"),
        ("--memory abc", "tree_search: memory 'abc' is not a size\nhint: write it like"),
        ("--nodes 12 --mib 200", "need 401 MiB in it\nhint: use --memory 640M"),
        ("--nodes 200000", "need 791 MiB in it\nhint: use --memory 1088M"),
    ],
)
def test_an_error_is_a_line_and_its_hint(places: Paths, words: str, said: str) -> None:
    done = search_tree(*words.split())
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not done.stdout


@each(("nodes", "mib"), [(12, 200), (200_000, 4), (1, 1), (600, 400)])
def test_what_is_recommended_is_enough(nodes: int, mib: int) -> None:
    with pytest.raises(GuestError) as caught:
        tree_search.check_memory(nodes, mib, "65M")
    memory = caught.value.hint.split()[2].rstrip(",")
    tree_search.check_memory(nodes, mib, memory)
