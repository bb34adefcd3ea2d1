"""The wall's layout, its order, and what counts as a question."""

from __future__ import annotations

from quicksand.things.status import Status

from quicksand_tui.model.geometry import Rect
from quicksand_tui.model.wall_plan import (
    TILE_HEIGHT_MIN,
    TILE_WIDTH_MIN,
    Kind,
    Order,
    TileFacts,
    Wants,
    counts_text,
    first_row,
    foot_text,
    head_text,
    is_question,
    lay_out,
)
from tests.each import each

SIZES = ((80, 22), (100, 28), (120, 34), (160, 43), (200, 48), (30, 8), (10, 3), (1, 1))


@each("size", SIZES)
@each("count", [1, 2, 3, 4, 5, 7, 12, 20, 100])
def test_tiles_take_the_whole_room_and_do_not_overlap(size: tuple[int, int], count: int) -> None:
    width, height = size
    places = lay_out(count, width, height)
    assert 1 <= len(places) <= count
    cells = {(x, y) for p in places for x in _span(p.x, p.width) for y in _span(p.y, p.height)}
    assert len(cells) == sum(place.width * place.height for place in places)
    assert cells == {(x, y) for x in range(width) for y in range(height)}
    if len(places) > 1:
        assert min(place.width for place in places) >= TILE_WIDTH_MIN
        assert min(place.height for place in places) >= TILE_HEIGHT_MIN


def _span(start: int, length: int) -> range:
    return range(start, start + length)


def test_as_many_tiles_as_fit_have_a_place() -> None:
    assert len(lay_out(12, 120, 34)) == 12
    assert len(lay_out(12, 80, 22)) == 8
    assert lay_out(0, 80, 22) == []
    assert lay_out(4, 0, 22) == []


def test_few_tiles_stand_so_that_each_shows_the_most_of_a_terminal() -> None:
    assert lay_out(2, 160, 43) == [Rect(0, 0, 80, 43), Rect(80, 0, 80, 43)]
    # Beside each other, neither would show half a line of a usual terminal.
    assert lay_out(2, 80, 44) == [Rect(0, 0, 80, 22), Rect(0, 22, 80, 22)]


def test_what_calls_comes_first_and_the_rest_keeps_its_places() -> None:
    order: Order[str] = Order()
    assert order.arrange("abcd", ()) == list("abcd")
    assert order.arrange("abcd", [("c", Wants.BELL)]) == list("cabd")
    # A question is more urgent than a bell; of two equals, the one that called first comes first.
    calls = [("c", Wants.BELL), ("b", Wants.ANSWER), ("d", Wants.BELL)]
    assert order.arrange("abcd", calls) == list("bcda")
    assert order.arrange("abcd", ()) == list("abcd")


def test_a_new_tile_takes_the_place_of_one_that_is_gone() -> None:
    order: Order[str] = Order()
    order.arrange("abc", ())
    assert order.arrange("acx", ()) == ["a", "x", "c"]
    assert order.arrange("axcy", ()) == ["a", "x", "c", "y"]


@each(
    "line",
    [
        "Apply this edit? [y/n] ",
        "Do you want to continue? [Y/n]",
        "Overwrite file (yes/no)?",
        "[sudo] password for me: ",
        "Enter passphrase for key '/root/.ssh/id': ",
        "Press any key to continue . . .",
        "--More--(45%)",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "continue?",
    ],
)
def test_a_question_is_told_from_output(line: str) -> None:
    assert is_question(line)


@each(
    "line",
    [
        "root@web:~/src# ",
        "$ ",
        "> ",
        "user@host ~ % ",
        "Compiling serde v1.0",
        "",
        "In [3]: ",
        ">>> ",
    ],
)
def test_a_shells_prompt_is_no_question(line: str) -> None:
    assert not is_question(line)


def test_a_tile_shows_the_end_of_the_output_with_its_cursor() -> None:
    assert first_row(24, 8, 3, 4) == 0
    assert first_row(24, 8, 23, 24) == 16
    assert first_row(24, 8, 2, 24) == 2
    assert first_row(24, 40, 23, 24) == 0
    assert first_row(1, 1, 0, 0) == 0


FACTS = TileFacts(
    name="web",
    kind=Kind.SHELL,
    state=Status.RUNNING,
    cpu=2.0,
    program="/usr/bin/pytest -q",
    directory="/root/src",
    silent_s=8.0,
)


def test_a_title_tells_name_state_cpu_silence_program_and_directory() -> None:
    assert head_text(FACTS, 60) == "web ● 2% idle 8s ─ pytest -q ~/src"
    assert head_text(FACTS, 28) == "web ● 2% idle 8s ─ pytest -…"
    assert head_text(FACTS, 20) == "web ● 2% idle 8s"
    assert head_text(FACTS, 8) == "web ● 2%"


@each(
    ("seconds", "said"),
    [(None, ""), (0.0, ""), (1.0, " idle 1s"), (47.0, " idle 40s"), (61.0, " idle 1m")],
)
def test_a_title_tells_the_time_since_the_last_output(seconds: float | None, said: str) -> None:
    facts = {field: getattr(FACTS, field) for field in TileFacts.__slots__}
    assert head_text(TileFacts(**facts | {"silent_s": seconds, "program": ""}), 20) == (
        f"web ● 2%{said}"
    )


@each(
    ("program", "directory", "said"),
    [("-bash", "/root", "bash ~"), ("/bin/sh -l", "/rooted", "sh /rooted"), ("", "", "")],
)
def test_a_shell_is_told_by_its_name_alone(program: str, directory: str, said: str) -> None:
    facts = TileFacts(
        name="a", kind=Kind.SHELL, state=Status.RUNNING, program=program, directory=directory
    )
    assert head_text(facts, 60) == "a ●" + (f" ─ {said}" if said else "")


@each(
    ("changes", "said"),
    [
        ({}, ""),
        ({"lines_per_s": 3.0}, "+3 lines/s"),
        ({"wants": Wants.ANSWER}, "! wants an answer"),
        ({"wants": Wants.BELL}, "♪ rang the bell"),
        ({"wants": Wants.END, "status": 1}, "✗ exit 1"),
        ({"wants": Wants.END, "status": 0}, "✓ done"),
        ({"state": Status.PAUSED}, "paused"),
        ({"note": "it does not answer"}, "it does not answer"),
    ],
)
def test_the_foot_tells_what_matters_most(changes: dict[str, object], said: str) -> None:
    facts = {field: getattr(FACTS, field) for field in TileFacts.__slots__} | changes
    assert foot_text(TileFacts(**facts)) == said


def test_the_counts_tell_what_is_shown_and_what_calls() -> None:
    assert counts_text(1, 1, 0, 0) == "1 tile"
    assert counts_text(20, 8, 8, 2) == "20 tiles, 9–16 shown · 2 want you"
